"""Generated sessions on target and candidate: all that a client can see is compared, and reduced where it differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fixtures.arms.servers import Arms
from fixtures.evidence.plugin import Evidence
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.request import RunRequest
from fixtures.run.findings import Findings
from fixtures.traffic.cases import kept_cases
from fixtures.traffic.coverage import breadth_of, page
from fixtures.traffic.drive import Driver
from fixtures.traffic.launches import DEFAULT, LAUNCHES, lane_for
from fixtures.traffic.material import Texts, material_of
from fixtures.traffic.pair import Half, ServerLost, measured_bound_nats
from fixtures.traffic.plugin import described, traffic_request_of, versions_of, what_is_left_out
from fixtures.traffic.report import write_found
from fixtures.traffic.session import Session

pytestmark = [pytest.mark.traffic, pytest.mark.timeout(8 * 3600), pytest.mark.ours("restarts")]

REPLICATES = 40
"""Replicates from here on are servers of generated traffic: it starts them again when they die."""


@pytest.mark.parametrize("launch", LAUNCHES)
def test_generated_sessions_are_answered_as_target_only_answers_them(
    launch: str,
    lane: Lane,
    arms: Arms,
    evidence: Evidence,
    findings: Findings,
    keep_files: Callable[[str, str], None],
    run_request: RunRequest,
    pytestconfig: pytest.Config,
) -> None:
    """Requests that nobody wrote down: alone, in company and after it; ids, text, ends, usage and counters."""
    asked = traffic_request_of(pytestconfig)
    if launch != DEFAULT and asked.profile == "gate":
        pytest.skip(f"not offered: profile gate plays on the lane's own launch, not on {launch}")
    started = lane_for(lane, launch)
    if started is None:
        pytest.skip(f"not offered: lane {lane.name} does not say how it is started with {launch}")
    stack = run_request.stack
    omitted = what_is_left_out(asked, started, stack)
    first = REPLICATES + 10 * list(LAUNCHES).index(launch)
    candidate = Half(arms, started, "candidate", stack, first)
    target = Half(arms, started, "target", stack, first, beside=candidate)
    candidate.beside = target
    depth = started.speculation.num_speculative_tokens if started.speculation else 0
    suites = [load_suite(started.suites.canaries), load_suite(started.suites.parity)]
    material = material_of(
        target.endpoint(),
        suites,
        started.model.folder,
        depth=depth,
        limits=LAUNCHES[launch].limits,
        priorities=LAUNCHES[launch].priorities,
        avoided=frozenset(entry.feature for entry in omitted),
    )
    bound_nats = measured_bound_nats(target.endpoint(), target.arm, material.known)
    driver = Driver(
        target.side,
        candidate.side,
        Texts(started.model.folder),
        bound_nats,
        evidence,
        is_sent=material.is_sent,
    )
    evidence.append("traffic_run", {"launch": launch, "seed": asked.seed, "left_out": described(omitted)})
    try:
        for case in kept_cases() if asked.replayed is None else asked.replayed:
            if case.session.launch == launch:
                driver.one(dataclasses.replace(case.session, number=driver.played))
        if asked.replayed is None:
            driver.run(material, run_seed=asked.seed, minutes=asked.minutes, launch=launch)
    except ServerLost as error:
        print(error)
    sessions = [
        Session.from_row(row["played"]["session"])
        for row in evidence.rows.get("traffic", ())
        if row["launch"] == launch and (row["role"], row["phase"]) == ("candidate", "session")
    ]
    keep_files(f"traffic-{launch}-coverage.md", page(breadth_of(sessions)))
    write_found(evidence.rows, launch, (target.arm, candidate.arm), versions_of(started), keep_files)
    findings.settle("traffic.*")
