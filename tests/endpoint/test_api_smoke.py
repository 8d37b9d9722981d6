"""The API as users call it, thin: the official SDK, raw streaming with token ids, and usage that says zero."""

from __future__ import annotations

import openai
import pytest

from fixtures.arms.servers import Arm, Arms
from fixtures.client.ask import ask
from fixtures.evidence.plugin import Evidence
from fixtures.prompts.suite import Prompt

pytestmark = pytest.mark.endpoint


def test_the_official_sdk_gets_the_right_answer(arm: Arm, arms: Arms, prompt: Prompt) -> None:
    """`openai` chat completion, not streamed: text, finish reason and usage."""
    endpoint = arms.server(arm).endpoint
    with openai.OpenAI(base_url=endpoint.openai_base_url, api_key=endpoint.api_key, max_retries=0) as client:
        answer = client.chat.completions.create(
            model=endpoint.model,
            messages=[{"role": "user", "content": prompt.user}],
            max_tokens=prompt.max_tokens,
            temperature=0,
        )
    choice = answer.choices[0]
    assert choice.message.content == prompt.expect
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streaming_gives_every_token_id_and_says_that_nothing_was_cached(
    arm: Arm, arms: Arms, prompt: Prompt, evidence: Evidence
) -> None:
    """Ids equal usage, deltas equal the full text, `cached_tokens` is 0 and not null, `[DONE]` ends the stream."""
    endpoint = arms.server(arm).endpoint
    streamed = ask(endpoint, prompt, suite=arm.lane.suites.canaries, arm=arm.label)
    whole = ask(endpoint, prompt, suite=arm.lane.suites.canaries, arm=arm.label, stream=False)
    for transcript in (streamed, whole):
        evidence.append("transcript", transcript.to_row() | {"purpose": "probe"})
        assert transcript.error is None
        assert transcript.content == prompt.expect
        assert transcript.usage.completion_tokens == len(transcript.token_ids) > 0
        assert transcript.usage.cached_tokens == 0, f"cached_tokens: {transcript.usage.cached_tokens!r}"
    assert streamed.token_ids == whole.token_ids
    assert streamed.saw_done
    assert len(streamed.receipt_ns) == len(streamed.token_ids)


def test_a_wrong_key_is_refused_and_the_server_lives(arm: Arm, arms: Arms, prompt: Prompt) -> None:
    """The per-run key guards the server: another one gets 401, and the right one still gets an answer."""
    endpoint = arms.server(arm).endpoint
    with (
        openai.OpenAI(base_url=endpoint.openai_base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(
            model=endpoint.model, messages=[{"role": "user", "content": prompt.user}], max_tokens=1
        )
    assert ask(endpoint, prompt, suite=arm.lane.suites.canaries, arm=arm.label).content == prompt.expect
