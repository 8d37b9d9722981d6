"""Canaries and needle: prompts with one right answer, repeated, and interleaved with other requests."""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arm
from fixtures.judge.canaries import judge_canaries
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.quality import Judgement
from fixtures.workload.recordings import Recordings
from fixtures.workload.shapes import Shapes, record_mixed_canaries

pytestmark = pytest.mark.quality

ALONE = 4
"""Rounds of canaries that are asked one by one; the others are mixed with other requests, four at once."""


def test_canaries_are_right_every_time(
    lane: Lane,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    shapes: Shapes,
    judgement: Judgement,
    pytestconfig: pytest.Config,
) -> None:
    """Every canary, every repeat: 55 of 64 right answers once meant a race, and one success had said nothing."""
    repeats = pytestconfig.getoption("--repeats") or lane.thresholds.canary_repeats
    suite = recordings.suite(lane.suites.canaries)
    said = record_mixed_canaries(shapes, candidates[0], suite.name, lane.suites.parity, repeats, ALONE)
    expected = {(suite.name, p.id): p.expect for p in suite.prompts if p.expect is not None}
    judgement.settle(judge_canaries(said, expected, repeats=repeats))


def test_needles_are_found_at_every_depth(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings, judgement: Judgement
) -> None:
    """Recall from a ladder of context lengths: a faster head once passed short canaries and failed at 1,024 tokens."""
    names = [name for name in (lane.suites.needle, lane.suites.needle_deep) if name is not None]
    said = [t for name in names for t in recordings.repeat(candidates[0], name, 1, Purpose.PROBE)]
    suites = [recordings.suite(name) for name in names]
    expected = {(s.name, p.id): p.expect for s in suites for p in s.prompts if p.expect is not None}
    assert len(expected) == sum(len(s.prompts) for s in suites), (
        "every needle prompt needs an expected answer"
    )
    judgement.settle(judge_canaries(said, expected))
