"""A/B: the stack under test against the stack of `--control`, fresh starts of both in one window."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings

pytestmark = [pytest.mark.perf, pytest.mark.control, pytest.mark.timed]


def test_the_candidate_holds_its_own_against_the_control(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    controls: tuple[Arm, ...],
    recordings: Recordings,
    findings: Findings,
) -> None:
    """A ratio of speeds, of answers that are cold and the target's; what the noise band covers is inconclusive."""
    assert lane.suites.perf is not None, f"lane {lane.name} has no perf suite"
    for arm in (*candidates, *controls, target, target_restart):
        recordings.of(arm, lane.suites.perf, Purpose.MEASURED)
    findings.settle("speed.control")
