"""A stand-in server with a made-up model: what it says follows from the ids before it, and faults can be planted.

It speaks the two text routes, whole and streamed, and keeps counters. Its known semantics is the point: every rule of
the traffic judge is shown to speak about exactly the fault that it is for, and to be quiet otherwise.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fixtures.client.endpoint import Endpoint

VOCABULARY = 30
END = 29
"""The end of an answer; a special token without text."""
BEST, SECOND = -0.01, -6.0


class Letters:
    """The stand-in's tokenizer: one letter an id."""

    def of(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """The text of ids."""
        return "".join(chr(97 + i) if i != END else ("$" if keep_special else "") for i in ids)

    def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        return [ord(c) % END for c in text]


@dataclass
class StandIn:
    """The server's state. `faults` are names that the handler below looks for."""

    faults: frozenset[str] = frozenset()
    drafts: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    visits: list[threading.Event] = field(default_factory=list)
    """One for each request that is being answered; set once another one was here at the same time."""

    @contextmanager
    def present(self) -> Iterator[threading.Event]:
        """Count a request among those that are being answered."""
        visit = threading.Event()
        with self.lock:
            self.visits.append(visit)
            if len(self.visits) > 1:
                for one in self.visits:
                    one.set()
        try:
            yield visit
        finally:
            with self.lock:
                self.visits.remove(visit)

    def next_id(self, ids: Sequence[int]) -> int:
        """What the model says after ids."""
        last = sum((n + 1) * i for n, i in enumerate(ids[-7:])) + 3 * len(ids)
        return END if len(ids) > 6 and last % 41 == 0 else last % END

    def answer(
        self, prompt: list[int], options: dict[str, Any], *, in_company: bool = False
    ) -> tuple[list[int], str, Any]:
        """Ids, finish reason and stop reason of one answer."""
        cap, said = int(options.get("max_tokens") or 16), []
        while len(said) < cap:
            token = self.next_id(prompt + said)
            if str(token) in (options.get("logit_bias") or {}):
                token = (token + 1) % END
            if "wrong-token" in self.faults and len(said) == 5:
                token = (token + 1) % END
            if "wrong-beside-others" in self.faults and in_company and len(said) == 2:
                token = (token + 1) % END
            early = len(said) < int(options.get("min_tokens") or 0)
            if token == END and (options.get("ignore_eos") or early):
                token = 1
            said.append(token)
            if token == END:
                return said, "stop", None
            stops = options.get("stop_token_ids") or ()
            if token in stops and not early and "stop-id-ignored" not in self.faults:
                return said, "stop", token
            found = [s for s in options.get("stop") or () if s in Letters().of(said)]
            if found:
                return said, "stop", found[0]
        return said, "length", None


def _row(token: int, count: int) -> dict[str, float]:
    return {f"token_id:{(token + n) % VOCABULARY}": BEST if n == 0 else SECOND - n for n in range(count)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: StandIn

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """The counters."""
        numbers = dict(self.state.numbers)
        lines = [f'vllm:{name}{{model_name="m"}} {value}' for name, value in numbers.items()]
        leak = 0.25 if "leak" in self.state.faults and numbers.get("generation_tokens_total") else 0
        lines += [f"vllm:num_requests_running {len(self.state.visits)}", "vllm:num_requests_waiting 0"]
        lines += [f"vllm:kv_cache_usage_perc {leak}"]
        self._send(200, ("\n".join(lines) + "\n").encode(), "text/plain")

    def do_POST(self) -> None:
        """One request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state = self.state
        if "prompt_logprobs" in body and self.path == "/v1/completions" and body.get("max_tokens") == 1:
            prompt = body["prompt"]
            rows: list[Any] = [None]
            for n in range(1, len(prompt)):
                best = StandIn().next_id(prompt[:n])
                ids = {best, prompt[n]}
                rows.append({str(i): {"logprob": BEST if i == best else SECOND} for i in ids})
        else:
            rows = []
        with state.present() as visit:
            if "wrong-beside-others" in state.faults:
                visit.wait(0.06)
            self._answer(body, rows, in_company=visit.is_set())

    def _answer(self, body: dict[str, Any], rows: list[Any], *, in_company: bool) -> None:
        state, chat = self.state, self.path.endswith("chat/completions")
        if "refuses-seeds" in state.faults and "seed" in body:
            self._send(400, json.dumps({"error": {"message": "no seeds today"}}).encode())
            return
        prompt = body.get("prompt")
        if chat:
            prompt = [*Letters().ids("".join(m["content"] for m in body["messages"])), 0]
        elif isinstance(prompt, str):
            prompt = Letters().ids(prompt)
        ids, reason, stop = state.answer(prompt, body, in_company=in_company)
        counted = len(ids) + ("usage-counts-one-more" in state.faults and len(ids) > 3)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": counted,
            "total_tokens": len(prompt) + counted,
        }
        for _ in range(int(body.get("n") or 1)):
            self._count(prompt, ids, reason)
        text = Letters().of(ids[:-1] if isinstance(stop, int) else ids)
        if isinstance(stop, str):
            text = text[: text.index(stop)] + (stop if body.get("include_stop_str_in_output") else "")
        count = int(body.get("top_logprobs") or 0) if chat else body.get("logprobs")
        shift = 1 if "logprobs-one-late" in state.faults else 0
        places = [_row(ids[max(0, n - shift)], count or 1) for n in range(len(ids))] if count else None
        common = {"id": "r1", "model": "m", "object": "x", "created": 1}
        many = int(body.get("n") or 1)
        if not body.get("stream"):
            choices = [
                self._choice(chat, i, text, ids, reason, stop, places)
                | ({"prompt_logprobs": rows} if rows else {})
                for i in range(many)
            ]
            usage["completion_tokens"] *= many
            usage["total_tokens"] = len(prompt) + usage["completion_tokens"]
            whole = common | {"choices": choices, "usage": usage, "prompt_token_ids": prompt}
            self._send(200, json.dumps(whole).encode())
            return
        self._stream(body, chat, common, many, text, ids, reason, stop, places, usage)

    def _choice(
        self, chat: bool, index: int, text: str, ids: list[int], reason: Any, stop: Any, places: Any
    ) -> dict[str, Any]:
        said: dict[str, Any] = {
            "index": index,
            "token_ids": ids,
            "finish_reason": reason,
            "stop_reason": stop,
        }
        said |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return said | {"logprobs": self._logprobs(chat, places, ids)}

    def _logprobs(self, chat: bool, places: Any, ids: list[int]) -> Any:
        if places is None:
            return None
        if chat:
            return {
                "content": [
                    {
                        "token": next(iter(row)),
                        "logprob": next(iter(row.values())),
                        "top_logprobs": [{"token": t, "logprob": v} for t, v in row.items()],
                    }
                    for row in places
                ]
            }
        return {
            "tokens": [next(iter(row)) for row in places],
            "token_logprobs": [next(iter(row.values())) for row in places],
            "top_logprobs": places,
        }

    def _stream(self, body, chat, common, many, text, ids, reason, stop, places, usage) -> None:  # type: ignore[no-untyped-def]
        asked = body.get("stream_options") or {}
        events: list[str] = []
        step = 2
        for index in range(many):
            for at in range(0, len(ids), step):
                part, last = ids[at : at + step], at + step >= len(ids)
                piece = text[at : at + step] if not last else text[at:]
                if "drops-last-delta" in self.state.faults and last:
                    piece = ""
                choice: dict[str, Any] = {
                    "index": index,
                    "token_ids": part,
                    "finish_reason": reason if last else None,
                }
                choice |= {"stop_reason": stop if last else None}
                choice |= {"delta": {"content": piece}} if chat else {"text": piece}
                choice |= {"logprobs": self._logprobs(chat, places[at : at + step] if places else None, part)}
                event = common | {"choices": [choice]}
                if asked.get("continuous_usage_stats"):
                    event |= {"usage": usage | {"completion_tokens": at + len(part)}}
                events.append(json.dumps(event))
            if "goes-on-after-end" in self.state.faults:
                events.append(
                    json.dumps(common | {"choices": [{"index": index, "text": "x", "token_ids": [1]}]})
                )
        if asked.get("include_usage"):
            total = {"completion_tokens": usage["completion_tokens"] * many}
            total["total_tokens"] = usage["prompt_tokens"] + total["completion_tokens"]
            events.append(json.dumps(common | {"choices": [], "usage": usage | total}))
        if "no-done" not in self.state.faults:
            events.append("[DONE]")
        self._send(200, "".join(f"data: {e}\n\n" for e in events).encode(), "text/event-stream")

    def _count(self, prompt: list[int], ids: list[int], reason: str) -> None:
        numbers = self.state.numbers
        numbers["prompt_tokens_total"] += len(prompt)
        made = len(ids) - ("counts-too-few" in self.state.faults)
        numbers["generation_tokens_total"] += made
        if self.state.drafts and "no-draft-counters" not in self.state.faults:
            rounds = max(0, len(ids) - 1)
            numbers["spec_decode_num_drafts_total"] += rounds
            numbers["spec_decode_num_draft_tokens_total"] += rounds * self.state.drafts
            lies = 1 if "accepts-more-than-drafted" in self.state.faults else 0
            numbers["spec_decode_num_accepted_tokens_total"] += lies * (rounds * self.state.drafts + 1)

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the traffic."""


@contextmanager
def standing_in(*faults: str, drafts: int = 0) -> Iterator[Endpoint]:
    """A stand-in server on loopback, with faults."""
    state = StandIn(frozenset(faults), drafts)
    if drafts and "no-draft-counters" not in faults:
        state.numbers.update(
            {f"spec_decode_num_{n}_total": 0 for n in ("drafts", "draft_tokens", "accepted_tokens")}
        )
    handler = type("Handler", (_Handler,), {"state": state})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}", None, "m")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
