"""Requests that have taken a real engine down: each on a server of its own, so that it takes no other test with it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.lanes.lane import Lane
from fixtures.request import request_of
from fixtures.workload.caller import Caller

pytestmark = [pytest.mark.demonstration, pytest.mark.stress]

SPARE = 7
"""Replicates from here on are servers of one test alone."""


def dedicated(arms: Arms, lane: Lane, config: pytest.Config, role: str, number: int) -> Caller:
    """A caller of a fresh server that no other test uses."""
    arm = make_arm(lane, role, replicate=SPARE + number, stack=request_of(config).stack)
    return Caller(arms.server(arm).endpoint, arm)


def test_a_prompt_of_one_id_is_answered_without_speculation(
    arms: Arms, lane: Lane, pytestconfig: pytest.Config
) -> None:
    """One id is a whole prefill: it gets an answer, the same twice, and the next request gets its own."""
    caller = dedicated(arms, lane, pytestconfig, "target", 0)
    prompt = caller.canary("copy")
    first = caller.prompt_ids(prompt)[:1]
    said = [caller.continuation(first, 8, ignore_eos=True) for _ in range(2)]
    assert [t.error for t in said] == [None, None]
    assert said[0].token_ids == said[1].token_ids
    assert caller.chat(prompt).token_ids == prompt.answer_ids


def test_an_answer_with_drafts_ends_exactly_at_the_context_limit(
    arms: Arms, lane: Lane, pytestconfig: pytest.Config
) -> None:
    """Near the limit the engine has to cut its drafts: the last position is used, none beyond, and it lives on."""
    caller = dedicated(arms, lane, pytestconfig, "candidate", 0)
    limit = caller.context_limit()
    for room in (1, caller.depth, caller.depth + 1, 2 * caller.depth + 3):
        assert caller.fill_to_the_limit(room) == (room, "length", room, limit)
    prompt = caller.canary("sort")
    assert caller.chat(prompt).token_ids == prompt.answer_ids


def test_the_smallest_top_k_with_drafts_gives_the_greedy_answer(
    arms: Arms, lane: Lane, pytestconfig: pytest.Config
) -> None:
    """Also where a step has no draft left to verify, one id before a cap: whatever the seed, the best id is said."""
    caller = dedicated(arms, lane, pytestconfig, "candidate", 2)
    prompt = caller.canary("copy")
    assert prompt.answer_ids is not None
    for cap in (prompt.max_tokens, 30, 31, 32, 33):
        said = caller.chat(prompt, temperature=1, top_k=1, seed=3, max_tokens=cap)
        assert (said.error, said.token_ids) == (None, prompt.answer_ids[:cap]), f"max_tokens {cap}"


def test_drafts_that_a_grammar_cuts_leave_the_answers_right(
    arms: Arms, lane: Lane, pytestconfig: pytest.Config
) -> None:
    """Schema, choice and free text, alone and at once: where drafts do not fit a grammar, they are cut, no more.

    Cut drafts are drafts of different lengths, which is where recurrent states go wrong.
    """
    caller = dedicated(arms, lane, pytestconfig, "candidate", 1)
    prompt = caller.canary("json")
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}, "unit": {"type": "string"}},
        "required": ["answer", "unit"],
        "additionalProperties": False,
    }
    fits: dict[str, Any] = {"structured_outputs": {"json": schema}}
    forced: dict[str, Any] = {"structured_outputs": {"choice": ["zebra crossing 12345 é€😀"]}}
    before = caller.accepted()
    said = caller.chat(prompt, **fits)
    assert (said.error, said.token_ids, said.finish_reason) == (None, prompt.answer_ids, "stop")
    assert json.loads(said.content)["answer"] == 26
    assert caller.accepted() > before, "drafts have to be accepted under the grammar"
    with ThreadPoolExecutor(12) as pool:
        at_once = list(pool.map(lambda extra: caller.chat(prompt, **extra), [fits, forced, {}] * 4))
    for place in range(0, len(at_once), 3):
        fitting, chosen, free = at_once[place : place + 3]
        assert (fitting.error, fitting.token_ids) == (None, prompt.answer_ids)
        assert (chosen.error, chosen.content) == (None, forced["structured_outputs"]["choice"][0])
        assert (free.error, free.token_ids) == (None, prompt.answer_ids)
