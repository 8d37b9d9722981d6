"""Every token that any arm said is the target's first choice, or a near tie, after what was said before it."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.diagnosis.reading import read_answers
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings
from fixtures.workload.shapes import Shapes

pytestmark = pytest.mark.quality


@pytest.fixture(scope="module")
def read(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    oracle: Arm | None,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    shapes: Shapes,
    findings: Findings,
) -> None:
    """All answers to the parity suite, in every shape, read by a target-only server: one prefill an answer.

    A stack that could have changed the target unseen is not asked what it thinks of itself: target-only without it is.
    """
    unchanged = () if oracle is None else (oracle,)
    for arm in (target, *candidates, target_restart, *unchanged):
        recordings.of(arm, lane.suites.parity, Purpose.PARITY)
    read_answers(recordings, findings, candidates, oracle or target_restart)


@pytest.mark.usefixtures("read")
def test_the_target_agrees_with_its_own_answers(findings: Findings) -> None:
    """The null: target-only prefers what it said itself, and has read enough of it to hold others against it."""
    findings.settle("gaps.read", "gaps.tokenizer", "gaps.answer", "gaps.cut", "gaps.null")


@pytest.mark.usefixtures("read")
def test_every_token_of_a_candidate_is_the_targets_choice_or_a_near_tie(findings: Findings) -> None:
    """Also behind a first divergence: no gap beyond what rounding explains, wherever it stands."""
    findings.settle("gaps.wrong_token")


@pytest.mark.usefixtures("read")
def test_gaps_of_candidates_are_distributed_as_the_targets_own(findings: Findings) -> None:
    """Not more near ties, and not wider ones, than target-only's own answers to the same prompts have."""
    findings.settle("gaps.distribution")
