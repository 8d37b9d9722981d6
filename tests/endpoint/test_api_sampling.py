"""Sampling: seeds repeat, sampled requests harm no greedy one, what is forbidden is not said, in drafted rows too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fixtures.client.ask import CHAT
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

HOT: dict[str, Any] = {"temperature": 2, "ignore_eos": True, "max_tokens": 32}
"""As hot as the API allows. The canary is sure of its answers even so, but not of what comes after them."""


def test_a_seed_repeats_its_text_and_another_seed_says_another(caller: Caller) -> None:
    """Three times the same request: one text. Four seeds: not one text for all of them."""
    prompt = caller.canary("phrase")
    texts = {}
    for seed in range(4):
        said = [caller.chat(prompt, seed=seed, **HOT) for _ in range(3)]
        for t in said:
            caller.expect.answer(f"for {prompt.id}, sampled with seed {seed}", t)
        texts[seed] = {t.token_ids for t in said}
    unsteady = {seed: len(said) for seed, said in texts.items() if len(said) > 1}
    asked = f"for {prompt.id} three times with each of four seeds"
    steady = "no seeds that did not repeat their text (seed, texts)"
    caller.expect.none_wrong(asked, steady, unsteady)
    assert len(set.union(*texts.values())) > 1, "at this temperature every seed said the same"


def test_several_answers_to_one_prompt_come_in_order_and_repeat(caller: Caller) -> None:
    """`n`: each answer has its index, its ids and its end; usage counts all of them; the seed repeats all of them."""
    prompt = caller.canary("phrase")
    body = {"messages": prompt.messages, "return_token_ids": True, "seed": 5, "n": 3} | HOT
    answers, asked = [], f"for three answers to {prompt.id} with a seed, twice"
    for _ in range(2):
        reply = caller.post(CHAT, body)
        caller.expect.equal(asked, "status", 200, reply.status)
        choices = reply.body["choices"]
        caller.expect.equal(asked, "indices", [0, 1, 2], [c["index"] for c in choices])
        lengths = [len(c["token_ids"]) for c in choices]
        caller.expect.equal(asked, "as many ids each as", [HOT["max_tokens"]] * 3, lengths)
        caller.expect.equal(asked, "reasons", {"length"}, {c["finish_reason"] for c in choices})
        counted = reply.body["usage"]["completion_tokens"]
        caller.expect.equal(asked, "completion tokens", 3 * HOT["max_tokens"], counted)
        answers.append([tuple(c["token_ids"]) for c in choices])
    assert len(set(answers[0])) > 1, "at this temperature all answers are the same"
    again = answers[0] == answers[1]
    caller.expect.that(again, asked, "the same", "the same seed gave other answers the second time")


def test_a_greedy_answer_is_not_touched_by_sampled_neighbours(caller: Caller) -> None:
    """One batch of sampled and greedy requests: the greedy answers are those that they are alone."""
    prompt = caller.canary("copy")
    mixed: list[dict[str, Any]] = [{}, {"temperature": 1, "seed": 1}] * 2
    wrong = []
    for _ in range(3):
        with ThreadPoolExecutor(len(mixed)) as pool:
            said = list(pool.map(lambda extra: caller.chat(prompt, **extra), mixed))
        for t, extra in zip(said, mixed, strict=True):
            caller.expect.answer(f"for {prompt.id} in a mixed batch, {extra or 'greedy'}", t)
        wrong += [t.content[:40] for t in said[::2] if t.token_ids != prompt.answer_ids]
    told = f"{len(wrong)} of 6 greedy answers beside sampled ones are wrong: {wrong}"
    caller.expect.that(not wrong, f"for {prompt.id} beside sampled requests", "the answers alone", told)


@pytest.mark.parametrize("extra", [{"top_p": 1e-6}, {"temperature": 0.01}], ids=["top-p", "temperature"])
def test_sampling_that_leaves_one_id_to_choose_gives_the_greedy_answer(
    caller: Caller, extra: dict[str, Any]
) -> None:
    """Whatever the seed. (top-k with drafts: `tests/demonstration/test_engine_survival.py`.)"""
    for kind in ("copy", "sort"):
        prompt = caller.canary(kind)
        said = caller.chat(prompt, seed=3, **{"temperature": 1, **extra})
        asked = f"for {prompt.id}, sampled with {extra}"
        caller.expect.answer(asked, said)
        told = f"another answer than the greedy one: {said.content[:60]!r}"
        caller.expect.that(said.token_ids == prompt.answer_ids, asked, "the greedy answer", told)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_bias_forbids_and_forces_an_id(caller: Caller) -> None:
    """`logit_bias` of -100: the answer goes another way exactly there; of +100: that id and nothing else."""
    prompt = caller.canary("copy")
    assert prompt.answer_ids is not None
    for place in (0, 3):
        unwanted = prompt.answer_ids[place]
        said = caller.chat(prompt, max_tokens=20, logit_bias={str(unwanted): -100})
        asked, first = f"for {prompt.id} without id {unwanted}", prompt.answer_ids.index(unwanted)
        caller.expect.answer(asked, said)
        caller.expect.that(unwanted not in said.token_ids, asked, f"no {unwanted}", said.token_ids)
        before = said.token_ids[:first]
        caller.expect.equal(asked, "the answer up to there", prompt.answer_ids[:first], before)
    wanted = prompt.answer_ids[5]
    said = caller.chat(prompt, max_tokens=6, logit_bias={str(wanted): 100})
    caller.expect.answer(f"for {prompt.id} with a bias for id {wanted}", said, ids=(wanted,) * 6)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_the_largest_min_p_and_the_smallest_top_k_give_the_greedy_answer(caller: Caller) -> None:
    """Both leave only the best id."""
    prompt = caller.canary("copy")
    for extra in ({"min_p": 1}, {"top_k": 1}):
        said = caller.chat(prompt, temperature=2, seed=3, **extra)
        caller.expect.answer(f"for {prompt.id}, sampled with {extra}", said, ids=prompt.answer_ids)


@pytest.mark.parametrize("arm", ["candidate"], indirect=True)
@pytest.mark.parametrize(
    "extra", [{"logit_bias": {"300": -100}}, {"min_p": 0.5, "temperature": 1}], ids=["logit-bias", "min-p"]
)
def test_what_is_not_supported_with_drafts_is_refused_in_words(caller: Caller, extra: dict[str, Any]) -> None:
    """This engine cannot do it in drafted rows: it says so, names the parameter, and answers the next request."""
    if not caller.speculates:
        pytest.skip("not offered: the lane does not draft")
    prompt = caller.canary("sort")
    reply = caller.post(CHAT, {"messages": prompt.messages, "max_tokens": 4, "temperature": 0} | extra)
    asked, name = f"for {prompt.id} with {extra}", next(iter(extra))
    caller.expect.refusal(asked, reply, status=400, names=name)
    streamed = caller.chat(prompt, **extra)
    named = streamed.error is not None and name in streamed.error
    caller.expect.that(named, f"{asked}, streamed", f"an error that names {name}", streamed.error)
    caller.expect.answer(f"for {prompt.id} after a refusal", caller.chat(prompt), ids=prompt.answer_ids)


def test_bad_words_are_not_said(caller: Caller) -> None:
    """A word of the right answer is forbidden: the answer goes another way exactly there, also inside a draft."""
    for kind, word in (("sort", "purple"), ("copy", "concert")):
        prompt = caller.canary(kind)
        assert prompt.expect is not None
        assert word in prompt.expect
        said = caller.chat(prompt, bad_words=[word])
        asked, common = f"for {prompt.id} without the word {word!r}", prompt.expect.index(word)
        caller.expect.answer(asked, said)
        caller.expect.that(word not in said.content, asked, "a text without it", said.content)
        before = said.content[: common - 1]
        caller.expect.equal(asked, "the answer up to there", prompt.expect[: common - 1], before)


def test_only_allowed_ids_are_said(caller: Caller) -> None:
    """All ids of the answer allowed: the answer. All but one: the same up to there, and never that one."""
    prompt = caller.canary("sort")
    assert prompt.answer_ids is not None
    answer = prompt.answer_ids
    same = caller.chat(prompt, allowed_token_ids=sorted(set(answer)))
    caller.expect.answer(f"for {prompt.id} with the ids of its answer allowed", same, ids=answer)
    for place in range(1, caller.depth + 4):
        without = sorted(set(answer) - {answer[place]})
        said = caller.chat(prompt, allowed_token_ids=without)
        first = answer.index(answer[place])
        asked = f"for {prompt.id} with all ids of its answer but {answer[place]} allowed"
        caller.expect.answer(asked, said)
        caller.expect.equal(asked, "the answer up to there", answer[:first], said.token_ids[:first])
        caller.expect.that(set(said.token_ids) <= set(without), asked, "allowed ids", said.token_ids)
