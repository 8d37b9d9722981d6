"""The holdout: prompts that the tuning of a stack never sees are answered as target-only answers them."""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arm, Arms
from fixtures.client.ask import run_suite
from fixtures.diagnosis.explaining import judge_explained
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.run.quality import Judgement
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.holdout

AT_ONCE = 4


def test_the_holdout_is_answered_as_target_only_answers_it(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    arms: Arms,
    judgement: Judgement,
) -> None:
    """Token-exact on a suite of its own: what was made to fit the parity suite has not been made to fit this one."""
    if lane.suites.holdout is None:
        pytest.skip(f"lane {lane.name} names no holdout suite")
    suite, tuned = recordings.suite(lane.suites.holdout), load_suite(lane.suites.parity)
    assert not {p.user for p in suite.prompts} & {p.user for p in tuned.prompts}, (
        "the holdout is not held out"
    )
    said = []
    for arm in (target, candidates[0], target_restart):
        server = arms.server(arm)
        first = recordings.next_order(arm, len(suite.prompts))
        recordings.say(f"{arm.label}: {suite.name}, {len(suite.prompts)} prompts")
        said += run_suite(server.endpoint, suite, arm=arm.label, concurrency=AT_ONCE, first_order=first)
    recordings.keep(said, Purpose.PARITY)
    targets = (target, target_restart)
    judgement.settle(judge_explained(recordings, said, targets, candidates[:1], suite, placed=False))
