"""Asking the stand-in server, and what a complete transcript looks like; shared by the client's tests."""

from __future__ import annotations

from fixtures.client.ask import ask
from fixtures.client.endpoint import Endpoint
from fixtures.client.stream import error_kind
from fixtures.client.transcript import Transcript
from fixtures.client.wire import Deadlines
from fixtures.prompts.suite import Prompt
from tests.unit.golden.script import (
    HEAD,
    LAST_CHUNK,
    Script,
    Send,
)
from tests.unit.golden.server import Exchange, GoldenServer

WORDS = ["Zür", "ich ", "🜲", " – ", "naïve", " end"]


PROMPT = Prompt.model_validate({"id": "p1", "class": "sort", "user": "Sort.", "max_tokens": 16})


SHORT = Deadlines(connect_s=2, first_byte_s=0.3, silence_s=0.3, total_s=5)


def answer_to(reply: Script, deadlines: Deadlines | None = None, **kw) -> tuple[Transcript, Exchange]:
    with GoldenServer(reply) as server:
        endpoint = Endpoint(server.base_url, "key", "golden")
        transcript = ask(endpoint, PROMPT, suite="s", arm="a", deadlines=deadlines, **kw)
    return transcript, server.exchanges[0]


def assert_complete(transcript: Transcript, truth: Script) -> None:
    assert transcript.error is None, transcript.error
    assert transcript.token_ids == truth.ids, f"{transcript.token_ids} instead of {truth.ids}"
    assert transcript.content == truth.content, f"{transcript.content!r} instead of {truth.content!r}"
    assert transcript.reasoning == truth.reasoning
    assert len(transcript.receipt_ns) == len(truth.ids)
    assert transcript.saw_done


def assert_dated_by(exchange: Exchange, transcript: Transcript) -> None:
    """Every id was received after the send that completes it began, and times never go back."""
    late = [got - sent for got, sent in zip(transcript.receipt_ns, exchange.id_before_ns, strict=True)]
    assert min(late) >= 0, f"received before it was sent: {late}"
    assert list(transcript.receipt_ns) == sorted(transcript.receipt_ns)
    assert transcript.sent_ns <= exchange.before_ns[0]
    assert transcript.done_ns >= transcript.receipt_ns[-1]


def kind_of(reply: Script, deadlines: Deadlines | None = None, **kw) -> str:
    transcript, _ = answer_to(reply, deadlines, **kw)
    assert transcript.error is not None, "the misbehaviour was not noticed"
    return error_kind(transcript.error)


def raw_stream(*payloads: bytes) -> Script:
    data = b"".join(b"data: " + p + b"\n\n" for p in payloads)
    return Script((Send(HEAD), Send(b"%x\r\n%s\r\n" % (len(data), data) + LAST_CHUNK)))


GOOD = b'{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[5]}]}'


GOOD_CHUNK = b"%x\r\ndata: %s\n\n\r\n" % (len(GOOD) + 8, GOOD)
