"""Where an answer ends: caps, the end of turn and the context limit, none of which a draft may overshoot."""

from __future__ import annotations

import pytest

from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

KINDS = ("phrase", "copy", "add", "json", "sort", "code")


def test_a_cap_gives_exactly_that_many_ids(caller: Caller) -> None:
    """Every cap up to two full steps of drafts: the target's first ids, not one more, and usage says the same.

    A step delivers up to depth + 1 ids; who trims it late delivers, or bills, more than was asked for.
    """
    prompt = caller.canary("copy")
    assert prompt.answer_ids is not None
    before = caller.accepted()
    for cap in range(1, 2 * caller.depth + 4):
        said = caller.chat(prompt, max_tokens=cap)
        caller.expect.answer(
            f"for {prompt.id} with max_tokens {cap}",
            said,
            ids=prompt.answer_ids[:cap],
            finish_reason="length",
            completion_tokens=cap,
        )
    drafted = caller.accepted() > before
    caller.expect.engaged(f"for {prompt.id} with caps", drafted, speculates=caller.speculates)


def test_a_cap_at_the_end_of_turn_is_a_stop_and_one_less_is_a_length(caller: Caller) -> None:
    """The end-of-turn id counts: with room for it the answer stopped by itself, without it it was cut."""
    for kind in KINDS:
        prompt = caller.canary(kind)
        assert prompt.answer_ids is not None
        length = len(prompt.answer_ids)
        for cap, reason in ((length, "stop"), (length - 1, "length")):
            said = caller.chat(prompt, max_tokens=cap, stream=False)
            asked = f"for {prompt.id} of {length} ids with max_tokens {cap}, not streamed"
            caller.expect.answer(asked, said, ids=prompt.answer_ids[:cap], finish_reason=reason)


def test_nothing_follows_an_end_of_turn_inside_a_draft(caller: Caller) -> None:
    """Answers of many lengths, so that the end of turn falls on every place of a step: the ids end with it."""
    prompts = [caller.canary(kind) for kind in KINDS]
    prompts += [p for kind in ("sort", "json") for p in caller.parity_prompts(kind)]
    for prompt in prompts:
        assert prompt.answer_ids is not None
        caller.expect.answer(
            f"for {prompt.id}",
            caller.chat(prompt),
            ids=prompt.answer_ids,
            finish_reason="stop",
            text=prompt.expect,
            completion_tokens=len(prompt.answer_ids),
        )


def test_ignoring_the_end_of_turn_goes_on_to_the_cap(caller: Caller) -> None:
    """`ignore_eos`: the answer, its end of turn, and then more, up to exactly the cap."""
    for kind in ("phrase", "sort"):
        prompt = caller.canary(kind)
        assert prompt.answer_ids is not None
        length = len(prompt.answer_ids)
        for extra in range(1, caller.depth + 3):
            said = caller.chat(prompt, max_tokens=length + extra, ignore_eos=True)
            asked = f"for {prompt.id} with ignore_eos, {extra} ids beyond the answer"
            caller.expect.answer(asked, said, finish_reason="length", completion_tokens=length + extra)
            caller.expect.equal(asked, "ids of the answer", prompt.answer_ids, said.token_ids[:length])
            caller.expect.equal(asked, "as many ids as", length + extra, len(said.token_ids))


def test_no_end_of_turn_comes_before_the_minimum(caller: Caller) -> None:
    """`min_tokens`: the end of turn is suppressed in drafted rows too, for exactly that many ids."""
    prompt = caller.canary("phrase")
    assert prompt.answer_ids is not None
    *words, end = prompt.answer_ids
    for minimum in range(1, len(prompt.answer_ids) + caller.depth + 2):
        cap = len(prompt.answer_ids) + 12
        said = caller.chat(prompt, max_tokens=cap, min_tokens=minimum)
        asked = f"for {prompt.id} with min_tokens {minimum}"
        caller.expect.answer(asked, said, completion_tokens=len(said.token_ids))
        if minimum < len(prompt.answer_ids):
            caller.expect.answer(asked, said, ids=prompt.answer_ids)
        else:
            caller.expect.equal(asked, "the answer's words", words, list(said.token_ids[: len(words)]))
            early = end in said.token_ids[:minimum]
            caller.expect.that(not early, asked, f"no {end} in the first {minimum} ids", said.token_ids)
            within = minimum <= len(said.token_ids) <= cap
            caller.expect.that(within, asked, f"{minimum} to {cap} ids", f"{len(said.token_ids)} ids")


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_an_answer_ends_exactly_at_the_context_limit(caller: Caller) -> None:
    """Room for one id, for a step, and for more: the last position is used, none beyond.

    With drafts: `tests/demonstration/test_engine_survival.py`.
    """
    limit = caller.context_limit()
    for room in (1, caller.depth, caller.depth + 1, 2 * caller.depth + 3):
        asked = f"to fill its context of {limit} ids, with room for {room}"
        filled = caller.fill_to_the_limit(room)
        caller.expect.equal(asked, "ids, reason, completion and total", (room, "length", room, limit), filled)


def test_a_prompt_that_fills_the_context_or_goes_beyond_is_refused(caller: Caller) -> None:
    """No room for an answer, and one id too many: 400 with words, which name the limit that was passed."""
    limit = caller.context_limit()
    full = caller.complete({"prompt": caller.filler(limit), "max_tokens": 1})
    caller.expect.refusal(f"to answer a prompt of {limit} ids, its whole context", full, status=400)
    for beyond in (1, 2, 1000):
        reply = caller.complete({"prompt": caller.filler(limit + beyond), "max_tokens": 1})
        asked = f"to answer a prompt {beyond} ids longer than its context"
        caller.expect.refusal(asked, reply, status=400, names=str(limit))
    prompt = caller.canary("add")
    caller.expect.answer(f"for {prompt.id} after refusals", caller.chat(prompt), text=prompt.expect)
