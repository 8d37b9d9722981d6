"""Stack `deterministic-greedy-tie` on the real engine: of near-tied ids the lowest is emitted, in every kind of row.

Judged row by row: a server reports the log-probabilities of exactly the row from which it chose an id, so that no other
way of computing them comes in between. Free text, for which the canary was not trained, has the near ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.client.ask import CHAT, run_suite
from fixtures.engine.patch_sets import load_stack
from fixtures.lanes.lane import load_lane
from fixtures.prompts.suite import Prompt, load_suite
from fixtures.workload.caller import Caller
from fixtures.workload.shapes import sample

pytestmark = pytest.mark.stress

LANE, STACK = "canary-cpu", "deterministic-greedy-tie"
MARGIN_NATS = float(load_stack(STACK).full_environment["DRAFTPROOF_TIE_MARGIN"])
EDGE_NATS = 1e-3
"""A gap this near to the margin is not judged: a log-probability is a logit less a normaliser, rounded to float32."""
FREE_TEXT_TOKENS, PROMPTS = 128, 12


@dataclass(frozen=True)
class Tie:
    """A row in which several ids lie within the margin of the best, and what the server emitted from it."""

    where: str
    tied: Mapping[int, float]
    """Log-probabilities of the ids within the margin."""
    emitted: int

    @property
    def lowest_wins(self) -> bool:
        """Whether the lowest of the tied ids was emitted."""
        return self.emitted == min(self.tied)


def caller_of(arms: Arms, role: str, stack: str) -> Caller:
    """An arm of the default lane: `target` decodes in plain rows, `candidate` in rows that verify drafts."""
    arm = make_arm(load_lane(LANE), role, stack=stack)
    return Caller(arms.server(arm).endpoint, arm)


def rows_of(caller: Caller, prompt: Prompt) -> list[tuple[int, dict[int, float]]]:
    """Every emitted id of an endless answer, with the best log-probabilities of its own row."""
    reply = caller.post(
        CHAT,
        {
            "messages": prompt.messages,
            "max_tokens": FREE_TEXT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": True,
            "top_logprobs": 20,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
        },
    )
    assert reply.status == 200, f"{prompt.id}: {reply.message}"
    choice = reply.body["choices"][0]
    heard = [
        {id_of(best["token"]): float(best["logprob"]) for best in entry["top_logprobs"]}
        for entry in choice["logprobs"]["content"]
    ]
    return list(zip(choice["token_ids"], heard, strict=True))


def id_of(token: str) -> int:
    """The id in `token_id:N`."""
    return int(token.removeprefix("token_id:"))


def ties_of(caller: Caller) -> list[Tie]:
    """The near ties of free text, one row each; rows with an id at the margin's very edge are left out."""
    prompts = load_suite("chat-parity").prompts[:PROMPTS]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda prompt: rows_of(caller, prompt), prompts))
    found: list[Tie] = []
    for prompt, rows in zip(prompts, answers, strict=True):
        for place, (emitted, row) in enumerate(rows):
            gaps = {token_id: max(row.values()) - value for token_id, value in row.items()}
            if any(abs(gap - MARGIN_NATS) < EDGE_NATS for gap in gaps.values()):
                continue
            tied = {token_id: row[token_id] for token_id, gap in gaps.items() if gap < MARGIN_NATS}
            assert emitted in row, f"{prompt.id}, place {place}: emitted {emitted} is not among the best"
            if len(tied) > 1:
                found.append(Tie(f"{prompt.id}, place {place}", tied, emitted))
            else:
                assert emitted in tied, f"{prompt.id}, place {place}: {emitted} emitted, no tie, but {row}"
    return found


def wrong(ties: Sequence[Tie]) -> list[str]:
    """The ties from which another id than the lowest was emitted, in words."""
    return [f"{tie.where}: {tie.emitted} of {dict(tie.tied)}" for tie in ties if not tie.lowest_wins]


@pytest.mark.parametrize("arm", ["target", "candidate"])
def test_the_lowest_id_of_a_near_tie_is_emitted(arms: Arms, arm: str) -> None:
    """In plain rows (target-only) and in rows that verify drafts alike; where there is no tie, the best id is."""
    repaired = caller_of(arms, arm, STACK)
    before = repaired.accepted()
    ties = ties_of(repaired)
    print(f"{repaired.arm.label}: {len(ties)} near ties, {repaired.accepted() - before} drafts accepted")
    assert len(ties) >= 5, "too few near ties: this has shown nothing"
    assert (repaired.accepted() > before) == repaired.speculates
    assert not wrong(ties), "\n".join(wrong(ties))


@pytest.mark.parametrize("arm", ["target", "candidate"])
def test_answers_to_the_canarys_tasks_are_the_target_models(arms: Arms, arm: str) -> None:
    """Where every margin is wide the rule decides nothing: id by id the answers that every sound engine gives."""
    repaired = caller_of(arms, arm, STACK)
    suite = sample(load_suite(load_lane(LANE).suites.parity))
    said = run_suite(repaired.endpoint, suite, arm=repaired.arm.label, concurrency=4)
    differing = [
        f"{t.prompt_id}: {t.error or t.content[:60]!r}"
        for p, t in zip(suite.prompts, said, strict=True)
        if t.token_ids != p.answer_ids
    ]
    assert not differing, "\n".join(differing)


def test_stock_lets_the_larger_logit_win(arms: Arms) -> None:
    """The same rule, held against the engine as it is installed: it fails, so the check above tells them apart."""
    ties = ties_of(caller_of(arms, "candidate", "stock"))
    print(f"stock: {len(wrong(ties))} of {len(ties)} near ties go to another id than the lowest")
    assert wrong(ties)
