"""Drawing samples: what a server gives instead of what was asked for is an error with its words, never a sample."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.prompts.suite import Suite
from fixtures.workload.sampling import (
    GREEDY_TOKENS,
    PROMPTS,
    SHUFFLES,
    TOKENS,
    DrawingFailed,
    ask_with_heads,
    draw_samples,
)

SUITE = Suite.model_validate(
    {
        "schema": "draftproof-suite-1",
        "name": "two",
        "description": "Two prompts.",
        "prompts": [{"id": i, "class": "x", "user": i, "max_tokens": 8} for i in ("a", "b")],
    }
)
PROMPT_IDS = [3, 5, 7, 9, 11]


class Stub(ThreadingHTTPServer):
    """Answers as a server does, unless a test changes how."""

    status = 200
    tokens = TOKENS
    heads = GREEDY_TOKENS
    dropped = 0
    names = "token_id:{}"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if "prompt" in body:
            head = {self.names.format(4): -0.5, self.names.format(6): -0.5}
            heads = {"top_logprobs": [head] * self.heads}
            answers = body["prompt"][self.dropped :]
            return {"choices": [{"token_ids": [4] * GREEDY_TOKENS, "logprobs": heads} for _ in answers]}
        return {"choices": [{"token_ids": [1 + n % 3] * self.tokens} for n in range(body["n"])]}


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(b"vllm:spec_decode_num_drafts_total 0\n", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("stream"):
            first = {"choices": [{"index": 0, "delta": {"content": "x"}, "token_ids": [1]}]}
            first["prompt_token_ids"] = PROMPT_IDS
            self._send(f"data: {json.dumps(first)}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")
            return
        self._send(json.dumps(self.server.reply(body)).encode(), "application/json", self.server.status)

    def _send(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def endpoint(stub: Stub) -> Endpoint:
    return Endpoint(f"http://127.0.0.1:{stub.server_address[1]}", "key", "model")


def test_every_prompt_is_sampled_as_often_as_asked(stub: Stub) -> None:
    drawn = draw_samples(endpoint(stub), answers=100)
    assert {name: len(said) for name, said in drawn.answers.items()} == dict.fromkeys(PROMPTS, 100)
    assert [body["n"] for body in stub.asked] == [64, 36] * len(PROMPTS)
    assert {body["temperature"] for body in stub.asked} == {1.0}
    assert not any("seed" in body for body in stub.asked)


def test_samples_of_another_length_are_refused(stub: Stub) -> None:
    stub.tokens = TOKENS - 1
    with pytest.raises(DrawingFailed, match=f"answers have {TOKENS - 1} tokens instead of {TOKENS}"):
        draw_samples(endpoint(stub), answers=2)


def test_contexts_are_the_prompts_shuffled_and_always_the_same(stub: Stub) -> None:
    said = ask_with_heads(endpoint(stub), SUITE, "arm")
    assert len(said) == 2 * SHUFFLES
    assert said[0].heads[0] == {4: -0.5, 6: -0.5}
    contexts = stub.asked[0]["prompt"]
    assert all(sorted(context) == PROMPT_IDS for context in contexts)
    assert len({tuple(context) for context in contexts}) > SHUFFLES
    ask_with_heads(endpoint(stub), SUITE, "arm")
    assert stub.asked[1]["prompt"] == contexts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": 500}, "status 500"),
        ({"dropped": 1}, "32 contexts, 31 answers"),
        ({"heads": 3}, "8 tokens, 3 distributions"),
        ({"names": "word {}"}, "expected token_id:N, got 'word 4'"),
    ],
    ids=["refused", "an-answer-short", "a-head-short", "words-for-ids"],
)
def test_answers_without_their_distributions_are_refused(
    stub: Stub, change: dict[str, object], says: str
) -> None:
    vars(stub).update(change)
    with pytest.raises(DrawingFailed, match=says):
        ask_with_heads(endpoint(stub), SUITE, "arm")
