"""Log-probabilities under speculation: each id's own row, as the target model says it without drafts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

BOUND_NATS = 4 * 0.125
"""bf16 logits between 16 and 32 are 0.125 apart. Two ways of computing one log-probability may differ by one spacing
for the rounding of the logit and one for that of the hidden state, and the same in the normaliser. Seen between prefill
and decode on target-only: up to 0.19; with drafts: up to 0.31. The row beside differs by many nats."""
TOP = 5


def teacher_forced(caller: Caller, prompt_ids: list[int], answer: list[int]) -> list[dict[int, float]]:
    """For each answer id the best log-probabilities after the ids before it, from one prefill without drafts."""
    reply = caller.complete({"prompt": prompt_ids + answer, "max_tokens": 1, "prompt_logprobs": TOP})
    assert reply.status == 200, reply.message
    rows = reply.body["choices"][0]["prompt_logprobs"]
    assert len(rows) == len(prompt_ids) + len(answer)
    assert rows[0] is None, "nothing comes before the first id"
    return [{int(i): float(e["logprob"]) for i, e in row.items()} for row in rows[len(prompt_ids) :]]


def answered(caller: Caller, prompt_ids: list[int], count: int, **extra: Any) -> dict[str, Any]:
    """One completion with the best `TOP` log-probabilities of each id."""
    body = {"prompt": prompt_ids, "max_tokens": count, "logprobs": TOP, "return_tokens_as_token_ids": True}
    reply = caller.complete(body | extra)
    assert reply.status == 200, reply.message
    choice: dict[str, Any] = reply.body["choices"][0]
    return choice


@pytest.mark.parametrize("kind", ["sort", "copy"])
def test_each_id_has_the_log_probabilities_of_its_own_row(caller: Caller, kind: str) -> None:
    """Rows of accepted drafts, of replacements and of bonus ids: what a prefill of the same ids says.

    A row that is off by one is off by many nats. The prefill is the null arm, too: on target-only the same
    comparison shows how far prefill and decode differ by themselves.
    """
    prompt = caller.canary(kind)
    assert prompt.answer_ids is not None
    ids = list(caller.prompt_ids(prompt))
    before = caller.accepted()
    choice = answered(caller, ids, len(prompt.answer_ids))
    assert (caller.accepted() > before) == caller.speculates
    assert tuple(choice["token_ids"]) == prompt.answer_ids, (
        "asking for log-probabilities must not change the answer"
    )
    heard = choice["logprobs"]
    assert heard["tokens"] == [f"token_id:{i}" for i in prompt.answer_ids]
    oracle = teacher_forced(caller, ids, list(prompt.answer_ids))
    worst = 0.0
    for place, (token_id, row) in enumerate(zip(prompt.answer_ids, oracle, strict=True)):
        top = {int(k.removeprefix("token_id:")): v for k, v in heard["top_logprobs"][place].items()}
        assert max(top, key=lambda i: top[i]) == token_id, f"place {place}"
        assert top[token_id] == heard["token_logprobs"][place]
        shared = set(top) & set(row)
        assert token_id in shared, f"place {place}"
        worst = max(worst, *(abs(top[i] - row[i]) for i in shared))
    print(f"{caller.arm.label} {kind}: largest difference {worst:.4f} nats")
    assert worst <= BOUND_NATS, f"largest difference {worst:.4f} nats over {len(oracle)} places"


def test_chat_gives_one_entry_for_each_id(caller: Caller) -> None:
    """Chat's own form: as many entries as ids, each the best of its own list, texts that add up to the answer."""
    prompt = caller.canary("json")
    assert prompt.answer_ids is not None
    reply = caller.post(
        "/v1/chat/completions",
        {
            "messages": prompt.messages,
            "max_tokens": prompt.max_tokens,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 3,
        },
    )
    assert reply.status == 200, reply.message
    choice = reply.body["choices"][0]
    entries = choice["logprobs"]["content"]
    assert choice["message"]["content"] == prompt.expect
    assert len(entries) == len(prompt.answer_ids) == reply.body["usage"]["completion_tokens"]
    said = b"".join(bytes(e["bytes"]) for e in entries[:-1])
    assert said.decode() == prompt.expect
    for entry in entries:
        best = max(entry["top_logprobs"], key=lambda e: e["logprob"])
        assert (best["token"], best["logprob"]) == (entry["token"], entry["logprob"])
        assert math.isfinite(entry["logprob"])
        assert entry["logprob"] <= 0


def test_log_probabilities_of_a_prompt_are_those_of_its_continuation(caller: Caller) -> None:
    """`prompt_logprobs` covers every prompt id but the first, and ranks the right answer's ids first."""
    prompt = caller.canary("add")
    assert prompt.answer_ids is not None
    rows = teacher_forced(caller, list(caller.prompt_ids(prompt)), list(prompt.answer_ids))
    assert [max(row, key=lambda i, row=row: row[i]) for row in rows] == list(prompt.answer_ids)  # type: ignore[misc]


def test_asking_for_too_many_log_probabilities_is_refused(caller: Caller) -> None:
    """Beyond the server's own maximum: 400 with a message."""
    prompt = caller.canary("add")
    reply = caller.complete({"prompt": list(caller.prompt_ids(prompt)), "max_tokens": 1, "logprobs": 10_000})
    assert (reply.status, bool(reply.message)) == (400, True), reply.text[:300]
