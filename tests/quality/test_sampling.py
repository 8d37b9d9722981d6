"""Temperature above 0: the tokens of a speculating server have the distribution of target-only's."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from fixtures.arms.arm import Arm
from fixtures.arms.servers import Arms
from fixtures.evidence.plugin import Evidence
from fixtures.judge.counters import CounterSpan
from fixtures.judge.rows import Purpose
from fixtures.judge.sampling import Sample
from fixtures.prompts.suite import load_suite
from fixtures.run.deviations import known_deviation
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings
from fixtures.workload.sampling import PROMPTS, Sampled, ask_with_heads, draw_samples
from fixtures.workload.shapes import sample

log = logging.getLogger(__name__)

pytestmark = pytest.mark.sampling

FREE_TEXT = "chat-parity"
"""Prompts that a canary was not trained for; in contexts made of their ids its logits tie now and then."""


@pytest.fixture(scope="module")
def drawn(
    target: Arm, candidates: tuple[Arm, ...], arms: Arms, recordings: Recordings, evidence: Evidence
) -> Mapping[str, Sampled]:
    """Sampled answers by arm; greedy answers to nonsense, with the head of the distribution at each place, beside."""
    said = {}
    for arm in (candidates[0], target):
        server = arms.server(arm)
        log.info(f"{arm.label}: sampling {len(PROMPTS)} prompts")
        said[arm.label] = sampled = draw_samples(server.endpoint)
        if arm.spec.speculation is not None:
            span = CounterSpan(arm.label, sampled.before, sampled.after, Purpose.SAMPLE.value)
            evidence.append("counters", span.to_row())
        for greedy in ask_with_heads(server.endpoint, sample(load_suite(FREE_TEXT)), arm.label):
            evidence.append("greedy", greedy.to_row())
    return said


@pytest.mark.usefixtures("drawn")
def test_drafts_were_accepted_and_rejected_while_sampling(
    candidates: tuple[Arm, ...], findings: Findings
) -> None:
    """Engagement: accepted drafts, replacements and bonus tokens all went into what is compared."""
    findings.settle("sampling.engaged", arms=candidates)


def test_speculation_leaves_the_distribution_of_tokens(
    drawn: Mapping[str, Sampled],
    candidates: tuple[Arm, ...],
    evidence: Evidence,
    findings: Findings,
    request: pytest.FixtureRequest,
) -> None:
    """A shift of 5 % would be seen; the same distribution gives a false alarm once in a million runs of the suite."""
    known = {candidates[0].label: known_deviation(request.node)}
    for arm, sampled in drawn.items():
        for prompt, answers in sampled.answers.items():
            evidence.append("sample", Sample(arm, prompt, answers, known.get(arm, "")).to_row())
    findings.settle(
        "sampling.distribution", "sampling.deviation", "sampling.stale_deviation", arms=candidates
    )


@pytest.mark.usefixtures("drawn")
def test_greedy_ties_go_to_the_lowest_id(findings: Findings) -> None:
    """Where two tokens are exactly equal, plain rows, verify rows and bonus rows have to choose the same one."""
    findings.settle("sampling.tie_rule")
