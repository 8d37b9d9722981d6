"""Temperature above 0: the tokens of a speculating server have the distribution of target-only's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fixtures.judge.sampling import judge_sampling
from fixtures.session.arms import Arm, Arms
from fixtures.session.drawing import PROMPTS, Sampled, draw_samples
from fixtures.session.quality import Judgement
from fixtures.session.recordings import Recordings

pytestmark = pytest.mark.sampling


@pytest.fixture(scope="module")
def drawn(
    target: Arm, candidates: tuple[Arm, ...], arms: Arms, recordings: Recordings
) -> Mapping[str, Sampled]:
    """Sampled answers by arm; a server that was started for this alone."""
    sampled = {}
    for arm in (candidates[0], target):
        server = arms.server(arm)
        recordings.say(f"{arm.label}: sampling {len(PROMPTS)} prompts")
        sampled[arm.label] = draw_samples(server.endpoint)
    return sampled


def test_drafts_were_accepted_and_rejected_while_sampling(
    drawn: Mapping[str, Sampled], candidates: tuple[Arm, ...]
) -> None:
    """Engagement: accepted drafts, replacements and bonus tokens all went into what is compared."""
    seen = drawn[candidates[0].label]
    assert 0 < seen.accepted < seen.drafted, (seen.accepted, seen.drafted)


def test_speculation_leaves_the_distribution_of_tokens(
    drawn: Mapping[str, Sampled], target: Arm, candidates: tuple[Arm, ...], judgement: Judgement
) -> None:
    """A shift of 5 % would be seen; the same distribution gives a false alarm once in a million runs of the suite."""
    candidate = candidates[0].label
    judgement.settle(judge_sampling(drawn[target.label].answers, drawn[candidate].answers, candidate))
