"""Canaries and needle: prompts with one right answer, repeated, and interleaved with other requests."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.request import request_of
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings
from fixtures.workload.shapes import Shapes, record_mixed_canaries

pytestmark = pytest.mark.quality

ALONE = 4
"""Rounds of canaries that are asked one by one; the others are mixed with other requests, four at once."""


def test_canaries_are_right_every_time(
    lane: Lane,
    candidates: tuple[Arm, ...],
    shapes: Shapes,
    findings: Findings,
    pytestconfig: pytest.Config,
) -> None:
    """Every canary, every repeat: 55 of 64 right answers once meant a race, and one success had said nothing."""
    repeats = request_of(pytestconfig).repeats or lane.thresholds.canary_repeats
    record_mixed_canaries(shapes, candidates[0], lane.suites.canaries, lane.suites.parity, repeats, ALONE)
    findings.settle("canary.answer", "canary.expected", arms=candidates)


def test_needles_are_found_at_every_depth(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings, findings: Findings
) -> None:
    """Recall from a ladder of context lengths: a faster head once passed short canaries and failed at 1,024 tokens."""
    for name in (lane.suites.needle, lane.suites.needle_deep):
        if name is not None:
            recordings.repeat(candidates[0], name, 1, Purpose.NEEDLE)
    findings.settle("canary.needle", "canary.expected", arms=candidates)
