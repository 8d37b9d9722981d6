"""Penalties: charged for what the answer has said so far, in drafted rows too, neither twice nor a row late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

TOP = 20
BOUND_NATS = 0.5
"""As in `test_api_logprobs.py`: two ways of computing one log-probability."""
PENALTIES = {"frequency": (0.0, 2.0), "both": (2.0, 2.0)}
"""Presence and frequency; 2 is the most that the API takes. Presence alone sways no answer of a model that is sure."""


def rows_after(caller: Caller, prompt: Sequence[int], answer: Sequence[int]) -> list[Mapping[int, float]]:
    """For each answer id the best log-probabilities of its place, from one prefill: no drafts, no penalties."""
    reply = caller.complete({"prompt": [*prompt, *answer], "max_tokens": 1, "prompt_logprobs": TOP})
    caller.expect.equal("for the log-probabilities of a prompt", "status", 200, reply.status)
    rows = reply.body["choices"][0]["prompt_logprobs"][len(prompt) :]
    return [{int(i): float(e["logprob"]) for i, e in row.items()} for row in rows]


@pytest.mark.parametrize("name", PENALTIES)
def test_each_id_is_the_best_after_the_penalties_for_what_was_said_before(caller: Caller, name: str) -> None:
    """Place by place: the model's own log-probabilities, less the penalties as defined, rank the said id first.

    A draft's penalties have to count the drafts before it, as if they had been said. Who charges too late, or twice,
    says another id. Where the best of the known log-probabilities could be beaten by an unknown one, nothing is said.
    """
    presence, frequency = PENALTIES[name]
    # Two digits take turns in this answer: charged often enough, the likelier one gives way to the other.
    prompt = max(caller.parity_prompts("parity"), key=lambda p: len(p.answer_ids or ()))
    ids = list(caller.prompt_ids(prompt))
    before = caller.accepted()
    said = caller.continuation(ids, 80, presence_penalty=presence, frequency_penalty=frequency)
    asked = f"for {prompt.id} with {name} penalties"
    caller.expect.answer(asked, said)
    caller.expect.engaged(asked, caller.accepted() > before, speculates=caller.speculates)
    counts: Counter[int] = Counter()
    decided = swayed = 0
    wrong = []
    for place, row in enumerate(rows_after(caller, ids, said.token_ids)):
        scores = {i: p - presence * (counts[i] > 0) - frequency * counts[i] for i, p in row.items()}
        chosen, best = said.token_ids[place], max(scores, key=lambda i, s=scores: s[i])  # type: ignore[misc]
        if scores[best] > min(row.values()) + BOUND_NATS:
            decided += 1
            swayed += best != max(row, key=lambda i, r=row: r[i])  # type: ignore[misc]
            behind = scores[best] - scores.get(chosen, min(row.values()))
            if behind > BOUND_NATS:
                wrong.append(f"place {place}: said {chosen}, {behind:.2f} nats behind {best}")
        counts[chosen] += 1
    print(f"{caller.arm.label} {name}: {decided} of {len(said.token_ids)} places decided, {swayed} swayed")
    caller.expect.none_wrong(asked, "the best id after the penalties at each place", wrong)
    assert decided >= 20
    assert swayed >= 5, f"the penalties have to change something: {swayed} places"


def test_a_repetition_penalty_counts_the_drafts_before_each_draft(caller: Caller) -> None:
    """It is charged for prompt and answer alike, so that one id at a time, without any draft, says the same.

    A few ids of each answer: a strong penalty leads to text where the model is not sure of anything for long.
    """
    swayed = 0
    for kind in ("copy", "sort", "json", "phrase"):
        prompt = caller.canary(kind)
        assert prompt.answer_ids is not None
        ids, count = list(caller.prompt_ids(prompt)), caller.depth + 2
        said = caller.continuation(ids, count, ignore_eos=True, repetition_penalty=2)
        alone = caller.one_at_a_time(ids, count, ignore_eos=True, repetition_penalty=2)
        caller.expect.answer(f"for {prompt.id} with a repetition penalty", said, ids=alone)
        swayed += said.token_ids != prompt.answer_ids[:count]
    assert swayed, "the penalty has to change something"
