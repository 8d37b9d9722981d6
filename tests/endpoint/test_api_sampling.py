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
        assert [t.error for t in said] == [None] * 3
        texts[seed] = {t.token_ids for t in said}
    unsteady = {seed: len(said) for seed, said in texts.items() if len(said) > 1}
    assert not unsteady, f"seeds that did not repeat their text, with the number of texts: {unsteady}"
    assert len(set.union(*texts.values())) > 1, "at this temperature every seed said the same"


def test_several_answers_to_one_prompt_come_in_order_and_repeat(caller: Caller) -> None:
    """`n`: each answer has its index, its ids and its end; usage counts all of them; the seed repeats all of them."""
    prompt = caller.canary("phrase")
    body = {"messages": prompt.messages, "return_token_ids": True, "seed": 5, "n": 3} | HOT
    answers = []
    for _ in range(2):
        reply = caller.post(CHAT, body)
        assert reply.status == 200, reply.message
        choices = reply.body["choices"]
        assert [c["index"] for c in choices] == [0, 1, 2]
        assert [len(c["token_ids"]) for c in choices] == [HOT["max_tokens"]] * 3
        assert {c["finish_reason"] for c in choices} == {"length"}
        assert reply.body["usage"]["completion_tokens"] == 3 * HOT["max_tokens"]
        answers.append([tuple(c["token_ids"]) for c in choices])
    assert len(set(answers[0])) > 1, "at this temperature all answers are the same"
    assert answers[0] == answers[1], "the same seed gave other answers the second time"


def test_a_greedy_answer_is_not_touched_by_sampled_neighbours(caller: Caller) -> None:
    """One batch of sampled and greedy requests: the greedy answers are those that they are alone."""
    prompt = caller.canary("copy")
    mixed: list[dict[str, Any]] = [{}, {"temperature": 1, "seed": 1}] * 2
    wrong = []
    for _ in range(3):
        with ThreadPoolExecutor(len(mixed)) as pool:
            said = list(pool.map(lambda extra: caller.chat(prompt, **extra), mixed))
        assert [t.error for t in said] == [None] * len(mixed)
        wrong += [t.content[:40] for t in said[::2] if t.token_ids != prompt.answer_ids]
    assert not wrong, f"{len(wrong)} of 6 greedy answers beside sampled ones are wrong: {wrong}"


@pytest.mark.parametrize("extra", [{"top_p": 1e-6}, {"temperature": 0.01}], ids=["top-p", "temperature"])
def test_sampling_that_leaves_one_id_to_choose_gives_the_greedy_answer(
    caller: Caller, extra: dict[str, Any]
) -> None:
    """Whatever the seed. (top-k with drafts: `tests/demonstration/test_engine_survival.py`.)"""
    for kind in ("copy", "sort"):
        prompt = caller.canary(kind)
        said = caller.chat(prompt, seed=3, **{"temperature": 1, **extra})
        assert said.error is None
        assert said.token_ids == prompt.answer_ids, (
            f"{kind}: another answer than the greedy one: {said.content[:60]!r}"
        )


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_bias_forbids_and_forces_an_id(caller: Caller) -> None:
    """`logit_bias` of -100: the answer goes another way exactly there; of +100: that id and nothing else."""
    prompt = caller.canary("copy")
    assert prompt.answer_ids is not None
    for place in (0, 3):
        unwanted = prompt.answer_ids[place]
        said = caller.chat(prompt, max_tokens=20, logit_bias={str(unwanted): -100})
        assert said.error is None
        assert unwanted not in said.token_ids
        first = prompt.answer_ids.index(unwanted)
        assert said.token_ids[:first] == prompt.answer_ids[:first]
    wanted = prompt.answer_ids[5]
    said = caller.chat(prompt, max_tokens=6, logit_bias={str(wanted): 100})
    assert (said.error, said.token_ids) == (None, (wanted,) * 6)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_the_largest_min_p_and_the_smallest_top_k_give_the_greedy_answer(caller: Caller) -> None:
    """Both leave only the best id."""
    prompt = caller.canary("copy")
    for extra in ({"min_p": 1}, {"top_k": 1}):
        said = caller.chat(prompt, temperature=2, seed=3, **extra)
        assert (said.error, said.token_ids) == (None, prompt.answer_ids), str(extra)


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
    assert reply.status == 400, f"{reply.status}: {reply.text[:300]}"
    assert next(iter(extra)) in reply.message, reply.message
    streamed = caller.chat(prompt, **extra)
    assert streamed.error is not None
    assert next(iter(extra)) in streamed.error
    assert caller.chat(prompt).token_ids == prompt.answer_ids


def test_bad_words_are_not_said(caller: Caller) -> None:
    """A word of the right answer is forbidden: the answer goes another way exactly there, also inside a draft."""
    for kind, word in (("sort", "purple"), ("copy", "concert")):
        prompt = caller.canary(kind)
        assert prompt.expect is not None
        assert word in prompt.expect
        said = caller.chat(prompt, bad_words=[word])
        assert said.error is None
        assert word not in said.content
        common = prompt.expect.index(word)
        assert said.content[: common - 1] == prompt.expect[: common - 1]


def test_only_allowed_ids_are_said(caller: Caller) -> None:
    """All ids of the answer allowed: the answer. All but one: the same up to there, and never that one."""
    prompt = caller.canary("sort")
    assert prompt.answer_ids is not None
    answer = prompt.answer_ids
    same = caller.chat(prompt, allowed_token_ids=sorted(set(answer)))
    assert (same.error, same.token_ids) == (None, answer)
    for place in range(1, caller.depth + 4):
        without = sorted(set(answer) - {answer[place]})
        said = caller.chat(prompt, allowed_token_ids=without)
        first = answer.index(answer[place])
        assert said.error is None
        assert said.token_ids[:first] == answer[:first]
        assert set(said.token_ids) <= set(without)
