"""Requests that are hung up on, against a stand-in that hears of it, or not, or not always."""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.judge.departures import DEPARTED, judge_departures
from fixtures.judge.finding import Outcome
from fixtures.prompts.suite import Prompt
from fixtures.workload.departures import Case, depart

STEP_S = 0.002
DEAF = {"never": lambda n, stream: False, "always": lambda n, stream: True}
DEAF |= {"to whole ones": lambda n, stream: not stream, "to one of four": lambda n, stream: n % 5 == 3}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    deaf: Any
    lock: threading.Lock
    state: dict[str, int]

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """The gauges."""
        gauges = {
            "num_requests_running": self.state["running"],
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": 0,
        }
        text = "".join(f"vllm:{name} {value}\n" for name, value in gauges.items())
        self._reply(text.encode(), "text/plain")

    def do_POST(self) -> None:
        """One id a step, to the end or until the client has left and is heard to have left."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.state["running"] += 1
            self.state["asked"] += bool(body.get("ignore_eos"))
            deaf = self.deaf(self.state["asked"], body.get("stream"))
        try:
            self._answer(body, deaf)
        finally:
            with self.lock:
                self.state["running"] -= 1
            self.close_connection = True

    def _answer(self, body: dict[str, Any], deaf: bool) -> None:
        left, ids = False, body.get("max_tokens") or 20
        if body.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
        for _ in range(ids if body.get("ignore_eos") else 20):
            time.sleep(STEP_S)
            left = left or bool(select.select([self.connection], [], [], 0)[0])
            if left and not deaf:
                return
            if body.get("stream") and not left:
                event = {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [1]}]}
                self._write(f"data: {json.dumps(event)}\n\n".encode())
        if not left and body.get("stream"):
            self._write(b"data: [DONE]\n\n")
        elif not left:
            self._reply(b"{}", "application/json")

    def _write(self, data: bytes) -> None:
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def _reply(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self._write(data)


@contextmanager
def engine(deaf: str) -> Iterator[Endpoint]:
    """A stand-in on loopback."""
    parts = {"deaf": staticmethod(DEAF[deaf]), "lock": threading.Lock(), "state": {"running": 0, "asked": -1}}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), parts))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}", None, "m")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PROMPT = Prompt.model_validate({"id": "p", "class": "count", "user": "Count.", "max_tokens": 20})
STREAMED, WHOLE = Case("streamed", 4, True, "heard"), Case("whole", 4, False, "running")


@pytest.mark.parametrize(
    ("deaf", "outcomes"),
    [
        ("never", [Outcome.ACCEPTED, Outcome.ACCEPTED]),
        ("always", [Outcome.REJECTED]),
        ("to whole ones", [Outcome.ACCEPTED, Outcome.REJECTED]),
        ("to one of four", [Outcome.REJECTED]),
    ],
)
def test_who_runs_on_is_seen_while_somebody_else_is_still_answered(
    deaf: str, outcomes: list[Outcome]
) -> None:
    """A case that the server does not get over is the last one."""
    with engine(deaf) as endpoint:
        seen = list(depart(endpoint, "arm", [PROMPT], [1] * 20, [PROMPT], (STREAMED, WHOLE)))
    departed = [f for f in judge_departures(seen) if f.check == DEPARTED]
    assert [f.outcome for f in departed] == outcomes, [f.message for f in departed]
