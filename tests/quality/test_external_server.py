"""A server that somebody else started, at `--base-url`: it says what target-only has always said."""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arm
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.workload.recordings import Recordings

pytestmark = [pytest.mark.quality, pytest.mark.external]


def test_it_says_what_target_only_has_always_said(
    lane: Lane, candidates: tuple[Arm, ...], recordings: Recordings
) -> None:
    """Token by token the answers that the lane's parity suite carries; they were recorded from the model itself.

    The restarts and the target-only arm of the same engine are not shown: the verdict is pending at best.
    """
    suite = recordings.suite(lane.suites.parity)
    said = {t.prompt_id: t for t in recordings.of(candidates[0], suite.name, Purpose.PARITY)}
    known = [p for p in suite.prompts if p.answer_ids is not None]
    assert known, f"{suite.name} has no recorded answers"
    wrong = [f"{p.id}: {said[p.id].error or ''}" for p in known if said[p.id].token_ids != p.answer_ids]
    assert not wrong, f"{len(wrong)} of {len(known)} answers differ: {', '.join(wrong[:8])}"
