"""The clients that are compared. Each maker imports what its client needs and returns a function of (url,
events).

All of them take part in the same way: they receive the stream and hold text and count in the end. Only the
bare socket read does less (it keeps bytes and times), as the floor below which no client can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MESSAGES = [{"role": "user", "content": "Count."}]


@dataclass(frozen=True)
class Outcome:
    """What one stream cost its client, in CPU seconds of the process, and what it found in it."""

    cpu_s: float
    events: int
    reads: int | None = None
    receipt_ns: tuple[int, ...] = ()


Client = Callable[[str, int], Outcome]


def openai_sdk() -> Client:
    """The official client, streaming iterator."""
    import openai

    def run(url: str, events: int) -> Outcome:
        began = time.process_time()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            texts = []
            chunks: Any = client.chat.completions.create(
                model="golden",
                messages=[{"role": "user", "content": "Count."}],
                max_tokens=events,
                stream=True,
            )
            for chunk in chunks:
                if chunk.choices and chunk.choices[0].delta.content:
                    texts.append(chunk.choices[0].delta.content)
        return Outcome(time.process_time() - began, len(texts))

    return run


def httpx_lines() -> Client:
    """httpx line iteration with the standard library's json."""
    import json

    import httpx

    def run(url: str, events: int) -> Outcome:
        began = time.process_time()
        body = {"model": "golden", "messages": MESSAGES, "max_tokens": events, "stream": True}
        texts = []
        times = []
        with (
            httpx.Client(timeout=600, trust_env=False) as client,
            client.stream("POST", f"{url}/v1/chat/completions", json=body) as response,
        ):
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if event["choices"] and event["choices"][0]["delta"]["content"]:
                    times.append(time.perf_counter())
                    texts.append(event["choices"][0]["delta"]["content"])
        return Outcome(time.process_time() - began, len(texts))

    return run


def vllm_bench_serve() -> Client:
    """The request function that `vllm bench serve` uses for chat, out of the installed vLLM."""
    import asyncio

    import aiohttp
    from vllm.benchmarks.lib.endpoint_request_func import (
        RequestFuncInput,
        async_request_openai_chat_completions,
    )

    async def one(url: str, events: int) -> Any:
        asked = RequestFuncInput(
            prompt="Count.",
            api_url=f"{url}/v1/chat/completions",
            prompt_len=3,
            output_len=events,
            model="golden",
            extra_body={"max_tokens": events},
        )
        async with aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=600)
        ) as session:
            return await async_request_openai_chat_completions(asked, session)

    def run(url: str, events: int) -> Outcome:
        began = time.process_time()
        output = asyncio.run(one(url, events))
        cpu_s = time.process_time() - began
        if not output.success:
            raise SystemExit(output.error)
        return Outcome(cpu_s, output.output_tokens)

    return run


def bare_socket() -> Client:
    """Reads and times only, until the server closes: nothing is understood.

    Ids are dated afterwards, outside its CPU time: how late they are is what kernel and machine do.
    """
    import socket
    from urllib.parse import urlsplit

    from fixtures.client.framing import Events, date, read_head

    mark = b'"token_ids"'

    def run(url: str, events: int) -> Outcome:
        began = time.process_time()
        body = b'{"model":"golden","max_tokens":%d}' % events
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: golden\r\nContent-Length: %d\r\n\r\n" % len(body)
        reads, read_ns = [], []
        address = urlsplit(url)
        with socket.create_connection((address.hostname or "", address.port or 80)) as connection:
            connection.sendall(head + body)
            while data := connection.recv(16384):
                read_ns.append(time.monotonic_ns())
                reads.append(data)
        cpu_s = time.process_time() - began
        raw = b"".join(reads)
        response = read_head(raw)
        assert response is not None
        ends = [
            e
            for payloads, at in Events(raw, response)
            for p, e in zip(payloads, at, strict=True)
            if mark in p
        ]
        return Outcome(cpu_s, len(ends), len(reads), tuple(date(ends, map(len, reads), read_ns)))

    return run


def draftproof() -> Client:
    """Ours, from the request to the finished transcript."""
    from fixtures.client.ask import ask
    from fixtures.client.endpoint import Endpoint
    from fixtures.prompts.suite import Prompt

    def run(url: str, events: int) -> Outcome:
        reads = []
        prompt = Prompt.model_validate({"id": "p", "class": "count", "user": "Count.", "max_tokens": events})
        began = time.process_time()
        transcript = ask(
            Endpoint(url, None, "golden"),
            prompt,
            suite="benchmark",
            arm="golden",
            on_trace=lambda _, trace: reads.append(len(trace.reads)),
        )
        cpu_s = time.process_time() - began
        if transcript.error:
            raise SystemExit(transcript.error)
        return Outcome(cpu_s, len(transcript.token_ids), reads[0], transcript.receipt_ns)

    return run


CONTENDERS: dict[str, Callable[[], Client]] = {
    "openai SDK": openai_sdk,
    "httpx lines + json": httpx_lines,
    "vllm bench serve": vllm_bench_serve,
    "bare socket read": bare_socket,
    "draftproof": draftproof,
}
"""In the order of the table."""
