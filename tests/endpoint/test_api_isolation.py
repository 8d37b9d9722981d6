"""Each request is answered from its own prompt alone: beside others, after others, after others were broken off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fixtures.client.ask import CHAT, run_suite
from fixtures.client.departure import OpenRequest
from fixtures.client.transcript import Transcript
from fixtures.prompts.suite import Prompt, Suite, load_suite
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

AT_ONCE = 32


def mixed_prompts(caller: Caller) -> tuple[Prompt, ...]:
    """As many prompts as are sent at once, of every class and of lengths as different as the suite has."""
    suite = load_suite(caller.arm.lane.suites.parity)
    each = AT_ONCE // len(suite.classes)
    chosen = [
        p
        for kind in suite.classes
        for p in sorted(caller.parity_prompts(kind), key=lambda p: len(p.answer_ids or ()))[:each]
    ]
    return tuple(chosen)


def wrong(prompts: tuple[Prompt, ...], said: tuple[Transcript, ...]) -> list[str]:
    """What was not answered with the right text for its own prompt."""
    return [
        f"{p.id}: {t.error or t.content[:80]!r}"
        for p, t in zip(prompts, said, strict=True)
        if t.error is not None or t.content != p.expect
    ]


def test_mixed_requests_at_once_each_get_their_own_answer(caller: Caller) -> None:
    """More requests than slots, of all lengths, in a shuffled order: every answer is right for its own prompt."""
    prompts = mixed_prompts(caller)
    assert len(prompts) == AT_ONCE
    suite = Suite(schema="draftproof-suite-1", name="api-mixed", description="mixed", prompts=prompts)
    said = run_suite(caller.endpoint, suite, arm=caller.arm.label, concurrency=AT_ONCE, order=1)
    asked = f"for {AT_ONCE} prompts at once, in another order"
    caller.expect.none_wrong(asked, "the right answer to each", wrong(prompts, said))
    caller.expect.equal(asked, "finish reasons", {"stop"}, {t.finish_reason for t in said})


def test_different_parameters_at_once_stay_with_their_request(caller: Caller) -> None:
    """A batch of requests with a stop, no end, a penalty and nothing of it: none takes another one's parameter."""
    prompt = caller.canary("json")
    assert prompt.answer_ids is not None
    answer = prompt.answer_ids
    extras: list[dict[str, Any]] = [
        {},
        {"stop_token_ids": [answer[5]]},
        {"ignore_eos": True},
        {"presence_penalty": 0.5, "seed": 5},
    ]
    with ThreadPoolExecutor(12) as pool:
        said = list(
            pool.map(lambda extra: caller.chat(prompt, max_tokens=len(answer) + 6, **extra), extras * 3)
        )
    for place in range(0, len(said), len(extras)):
        plain, stopped, onward, charged = said[place : place + len(extras)]
        asked = f"for {prompt.id} among requests with other parameters"
        caller.expect.answer(f"{asked}, plain", plain, ids=answer)
        caller.expect.answer(f"{asked}, with a stop id", stopped, ids=answer[: answer.index(answer[5]) + 1])
        caller.expect.answer(f"{asked}, with ignore_eos", onward, completion_tokens=len(answer) + 6)
        beginning = onward.token_ids[: len(answer)]
        caller.expect.equal(f"{asked}, with ignore_eos", "ids of the answer", answer, beginning)
        caller.expect.answer(f"{asked}, with a penalty below every margin", charged, ids=answer)


def test_an_answer_after_a_long_one_is_the_answer_alone(caller: Caller) -> None:
    """The slot of a long request is used again: its state, window and drafts must be gone."""
    needles = load_suite(caller.arm.lane.suites.needle).prompts
    longest = max(needles, key=lambda p: len(p.user))
    for kind in ("sort", "copy", "json"):
        long = caller.chat(longest)
        caller.expect.answer(f"for {longest.id}", long, text=longest.expect)
        prompt = caller.canary(kind)
        asked = f"for {prompt.id} after {longest.id}"
        caller.expect.answer(asked, caller.chat(prompt), ids=prompt.answer_ids)


@pytest.mark.parametrize("arm", ["candidate"], indirect=True)
def test_a_prompt_of_one_id_inherits_nothing(caller: Caller) -> None:
    """One id is a whole prefill; its state starts empty whoever had the slot before.

    Without speculation: `tests/demonstration/test_engine_survival.py`.
    """
    first = caller.prompt_ids(caller.canary("copy"))[:1]
    alone = caller.continuation(first, 8, ignore_eos=True)
    caller.expect.answer("for a prompt of one id alone", alone)
    for kind in ("count", "sum", "needle"):
        prompt = caller.parity_prompts(kind)[0]
        caller.expect.answer(f"for {prompt.id}", caller.chat(prompt), text=prompt.expect)
        again = caller.continuation(first, 8, ignore_eos=True)
        caller.expect.answer(f"for a prompt of one id after {prompt.id}", again, ids=alone.token_ids)


def test_a_request_that_was_broken_off_harms_no_other(caller: Caller) -> None:
    """Hang up in the middle of drafting, at several places: the next answers are right.

    That it stops running: `test_api_departures.py`.
    """
    long = caller.parity_prompts("count")[0]
    body = {
        "messages": long.messages,
        "max_tokens": 600,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    for events in (1, 2, 3, 6):
        with OpenRequest(caller.endpoint, CHAT, body) as request:
            request.hear(events)
        for kind in ("sort", "json"):
            prompt = caller.canary(kind)
            asked = f"for {prompt.id} after {long.id} was broken off at event {events}"
            caller.expect.answer(asked, caller.chat(prompt), ids=prompt.answer_ids)
    for kind in ("count", "parity"):
        prompt = caller.parity_prompts(kind)[0]
        asked = f"for {prompt.id} after requests were broken off"
        caller.expect.answer(asked, caller.chat(prompt), ids=prompt.answer_ids)
