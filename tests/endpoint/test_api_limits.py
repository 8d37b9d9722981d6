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
        assert (said.error, said.token_ids) == (None, prompt.answer_ids[:cap]), f"max_tokens {cap}"
        assert (said.finish_reason, said.usage.completion_tokens) == ("length", cap)
    assert (caller.accepted() > before) == caller.speculates, (
        "drafts have to be accepted for this to say anything"
    )


def test_a_cap_at_the_end_of_turn_is_a_stop_and_one_less_is_a_length(caller: Caller) -> None:
    """The end-of-turn id counts: with room for it the answer stopped by itself, without it it was cut."""
    for kind in KINDS:
        prompt = caller.canary(kind)
        assert prompt.answer_ids is not None
        length = len(prompt.answer_ids)
        for cap, reason in ((length, "stop"), (length - 1, "length")):
            said = caller.chat(prompt, max_tokens=cap, stream=False)
            assert (said.error, said.token_ids) == (None, prompt.answer_ids[:cap]), (
                f"{kind}, max_tokens {cap}"
            )
            assert said.finish_reason == reason, f"{kind}, max_tokens {cap}"


def test_nothing_follows_an_end_of_turn_inside_a_draft(caller: Caller) -> None:
    """Answers of many lengths, so that the end of turn falls on every place of a step: the ids end with it."""
    prompts = [caller.canary(kind) for kind in KINDS]
    prompts += [p for kind in ("sort", "json") for p in caller.parity_prompts(kind)]
    for prompt in prompts:
        said = caller.chat(prompt)
        assert (said.error, said.token_ids) == (None, prompt.answer_ids), prompt.id
        assert (said.finish_reason, said.content) == ("stop", prompt.expect), prompt.id
        assert said.usage.completion_tokens == len(said.token_ids), prompt.id


def test_ignoring_the_end_of_turn_goes_on_to_the_cap(caller: Caller) -> None:
    """`ignore_eos`: the answer, its end of turn, and then more, up to exactly the cap."""
    for kind in ("phrase", "sort"):
        prompt = caller.canary(kind)
        assert prompt.answer_ids is not None
        length = len(prompt.answer_ids)
        for extra in range(1, caller.depth + 3):
            said = caller.chat(prompt, max_tokens=length + extra, ignore_eos=True)
            assert said.error is None
            assert said.token_ids[:length] == prompt.answer_ids, f"{kind}, {extra} beyond"
            assert (len(said.token_ids), said.finish_reason) == (length + extra, "length")
            assert said.usage.completion_tokens == length + extra


def test_no_end_of_turn_comes_before_the_minimum(caller: Caller) -> None:
    """`min_tokens`: the end of turn is suppressed in drafted rows too, for exactly that many ids."""
    prompt = caller.canary("phrase")
    assert prompt.answer_ids is not None
    *words, end = prompt.answer_ids
    for minimum in range(1, len(prompt.answer_ids) + caller.depth + 2):
        cap = len(prompt.answer_ids) + 12
        said = caller.chat(prompt, max_tokens=cap, min_tokens=minimum)
        assert said.error is None, said.error
        if minimum < len(prompt.answer_ids):
            assert said.token_ids == prompt.answer_ids, f"min_tokens {minimum}"
        else:
            assert list(said.token_ids[: len(words)]) == words, f"min_tokens {minimum}"
            assert end not in said.token_ids[:minimum], f"min_tokens {minimum}: {said.token_ids}"
            assert minimum <= len(said.token_ids) <= cap
        assert said.usage.completion_tokens == len(said.token_ids)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_an_answer_ends_exactly_at_the_context_limit(caller: Caller) -> None:
    """Room for one id, for a step, and for more: the last position is used, none beyond.

    With drafts: `tests/demonstration/test_engine_survival.py`.
    """
    limit = caller.context_limit()
    for room in (1, caller.depth, caller.depth + 1, 2 * caller.depth + 3):
        assert caller.fill_to_the_limit(room) == (room, "length", room, limit)


def test_a_prompt_that_fills_the_context_or_goes_beyond_is_refused(caller: Caller) -> None:
    """No room for an answer, and one id too many: 400 with words, which name the limit that was passed."""
    limit = caller.context_limit()
    full = caller.complete({"prompt": caller.filler(limit), "max_tokens": 1})
    assert (full.status, bool(full.message)) == (400, True), f"{full.status}: {full.text[:300]}"
    for beyond in (1, 2, 1000):
        reply = caller.complete({"prompt": caller.filler(limit + beyond), "max_tokens": 1})
        assert reply.status == 400, f"{reply.status}: {reply.text[:300]}"
        assert str(limit) in reply.message, f"the limit of {limit} is not named: {reply.message}"
    prompt = caller.canary("add")
    assert caller.chat(prompt).content == prompt.expect
