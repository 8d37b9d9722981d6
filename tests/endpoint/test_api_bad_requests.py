"""Requests that make no sense: the client's error in words, and a server that lives on."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.client.ask import CHAT, COMPLETIONS
from fixtures.client.reply import send
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint

HELLO = [{"role": "user", "content": "hello"}]

CHATS: dict[str, dict[str, Any]] = {
    "no-messages": {},
    "empty-messages": {"messages": []},
    "messages-a-text": {"messages": "hello"},
    "message-without-role": {"messages": [{"content": "hello"}]},
    "max-tokens-negative": {"messages": HELLO, "max_tokens": -1},
    "max-tokens-a-word": {"messages": HELLO, "max_tokens": "ten"},
    "max-tokens-a-fraction": {"messages": HELLO, "max_tokens": 1.5},
    "temperature-negative": {"messages": HELLO, "temperature": -1},
    "temperature-a-word": {"messages": HELLO, "temperature": "hot"},
    "top-p-above-one": {"messages": HELLO, "top_p": 1.5},
    "top-p-zero": {"messages": HELLO, "top_p": 0},
    "top-k-below-minus-one": {"messages": HELLO, "top_k": -2},
    "n-zero": {"messages": HELLO, "n": 0},
    "n-negative": {"messages": HELLO, "n": -1},
    "n-two-greedy-list": {"messages": HELLO, "n": [2]},
    "presence-penalty-too-large": {"messages": HELLO, "presence_penalty": 3},
    "repetition-penalty-zero": {"messages": HELLO, "repetition_penalty": 0},
    "min-tokens-above-max-tokens": {"messages": HELLO, "max_tokens": 2, "min_tokens": 3},
    "min-tokens-negative": {"messages": HELLO, "min_tokens": -1},
    "stop-a-number": {"messages": HELLO, "stop": 5},
    "stop-ids-words": {"messages": HELLO, "stop_token_ids": ["a"]},
    "stop-empty-text": {"messages": HELLO, "stop": [""]},
    "top-logprobs-without-logprobs": {"messages": HELLO, "top_logprobs": 3},
    "top-logprobs-too-many": {"messages": HELLO, "logprobs": True, "top_logprobs": 1000},
    "bad-words-empty": {"messages": HELLO, "bad_words": [""]},
    "allowed-ids-unknown": {"messages": HELLO, "allowed_token_ids": [10**6]},
    "allowed-ids-none": {"messages": HELLO, "allowed_token_ids": []},
    "logit-bias-unknown": {"messages": HELLO, "logit_bias": {"1000000": 1}},
    "stream-options-without-stream": {"messages": HELLO, "stream_options": {"include_usage": True}},
    "longer-than-the-context": {"messages": [{"role": "user", "content": "hello " * 200_000}]},
}

COMPLETED: dict[str, dict[str, Any]] = {
    "no-prompt": {},
    "prompt-empty-text": {"prompt": ""},
    "prompt-no-ids": {"prompt": []},
    "prompt-null": {"prompt": None},
    "prompt-id-unknown": {"prompt": [10**6]},
    "prompt-id-negative": {"prompt": [5, -1]},
    "prompt-ids-words": {"prompt": [["a"]]},
    "prompt-an-object": {"prompt": {"text": "hello"}},
    "prompt-logprobs-negative": {"prompt": "hello", "prompt_logprobs": -5},
}


def require_alive(caller: Caller, after: str) -> None:
    """The server lives and answers."""
    prompt = caller.canary("add")
    caller.expect.answer(f"for {prompt.id} after {after}", caller.chat(prompt), ids=prompt.answer_ids)


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_that_makes_no_sense_is_refused(caller: Caller, name: str) -> None:
    """4xx with a message; the next request is answered."""
    reply = caller.post(CHAT, {"max_tokens": 4} | CHATS[name])
    caller.expect.refusal(f"for a chat with {name}", reply)
    require_alive(caller, f"a chat with {name}")


@pytest.mark.parametrize("name", COMPLETED)
def test_a_completion_that_makes_no_sense_is_refused(caller: Caller, name: str) -> None:
    """4xx with a message; the next request is answered."""
    reply = caller.post(COMPLETIONS, {"max_tokens": 4} | COMPLETED[name])
    caller.expect.refusal(f"for a completion with {name}", reply)
    require_alive(caller, f"a completion with {name}")


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b'{"messages": [', b"[]", b"null", b'"hello"', b"\xff\xfe\x00", b"[" * 20_000],
    ids=["empty", "words", "cut-off", "list", "null", "text", "not-utf8", "nested"],
)
def test_a_body_that_is_no_request_is_refused(caller: Caller, body: bytes) -> None:
    """Not JSON, or not an object: 4xx; the next request is answered."""
    reply = send(caller.endpoint, "POST", CHAT, body)
    asked = f"for a chat whose body is {body[:20]!r}"
    answered = f"{reply.status}: {reply.failure or reply.text[:300]}"
    caller.expect.that(400 <= reply.status < 500, asked, "status 4xx", answered)
    require_alive(caller, f"a body {body[:20]!r}")


def test_unknown_models_routes_and_methods_are_refused(caller: Caller) -> None:
    """404 for what is not there, 405 for a method that a route does not have."""
    unknown = caller.post(CHAT, {"model": "no-such-model", "messages": HELLO})
    caller.expect.refusal("for a model that it does not serve", unknown, status=404, names="no-such-model")
    route, method = caller.post("/v1/no-such-route", {}), caller.get(CHAT)
    caller.expect.equal("for a route that it does not have", "status", 404, route.status)
    caller.expect.equal("for chat with GET", "status", 405, method.status)
    require_alive(caller, "unknown models, routes and methods")
