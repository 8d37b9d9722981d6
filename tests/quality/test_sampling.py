"""Temperature above 0: the tokens of a speculating server have the distribution of target-only's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from fixtures.arms.servers import Arm, Arms
from fixtures.evidence.plugin import Evidence
from fixtures.judge.sampling import Sample, judge_sampling, judge_tie_rule
from fixtures.prompts.suite import load_suite
from fixtures.run.deviations import known_deviation
from fixtures.run.quality import Judgement
from fixtures.workload.recordings import Recordings
from fixtures.workload.sampling import PROMPTS, Greedy, Sampled, ask_with_heads, draw_samples
from fixtures.workload.shapes import sample

pytestmark = pytest.mark.sampling

FREE_TEXT = "chat-parity"
"""Prompts that a canary was not trained for; in contexts made of their ids its logits tie now and then."""


@pytest.fixture(scope="module")
def heard(
    target: Arm, candidates: tuple[Arm, ...], arms: Arms, recordings: Recordings
) -> Mapping[str, tuple[Sampled, Sequence[Greedy]]]:
    """By arm: sampled answers, and greedy answers to nonsense with the head of the distribution at each position."""
    said = {}
    for arm in (candidates[0], target):
        server = arms.server(arm)
        recordings.say(f"{arm.label}: sampling {len(PROMPTS)} prompts")
        sampled = draw_samples(server.endpoint)
        said[arm.label] = sampled, ask_with_heads(server.endpoint, sample(load_suite(FREE_TEXT)))
    return said


@pytest.fixture(scope="module")
def drawn(heard: Mapping[str, tuple[Sampled, Sequence[Greedy]]]) -> Mapping[str, Sampled]:
    """Sampled answers by arm."""
    return {arm: sampled for arm, (sampled, _) in heard.items()}


@pytest.fixture(scope="module")
def greedy(heard: Mapping[str, tuple[Sampled, Sequence[Greedy]]]) -> Mapping[str, Sequence[Greedy]]:
    """Greedy answers with distributions, by arm."""
    return {arm: said for arm, (_, said) in heard.items()}


def test_drafts_were_accepted_and_rejected_while_sampling(
    drawn: Mapping[str, Sampled], candidates: tuple[Arm, ...]
) -> None:
    """Engagement: accepted drafts, replacements and bonus tokens all went into what is compared."""
    seen = drawn[candidates[0].label]
    assert 0 < seen.accepted < seen.drafted, (seen.accepted, seen.drafted)


def test_speculation_leaves_the_distribution_of_tokens(
    drawn: Mapping[str, Sampled],
    target: Arm,
    candidates: tuple[Arm, ...],
    judgement: Judgement,
    evidence: Evidence,
    request: pytest.FixtureRequest,
) -> None:
    """A shift of 5 % would be seen; the same distribution gives a false alarm once in a million runs of the suite."""
    candidate, known = candidates[0].label, known_deviation(request.node)
    for arm, deviation in ((target.label, ""), (candidate, known)):
        for prompt, answers in drawn[arm].answers.items():
            evidence.append("sample", Sample(arm, prompt, answers, deviation).to_row())
    judgement.settle(judge_sampling(drawn[target.label].answers, drawn[candidate].answers, candidate))


def test_greedy_ties_go_to_the_lowest_id(
    greedy: Mapping[str, Sequence[Greedy]], judgement: Judgement
) -> None:
    """Where two tokens are exactly equal, plain rows, verify rows and bonus rows have to choose the same one."""
    judgement.settle(
        judge_tie_rule([t for g in said for t in g.token_ids], [h for g in said for h in g.heads], label)
        for label, said in greedy.items()
    )
