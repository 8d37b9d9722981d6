"""A sound engine is never rejected: parity, isolation, canaries and acceptance, run after run, judged anew each time.

    pytest -m false_alarms --runs 20

Servers are kept over several runs, and started afresh every few of them. Order and batch shape change from run to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pytest

from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.servers import Arms
from fixtures.client.ask import run_suite
from fixtures.client.metrics import read_counters
from fixtures.client.transcript import Transcript
from fixtures.judge.counters import CounterSpan
from fixtures.judge.described import LaneRow, SuiteRow
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose, RowList
from fixtures.judge.verdict import Verdict, derive
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import Suite, load_suite
from fixtures.request import request_of

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.false_alarms, pytest.mark.timeout(7200)]

RUNS_PER_START = 10
AT_ONCE = (1, 4, 16)
"""Requests in flight, in turns."""


def _described(lane: Lane, suites: Sequence[Suite]) -> RowList:
    rows = RowList()
    limits = lane.thresholds.model_copy(update={"candidate_arms": 1, "canary_repeats": 1})
    rows.append("lane", LaneRow(lane.name, lane.model.dtype, limits).to_row())
    for suite in suites:
        rows.append("suite", SuiteRow.of(suite).to_row())
    return rows


def _run(number: int, arm: Arm, arms: Arms, rows: RowList, parity: Suite, canaries: Suite) -> Verdict:
    """Ask a candidate both suites in an order and batch shape of this run's own, and judge."""
    server, at_once = arms.server(arm, evidence=RowList()), AT_ONCE[number % len(AT_ONCE)]
    rows.append("arm", arms.row(arm))
    before = read_counters(server.endpoint)
    for suite, purpose in ((parity, Purpose.PARITY), (canaries, Purpose.CANARY)):
        for said in run_suite(server.endpoint, suite, arm=arm.label, concurrency=at_once, order=number):
            rows.append("transcript", said.to_row() | {"purpose": purpose.value})
    span = CounterSpan(arm.label, before, read_counters(server.endpoint), Purpose.PARITY.value)
    rows.append("counters", span.to_row())
    return derive(rows.rows)


def test_a_sound_engine_is_accepted_every_time(
    lane: Lane, target: Arm, target_restart: Arm, arms: Arms, pytestconfig: pytest.Config
) -> None:
    """Each run that does not end in `accepted` on an engine without a fault is a false alarm: none is allowed."""
    runs = request_of(pytestconfig).runs
    parity, canaries = load_suite(lane.suites.parity), load_suite(lane.suites.canaries)
    targets: list[tuple[Arm, Sequence[Transcript]]] = [
        (arm, run_suite(arms.server(arm).endpoint, parity, arm=arm.label)) for arm in (target, target_restart)
    ]
    alarms: list[str] = []
    answers, checks, began_s = 0, 0, time.monotonic()
    for number in range(runs):
        rows = _described(lane, (parity, canaries))
        for arm, said in targets:
            rows.append("arm", arms.row(arm))
            for transcript in said:
                rows.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
        candidate = make_arm(
            lane, "candidate", replicate=1 + number // RUNS_PER_START, stack=request_of(pytestconfig).stack
        )
        verdict = _run(number, candidate, arms, rows, parity, canaries)
        answers += len(parity.prompts) + len(canaries.prompts)
        checks += len(verdict.findings)
        log.info(
            f"run {number + 1} of {runs} ({AT_ONCE[number % len(AT_ONCE)]} at once): {verdict.outcome.value}"
        )
        if verdict.outcome is not Outcome.ACCEPTED:
            alarms += [
                f"run {number + 1}: {f.check}: {f.message}"
                for f in verdict.findings
                if f.outcome is verdict.outcome
            ]
    spent_s = time.monotonic() - began_s
    log.info(f"{runs} runs, {answers} answers, {checks} checks, {len(alarms)} false alarms, {spent_s:.0f} s")
    assert not alarms, "\n".join(alarms)
