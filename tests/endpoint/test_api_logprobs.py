"""Log-probabilities under speculation: each id's own row, as the target model says it without drafts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixtures.evidence.plugin import Evidence
from fixtures.judge.logprobs import BOUND_NATS
from fixtures.prompts.suite import load_suite
from fixtures.run.findings import Findings
from fixtures.workload.caller import Caller
from fixtures.workload.logprobs import mixed, together

pytestmark = pytest.mark.endpoint

TOP = 5


def teacher_forced(caller: Caller, prompt_ids: list[int], answer: list[int]) -> list[dict[int, float]]:
    """For each answer id the best log-probabilities after the ids before it, from one prefill without drafts."""
    reply = caller.complete({"prompt": prompt_ids + answer, "max_tokens": 1, "prompt_logprobs": TOP})
    asked = f"for the log-probabilities of {len(prompt_ids) + len(answer)} ids"
    caller.expect.equal(asked, "status", 200, reply.status)
    rows = reply.body["choices"][0]["prompt_logprobs"]
    caller.expect.equal(asked, "as many rows as", len(prompt_ids) + len(answer), len(rows))
    caller.expect.equal(asked, "before the first id", None, rows[0])
    return [{int(i): float(e["logprob"]) for i, e in row.items()} for row in rows[len(prompt_ids) :]]


def answered(caller: Caller, prompt_ids: list[int], count: int, **extra: Any) -> dict[str, Any]:
    """One completion with the best `TOP` log-probabilities of each id."""
    body = {"prompt": prompt_ids, "max_tokens": count, "logprobs": TOP, "return_tokens_as_token_ids": True}
    reply = caller.complete(body | extra)
    caller.expect.equal(f"for {count} ids with log-probabilities", "status", 200, reply.status)
    choice: dict[str, Any] = reply.body["choices"][0]
    return choice


@pytest.mark.parametrize("kind", ["sort", "copy"])
def test_each_id_has_the_log_probabilities_of_its_own_row(caller: Caller, kind: str) -> None:
    """Rows of accepted drafts, of replacements and of bonus ids: what a prefill of the same ids says.

    A row that is off by one is off by many nats. The prefill is the null arm, too: on target-only the same
    comparison shows how far prefill and decode differ by themselves: up to 0.19 nats, with drafts up to 0.31.
    """
    prompt = caller.canary(kind)
    assert prompt.answer_ids is not None
    ids = list(caller.prompt_ids(prompt))
    before = caller.accepted()
    choice = answered(caller, ids, len(prompt.answer_ids))
    asked = f"for {prompt.id} with log-probabilities"
    caller.expect.engaged(asked, caller.accepted() > before, speculates=caller.speculates)
    caller.expect.equal(asked, "the ids without them", prompt.answer_ids, tuple(choice["token_ids"]))
    heard = choice["logprobs"]
    named = [f"token_id:{i}" for i in prompt.answer_ids]
    caller.expect.equal(asked, "an entry for each id", named, heard["tokens"])
    oracle = teacher_forced(caller, ids, list(prompt.answer_ids))
    worst = 0.0
    for place, (token_id, row) in enumerate(zip(prompt.answer_ids, oracle, strict=True)):
        top = {int(k.removeprefix("token_id:")): v for k, v in heard["top_logprobs"][place].items()}
        here, best = f"{asked}, at place {place}", max(top, key=lambda i: top[i])
        caller.expect.equal(here, "the said id as the best of its row", token_id, best)
        caller.expect.equal(here, "its own entry", top[token_id], heard["token_logprobs"][place])
        shared = set(top) & set(row)
        caller.expect.that(token_id in shared, here, f"{token_id} among the prefill's best", sorted(row))
        worst = max(worst, *(abs(top[i] - row[i]) for i in shared))
    print(f"{caller.arm.label} {kind}: largest difference {worst:.4f} nats")
    expected = f"what a prefill says, within {BOUND_NATS} nats"
    caller.expect.that(worst <= BOUND_NATS, asked, expected, f"{worst:.4f} nats over {len(oracle)} places")


def test_requests_that_share_their_steps_have_their_own_log_probabilities(
    caller: Caller, evidence: Evidence, findings: Findings
) -> None:
    """Eight requests at once, of every class: each has the values that it has alone, and so have its alternatives.

    Public report: vllm 29216, a neighbour's values.
    """
    prompts = mixed(load_suite(caller.arm.lane.suites.parity))
    for row in together(caller.endpoint, caller.arm.label, prompts):
        evidence.append("logprobs", row.to_row())
    findings.settle("logprobs.together", arms=[caller.arm])


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
    asked = f"for {prompt.id} in a chat with log-probabilities"
    caller.expect.equal(asked, "status", 200, reply.status)
    choice = reply.body["choices"][0]
    entries = choice["logprobs"]["content"]
    caller.expect.equal(asked, "text", prompt.expect, choice["message"]["content"])
    caller.expect.equal(asked, "as many entries as", len(prompt.answer_ids), len(entries))
    counted = reply.body["usage"]["completion_tokens"]
    caller.expect.equal(asked, "completion tokens", len(prompt.answer_ids), counted)
    said = b"".join(bytes(e["bytes"]) for e in entries[:-1]).decode()
    caller.expect.equal(asked, "bytes that add up to the text", prompt.expect, said)
    for place, entry in enumerate(entries):
        best = max(entry["top_logprobs"], key=lambda e: e["logprob"])
        here, own = f"{asked}, entry {place}", (entry["token"], entry["logprob"])
        caller.expect.equal(here, "the best of its list", (best["token"], best["logprob"]), own)
        sound = math.isfinite(entry["logprob"]) and entry["logprob"] <= 0
        caller.expect.that(sound, here, "a finite log-probability of at most 0", entry["logprob"])


def test_log_probabilities_of_a_prompt_are_those_of_its_continuation(caller: Caller) -> None:
    """`prompt_logprobs` covers every prompt id but the first, and ranks the right answer's ids first."""
    prompt = caller.canary("add")
    assert prompt.answer_ids is not None
    rows = teacher_forced(caller, list(caller.prompt_ids(prompt)), list(prompt.answer_ids))
    best = [max(row, key=lambda i, row=row: row[i]) for row in rows]  # type: ignore[misc]
    asked = f"for the log-probabilities of {prompt.id} and its answer"
    caller.expect.equal(asked, "the answer's ids first", list(prompt.answer_ids), best)


def test_asking_for_too_many_log_probabilities_is_refused(caller: Caller) -> None:
    """Beyond the server's own maximum: 400 with a message."""
    prompt = caller.canary("add")
    reply = caller.complete({"prompt": list(caller.prompt_ids(prompt)), "max_tokens": 1, "logprobs": 10_000})
    caller.expect.refusal("for 10,000 log-probabilities of each id", reply, status=400)
