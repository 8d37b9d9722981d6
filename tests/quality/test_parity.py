"""Parity: the candidate says, token for token, what the target model says alone; and says it after every start."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fixtures.arms.servers import Arm
from fixtures.client.transcript import Transcript
from fixtures.diagnosis.explaining import judge_explained
from fixtures.judge.acceptance import judge_acceptance, judge_programme
from fixtures.judge.finding import Finding
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.quality import Judgement
from fixtures.workload.recordings import Recordings, forced_acceptance
from fixtures.workload.shapes import Shapes

pytestmark = pytest.mark.quality


@pytest.fixture(scope="module")
def answers(
    lane: Lane, target: Arm, target_restart: Arm, candidates: tuple[Arm, ...], recordings: Recordings
) -> Sequence[Transcript]:
    """Greedy answers of all arms to the parity suite, recorded without asking for log-probabilities."""
    return [
        t
        for arm in (target, *candidates, target_restart)
        for t in recordings.of(arm, lane.suites.parity, Purpose.PARITY)
    ]


@pytest.fixture(scope="module")
def parity(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    answers: Sequence[Transcript],
    recordings: Recordings,
    shapes: Shapes,
) -> Sequence[Finding]:
    """What parity came to, with every divergence explained by the target and placed in its verifier round."""
    suite = recordings.suite(lane.suites.parity)
    compared = [*answers, *shapes.answers()]
    return judge_explained(recordings, compared, (target, target_restart), candidates, suite, shapes=shapes)


def test_target_only_says_what_it_has_always_said(lane: Lane, target: Arm, recordings: Recordings) -> None:
    """The target's ids equal those in the suite, which were recorded from the model itself.

    Without this a patch that changes the target in both arms alike would pass parity.
    """
    suite = recordings.suite(lane.suites.parity)
    said = {t.prompt_id: t for t in recordings.of(target, suite.name, Purpose.PARITY)}
    known = [p for p in suite.prompts if p.answer_ids is not None]
    assert known, f"{suite.name} has no recorded answers"
    wrong = [p.id for p in known if said[p.id].token_ids != p.answer_ids]
    assert not wrong, (
        f"{len(wrong)} of {len(known)} answers differ from the recorded ones: {', '.join(wrong[:8])}"
    )


def test_every_candidate_start_equals_target_only(parity: Sequence[Finding], judgement: Judgement) -> None:
    """Token-exact over the whole answer, every prompt, two fresh starts; each divergence is explained by the target."""
    judgement.settle(f for f in parity if f.check.startswith("parity."))


def test_other_orders_and_batch_shapes_keep_requests_apart(
    parity: Sequence[Finding], judgement: Judgement
) -> None:
    """Reversed, 4 and 16 at once: each answer is right for its own prompt; whether it equals the one alone is told."""
    judgement.settle(f for f in parity if f.check.startswith("batch."))


def test_acceptance_is_plausible(
    lane: Lane,
    candidates: tuple[Arm, ...],
    answers: Sequence[Transcript],
    recordings: Recordings,
    judgement: Judgement,
) -> None:
    """Drafts were drafted, some were accepted and some were not: a head that accepts nothing or everything hides."""
    spans = [recordings.spans[arm.label, Purpose.PARITY] for arm in candidates]
    assert answers, "acceptance is counted over the parity suite"
    limits = lane.thresholds
    judgement.settle(
        judge_acceptance(
            spans,
            floor=limits.acceptance_floor,
            ceiling=limits.acceptance_ceiling,
            floor_by_position=limits.acceptance_floor_by_position,
            ceiling_by_position=limits.acceptance_ceiling_by_position,
        )
    )


@pytest.mark.applies(speculation="scripted")
def test_the_server_accepts_what_the_programme_forces(
    lane: Lane,
    candidates: tuple[Arm, ...],
    answers: Sequence[Transcript],
    recordings: Recordings,
    judgement: Judgement,
) -> None:
    """Accepted drafts by position, as the server counts them, equal what the scripted drafter made right."""
    assert lane.speculation is not None
    assert answers, "the programme ran while the parity suite was asked"
    for arm in candidates:
        forced = forced_acceptance(recordings.proposals[arm.label], lane.speculation.num_speculative_tokens)
        judgement.settle([judge_programme(recordings.spans[arm.label, Purpose.PARITY], forced)])
