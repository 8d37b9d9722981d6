"""Canaries and needle: prompts with one right answer, repeated and interleaved."""

from __future__ import annotations

import pytest

from fixtures.evidence.plugin import settle
from fixtures.judge.canaries import judge_canaries
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.session.arms import Arm
from fixtures.session.recordings import Recordings

pytestmark = pytest.mark.quality


def test_canaries_are_right_every_time(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings, pytestconfig: pytest.Config
) -> None:
    """Every canary, every repeat: 55 of 64 right answers once meant a race, and one success had said nothing."""
    repeats = pytestconfig.getoption("--repeats") or lane.thresholds.canary_repeats
    said = recordings.repeat(candidates[0], lane.suites.canaries, repeats, Purpose.CANARY)
    suite = recordings.suite(lane.suites.canaries)
    expected = {(suite.name, p.id): p.expect for p in suite.prompts if p.expect is not None}
    settle(judge_canaries(said, expected, repeats=repeats))


def test_needles_are_found_at_every_depth(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings
) -> None:
    """Recall from a ladder of context lengths: a faster head once passed short canaries and failed at 1,024 tokens."""
    said = recordings.repeat(candidates[0], lane.suites.needle, 1, Purpose.PROBE)
    suite = recordings.suite(lane.suites.needle)
    expected = {(suite.name, p.id): p.expect for p in suite.prompts if p.expect is not None}
    assert len(expected) == len(suite.prompts), "every needle prompt needs an expected answer"
    settle(judge_canaries(said, expected))
