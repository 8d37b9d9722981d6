"""`/v1/responses`, whole and streamed: what chat says, event by event, with a usage whose fields add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

KINDS = ("phrase", "copy", "json", "sort")


def asked(caller: Caller, kind: str, **extra: Any) -> dict[str, Any]:
    prompt = caller.canary(kind)
    return {"input": prompt.user, "max_output_tokens": prompt.max_tokens, "temperature": 0} | extra


def text_of(response: dict[str, Any]) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )


def events_of(body: str) -> list[dict[str, Any]]:
    """The data of each event, in order; the name of an event has to be the type in its data."""
    events = []
    for block in body.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields.get("data") == "[DONE]":
            continue
        event = json.loads(fields["data"])
        assert fields.get("event", event["type"]) == event["type"], block[:200]
        events.append(event)
    return events


def check_usage(usage: dict[str, Any], prompt_tokens: int, answer_tokens: int) -> None:
    """Every number that is given has to be the one that chat gives, and sums have to be sums."""
    assert usage["input_tokens"] == prompt_tokens
    assert usage["output_tokens"] == answer_tokens
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 <= usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]
    assert 0 <= usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]


def said(usage: dict[str, Any]) -> dict[str, Any]:
    """A usage without what it does not say: a null and a missing field are the same."""
    known = {name: said(value) if isinstance(value, dict) else value for name, value in usage.items()}
    return {name: value for name, value in known.items() if value not in (None, {})}


@pytest.mark.parametrize("kind", KINDS)
def test_a_response_says_what_chat_says(caller: Caller, kind: str) -> None:
    """The same text, the same counts, a completed message. Public report: vllm 55284."""
    prompt = caller.canary(kind)
    chat = caller.chat(prompt, stream=False)
    reply = caller.post("/v1/responses", asked(caller, kind))
    assert reply.status == 200, reply.message
    response = reply.body
    assert (response["object"], response["status"], response["incomplete_details"]) == (
        "response",
        "completed",
        None,
    )
    assert text_of(response) == chat.content == prompt.expect
    check_usage(response["usage"], chat.usage.prompt_tokens or 0, chat.usage.completion_tokens or 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_streamed_response_is_the_whole_one_in_pieces(caller: Caller, kind: str) -> None:
    """Events in their order, numbered without a gap; deltas add up to the text of every later event."""
    prompt = caller.canary(kind)
    whole = caller.post("/v1/responses", asked(caller, kind)).body
    reply = caller.post("/v1/responses", asked(caller, kind, stream=True))
    assert reply.status == 200, reply.message
    events = events_of(reply.text)
    types = [event["type"].removeprefix("response.") for event in events]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert types[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert types[4 : 4 + len(deltas)] == ["output_text.delta"] * len(deltas)
    assert types[4 + len(deltas) :] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert "".join(deltas) == prompt.expect
    done, part, item, completed = events[-4:]
    assert done["text"] == part["part"]["text"] == item["item"]["content"][0]["text"] == prompt.expect
    assert text_of(completed["response"]) == prompt.expect
    assert completed["response"]["usage"] == whole["usage"]


def test_a_response_that_is_cut_says_so(caller: Caller) -> None:
    """At the cap: incomplete, the reason, exactly so many tokens, and the beginning of the right answer."""
    prompt = caller.canary("copy")
    for cap in range(1, 2 * caller.depth + 2):
        reply = caller.post("/v1/responses", asked(caller, "copy", max_output_tokens=cap))
        assert reply.status == 200, reply.message
        response = reply.body
        assert (response["status"], response["incomplete_details"]) == (
            "incomplete",
            {"reason": "max_output_tokens"},
        ), f"cap {cap}"
        assert response["usage"]["output_tokens"] == cap
        assert (prompt.expect or "").startswith(text_of(response)), f"cap {cap}: {text_of(response)!r}"


def test_usage_is_the_same_however_it_is_asked_for(caller: Caller) -> None:
    """Whole, at the end of a stream, and with every event: the last one says what the whole answer says."""
    prompt = caller.canary("copy")
    body = {"messages": prompt.messages, "max_tokens": prompt.max_tokens, "temperature": 0}
    whole = caller.post("/v1/chat/completions", body).body["usage"]
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = caller.post("/v1/chat/completions", body | {"stream": True, "stream_options": options})
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    usages = [event["usage"] for event in events]
    assert all(usage is not None for usage in usages), "continuous_usage_stats: an event without a usage"
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts), "completion tokens never go back"
    for usage in (whole, *usages):
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], usage
        assert usage["prompt_tokens"] == whole["prompt_tokens"]
        details = usage.get("prompt_tokens_details") or {}
        assert 0 <= (details.get("cached_tokens") or 0) <= usage["prompt_tokens"]
        for name, count in (usage.get("completion_tokens_details") or {}).items():
            assert count is None or 0 <= count <= usage["completion_tokens"], name
    assert said(usages[-1]) == said(whole)
    assert whole["completion_tokens"] == len(prompt.answer_ids or ())
