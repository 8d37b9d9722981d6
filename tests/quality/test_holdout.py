"""The holdout: prompts that the tuning of a stack never sees are answered as target-only answers them."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.diagnosis.explaining import explain_divergences
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings

pytestmark = [pytest.mark.holdout, pytest.mark.timeout(3600)]


def test_the_holdout_is_answered_as_target_only_answers_it(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    findings: Findings,
) -> None:
    """Token-exact on a suite of its own: what was made to fit the parity suite has not been made to fit this one."""
    if lane.suites.holdout is None:
        pytest.skip(f"not offered: lane {lane.name} names no holdout suite")
    suite, tuned = recordings.suite(lane.suites.holdout), load_suite(lane.suites.parity)
    assert not {p.user for p in suite.prompts} & {p.user for p in tuned.prompts}, (
        "the holdout is not held out"
    )
    for arm in (target, *candidates, target_restart):
        recordings.of(arm, suite.name, Purpose.PARITY)
    explain_divergences(recordings, findings, candidates, target_restart)
    findings.settle("parity.*", "acceptance.rate", "acceptance.counters", "counters.generated")
