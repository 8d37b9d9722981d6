"""The API as users call it, thin: the official SDK, raw streaming with token ids, and usage that says zero."""

from __future__ import annotations

import openai
import pytest

from fixtures.client.ask import ask
from fixtures.evidence.plugin import Evidence
from fixtures.judge.rows import Purpose
from fixtures.prompts.suite import Prompt
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint


def test_the_official_sdk_gets_the_right_answer(caller: Caller, prompt: Prompt) -> None:
    """`openai` chat completion, not streamed: text, finish reason and usage."""
    endpoint = caller.endpoint
    with openai.OpenAI(base_url=endpoint.openai_base_url, api_key=endpoint.api_key, max_retries=0) as client:
        answer = client.chat.completions.create(
            model=endpoint.model,
            messages=[{"role": "user", "content": prompt.user}],
            max_tokens=prompt.max_tokens,
            temperature=0,
        )
    choice, asked = answer.choices[0], f"for {prompt.id} by the official SDK"
    said = choice.message.content, choice.finish_reason
    caller.expect.equal(asked, "text and finish reason", (prompt.expect, "stop"), said)
    caller.expect.that(answer.usage is not None, asked, "usage", answer.usage)
    assert answer.usage is not None
    counted = answer.usage.completion_tokens
    caller.expect.that(counted > 0, asked, "completion tokens above 0", counted)
    total = answer.usage.prompt_tokens + counted
    caller.expect.equal(asked, "total tokens", total, answer.usage.total_tokens)


def test_streaming_gives_every_token_id_and_says_that_nothing_was_cached(
    caller: Caller, prompt: Prompt, evidence: Evidence
) -> None:
    """Ids equal usage, deltas equal the full text, `cached_tokens` is 0 and not null, `[DONE]` ends the stream."""
    suite, arm = caller.arm.lane.suites.canaries, caller.arm.label
    streamed = ask(caller.endpoint, prompt, suite=suite, arm=arm)
    whole = ask(caller.endpoint, prompt, suite=suite, arm=arm, stream=False)
    for transcript, how in ((streamed, "streamed"), (whole, "not streamed")):
        evidence.append("transcript", transcript.to_row() | {"purpose": Purpose.PROBE.value})
        counted = len(transcript.token_ids)
        asked = f"for {prompt.id}, {how}, with ids"
        caller.expect.answer(
            asked, transcript, text=prompt.expect, completion_tokens=counted, cached_tokens=0
        )
        caller.expect.that(counted > 0, asked, "ids", "none")
    asked = f"for {prompt.id}, streamed, with ids"
    caller.expect.answer(asked, streamed, ids=whole.token_ids)
    caller.expect.that(streamed.saw_done, asked, "[DONE] at the end", "no [DONE]")
    times = len(streamed.receipt_ns)
    caller.expect.equal(asked, "as many times as ids", len(streamed.token_ids), times)


def test_a_wrong_key_is_refused_and_the_server_lives(caller: Caller, prompt: Prompt) -> None:
    """The per-run key guards the server: another one gets 401, and the right one still gets an answer."""
    endpoint = caller.endpoint
    with (
        openai.OpenAI(base_url=endpoint.openai_base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(
            model=endpoint.model, messages=[{"role": "user", "content": prompt.user}], max_tokens=1
        )
    caller.expect.answer(f"for {prompt.id} after a wrong key", caller.chat(prompt), text=prompt.expect)
