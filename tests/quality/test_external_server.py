"""A server that somebody else started, at `--base-url`: it says what target-only has always said."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings, require_recorded_answers

pytestmark = [pytest.mark.quality, pytest.mark.external]


def test_it_says_what_target_only_has_always_said(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings, findings: Findings
) -> None:
    """Token by token the answers that the lane's parity suite carries; they were recorded from the model itself.

    The restarts and the target-only arm of the same engine are not shown: the verdict is pending at best.
    """
    require_recorded_answers(recordings.suite(lane.suites.parity))
    recordings.of(candidates[0], lane.suites.parity, Purpose.PARITY)
    findings.settle("parity.recorded", arms=candidates)
