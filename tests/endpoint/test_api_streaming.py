"""Streams: what was sent in pieces is what was sent whole, character by character."""

from __future__ import annotations

import openai
import pytest

from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

KINDS = ("phrase", "copy", "add", "json", "sort", "code")
MANY_BYTES = "é€😀 ñ中🧪 žß日本"
"""Characters of two, three and four bytes; the canary's tokenizer has to spell them byte by byte."""


def test_deltas_add_up_to_the_whole_text(caller: Caller) -> None:
    """Streamed and not streamed: the same ids, the same text, the same usage and finish reason."""
    for kind in KINDS:
        prompt = caller.canary(kind)
        streamed, whole = caller.chat(prompt), caller.chat(prompt, stream=False)
        assert (streamed.error, whole.error) == (None, None)
        assert streamed.content == whole.content == prompt.expect
        assert streamed.token_ids == whole.token_ids == prompt.answer_ids
        assert streamed.usage == whole.usage
        assert streamed.finish_reason == whole.finish_reason == "stop"


def test_completions_say_what_chat_says(caller: Caller) -> None:
    """The same prompt ids without the chat template in between, streamed and whole."""
    for kind in ("sort", "copy"):
        prompt = caller.canary(kind)
        ids = caller.prompt_ids(prompt)
        for stream in (True, False):
            said = caller.continuation(ids, prompt.max_tokens, stream=stream)
            assert (said.error, said.token_ids, said.content) == (None, prompt.answer_ids, prompt.expect)
            assert said.usage.prompt_tokens == len(ids)
            assert said.usage.cached_tokens == 0


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_character_is_never_split_between_deltas(caller: Caller) -> None:
    """Characters of several tokens, any of which may end a step: no delta holds a part of one."""
    prompt = caller.canary("phrase")
    constraint = {"choice": [MANY_BYTES]}
    whole = caller.chat(prompt, stream=False, max_tokens=80, structured_outputs=constraint)
    streamed = caller.chat(prompt, max_tokens=80, structured_outputs=constraint)
    for said in (whole, streamed):
        assert (said.error, said.content, said.finish_reason) == (None, MANY_BYTES, "stop")
        assert said.usage.completion_tokens == len(said.token_ids)
    assert len(streamed.token_ids) > len(MANY_BYTES) + 8, "the characters have to take several tokens each"
    assert streamed.token_ids == whole.token_ids


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_cap_inside_a_character_delivers_no_part_of_it_twice(caller: Caller) -> None:
    """Cut at each id in turn: streamed and whole agree, and what is whole in the text is a prefix of it."""
    prompt = caller.canary("phrase")
    constraint = {"choice": [MANY_BYTES]}
    for cap in range(1, 12):
        whole = caller.chat(prompt, stream=False, max_tokens=cap, structured_outputs=constraint)
        streamed = caller.chat(prompt, max_tokens=cap, structured_outputs=constraint)
        assert (whole.error, streamed.error) == (None, None)
        assert streamed.content == whole.content, f"max_tokens {cap}"
        assert MANY_BYTES.startswith(streamed.content.rstrip("\ufffd")), (
            f"max_tokens {cap}: {streamed.content!r}"
        )


def test_the_official_sdk_streams_the_right_answer(caller: Caller) -> None:
    """`openai`, streamed: one role, deltas that add up, one finish reason, usage in the last event."""
    prompt, endpoint = caller.canary("copy"), caller.endpoint
    text, reasons, usage = "", [], None
    with openai.OpenAI(base_url=endpoint.openai_base_url, api_key=endpoint.api_key, max_retries=0) as client:
        for event in client.chat.completions.create(
            model=endpoint.model,
            messages=[{"role": "user", "content": prompt.user}],
            max_tokens=prompt.max_tokens,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        ):
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
    assert (text, reasons) == (prompt.expect, ["stop"])
    assert usage is not None
    assert prompt.answer_ids is not None
    assert usage.completion_tokens == len(prompt.answer_ids)
