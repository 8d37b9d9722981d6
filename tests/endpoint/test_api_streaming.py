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
        for said, how in ((streamed, "streamed"), (whole, "not streamed")):
            caller.expect.answer(
                f"for {prompt.id}, {how}",
                said,
                text=prompt.expect,
                ids=prompt.answer_ids,
                finish_reason="stop",
            )
        asked = f"for {prompt.id}, streamed and not streamed"
        caller.expect.equal(asked, "the same usage", streamed.usage, whole.usage)


def test_completions_say_what_chat_says(caller: Caller) -> None:
    """The same prompt ids without the chat template in between, streamed and whole."""
    for kind in ("sort", "copy"):
        prompt = caller.canary(kind)
        ids = caller.prompt_ids(prompt)
        for stream in (True, False):
            said = caller.continuation(ids, prompt.max_tokens, stream=stream)
            caller.expect.answer(
                f"to complete the ids of {prompt.id}, {'streamed' if stream else 'not streamed'}",
                said,
                ids=prompt.answer_ids,
                text=prompt.expect,
                prompt_tokens=len(ids),
                cached_tokens=0,
            )


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_character_is_never_split_between_deltas(caller: Caller) -> None:
    """Characters of several tokens, any of which may end a step: no delta holds a part of one."""
    prompt = caller.canary("phrase")
    constraint = {"choice": [MANY_BYTES]}
    whole = caller.chat(prompt, stream=False, max_tokens=80, structured_outputs=constraint)
    streamed = caller.chat(prompt, max_tokens=80, structured_outputs=constraint)
    for said in (whole, streamed):
        caller.expect.answer(
            "for characters of several tokens",
            said,
            text=MANY_BYTES,
            finish_reason="stop",
            completion_tokens=len(said.token_ids),
            ids=whole.token_ids,
        )
    assert len(streamed.token_ids) > len(MANY_BYTES) + 8, "the characters have to take several tokens each"


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_cap_inside_a_character_delivers_no_part_of_it_twice(caller: Caller) -> None:
    """Cut at each id in turn: streamed and whole agree, and what is whole in the text is a prefix of it."""
    prompt = caller.canary("phrase")
    constraint = {"choice": [MANY_BYTES]}
    for cap in range(1, 12):
        whole = caller.chat(prompt, stream=False, max_tokens=cap, structured_outputs=constraint)
        streamed = caller.chat(prompt, max_tokens=cap, structured_outputs=constraint)
        asked = f"for characters of several tokens with max_tokens {cap}"
        caller.expect.answer(f"{asked}, not streamed", whole)
        caller.expect.answer(f"{asked}, streamed", streamed, text=whole.content)
        beginning = MANY_BYTES.startswith(streamed.content.rstrip("\ufffd"))
        caller.expect.that(beginning, asked, "a beginning of the text", repr(streamed.content))


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
    assert prompt.answer_ids is not None
    asked = f"for {prompt.id} by the official SDK, streamed"
    caller.expect.equal(asked, "text and finish reasons", (prompt.expect, ["stop"]), (text, reasons))
    counted = usage.completion_tokens if usage is not None else None
    caller.expect.equal(asked, "completion tokens", len(prompt.answer_ids), counted)
