"""What the stand-in server sends: wire bytes in numbered sends, and the truth about them.

Events, framing and cutting are separate steps, and the truth (which id is complete with which send) is
counted here while the bytes are put together. It never goes through the client's parser.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class Event:
    """One event of a stream: its bytes with the blank line, and the ids that it carries."""

    data: bytes
    ids: tuple[int, ...] = ()
    wait_s: float = 0.0
    """How long the server waits before it sends this event."""
    text: str = ""


@dataclass(frozen=True)
class Send:
    """One `sendall`: the bytes, and how long after the send before it."""

    data: bytes
    wait_s: float = 0.0


@dataclass(frozen=True)
class Script:
    """Everything that one response does."""

    sends: tuple[Send, ...]
    ids: tuple[int, ...] = ()
    id_sends: tuple[int, ...] = ()
    """For each id, the number of the send that completes its event."""
    content: str = ""
    reasoning: str = ""
    reset: bool = False
    """Close with a reset (RST) instead of an orderly end."""
    linger_s: float = 0.0
    """How long the connection stays open after the last send."""


@dataclass(frozen=True)
class Stream:
    """An answer as events, before framing and cutting."""

    events: tuple[Event, ...]
    channel: str = "content"


MISSING: Any = object()
"""A field that is left out, where `None` means a JSON null."""


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: Any = 0) -> dict[str, Any]:
    """A usage object; `cached_tokens` may be a number, `None` or `MISSING`."""
    fields: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if cached_tokens is not MISSING:
        fields["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return fields


def stream(
    words: Sequence[str],
    *,
    ids_per_event: int | Sequence[int] = 1,
    chat: bool = True,
    channel: str = "content",
    first_id: int = 100,
    wait_s: float = 0.0,
    role_wait_s: float | None = None,
    finish_reason: str | None = "stop",
    usage: Any = MISSING,
    done: bool = True,
    prompt_ids: Sequence[int] = (1, 2, 3),
    with_ids: bool = True,
    newline: str = "\n",
) -> Stream:
    """An answer of one id per word, as vLLM streams it: role event, id events, usage event, `[DONE]`.

    Args:
        ids_per_event: how many ids each event carries; a sequence is repeated until the words are used up.
        channel: field of the delta that carries the text (`content`, `reasoning`, `reasoning_content`).
        role_wait_s: pause before the role event; `None` leaves that event out.
        usage: the usage object; `None` is sent as a null, `MISSING` sends no usage event at all.
    """
    counts = [ids_per_event] if isinstance(ids_per_event, int) else list(ids_per_event)
    blank = newline * 2

    def event(body: Mapping[str, Any], ids: tuple[int, ...] = (), wait: float = 0.0, text: str = "") -> Event:
        kind = "chat.completion.chunk" if chat else "text_completion"
        frame = {
            "id": "chatcmpl-0123456789abcdef",
            "object": kind,
            "created": 1_790_000_000,
            "model": "golden",
        }
        frame |= body
        return Event(f"data: {json.dumps(frame, ensure_ascii=False)}{blank}".encode(), ids, wait, text)

    def choice(text: str, reason: str | None) -> dict[str, Any]:
        said = {"delta": {channel: text}} if chat else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": reason}

    events = []
    if role_wait_s is not None:
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        events.append(event({"choices": [role], "prompt_token_ids": list(prompt_ids)}, wait=role_wait_s))
    place = turn = 0
    while place < len(words):
        count = min(counts[turn % len(counts)], len(words) - place)
        ids = tuple(range(first_id + place, first_id + place + count))
        last = place + count == len(words)
        text = "".join(words[place : place + count])
        one = choice(text, finish_reason if last else None)
        if with_ids:
            one["token_ids"] = list(ids)
        if not chat and place == 0:
            one["prompt_token_ids"] = list(prompt_ids)
        events.append(event({"choices": [one]}, ids if with_ids else (), wait_s, text))
        place, turn = place + count, turn + 1
    if usage is not MISSING:
        events.append(event({"choices": [], "usage": usage}))
    if done:
        events.append(Event(f"data: [DONE]{blank}".encode()))
    return Stream(tuple(events), channel)


Cut = Callable[[bytes], Sequence[bytes]]
"""Cuts the wire bytes of one event into the sends that carry it."""


def whole(data: bytes) -> Sequence[bytes]:
    """One send an event."""
    return [data]


def every(size: int) -> Cut:
    """Sends of `size` bytes: events, chunk sizes and UTF-8 characters are all cut somewhere."""
    return lambda data: [data[i : i + size] for i in range(0, len(data), size)]


def inside_characters(data: bytes) -> Sequence[bytes]:
    """Cut after the first byte of every character that has several."""
    places = [i + 1 for i, byte in enumerate(data) if byte >= 0xC0]
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def script(
    answer: Stream,
    *,
    cut: Cut = whole,
    coalesce: int = 1,
    events_per_chunk: int = 1,
    cut_wait_s: float = 0.0,
    stop_after: int | None = None,
    reset: bool = False,
    head: bytes = HEAD,
    linger_s: float = 0.0,
) -> Script:
    """Frame and cut an answer.

    Args:
        coalesce: this many consecutive pieces become one send.
        events_per_chunk: this many events share one HTTP chunk.
        cut_wait_s: pause between the sends of one piece.
        stop_after: only this many id events are sent, then the connection ends without a last chunk.
    """
    events = list(answer.events)
    if stop_after is not None:
        carrying = [i for i, e in enumerate(events) if e.ids]
        events = events[: carrying[stop_after]]
    pieces: list[tuple[bytes, float]] = []  # wire bytes and the pause before them
    id_ends: list[int] = []  # for each id, where its event ends on the wire
    wire_bytes = len(head)
    for begin in range(0, len(events), events_per_chunk):
        group = events[begin : begin + events_per_chunk]
        data = b"".join(e.data for e in group)
        size_line = f"{len(data):x}\r\n".encode()
        end = wire_bytes + len(size_line)
        for event in group:
            end += len(event.data)
            id_ends += [end] * len(event.ids)
        framed = size_line + data + b"\r\n"
        wire_bytes += len(framed)
        pieces.append((framed, sum(e.wait_s for e in group)))
    sends: list[Send] = [Send(head)]
    for begin in range(0, len(pieces), coalesce):
        batch = pieces[begin : begin + coalesce]
        parts = cut(b"".join(p[0] for p in batch))
        sends += [Send(part, cut_wait_s if n else sum(p[1] for p in batch)) for n, part in enumerate(parts)]
    send_ends = list(itertools.accumulate(len(s.data) for s in sends))
    id_sends = [bisect.bisect_left(send_ends, end) for end in id_ends]
    if stop_after is None:
        sends.append(Send(LAST_CHUNK))
    text = "".join(e.text for e in events)
    thought = answer.channel != "content"
    return Script(
        tuple(sends),
        tuple(i for e in events for i in e.ids),
        tuple(id_sends),
        "" if thought else text,
        text if thought else "",
        reset,
        linger_s,
    )


def plain(status: int, body: bytes, content_type: str = "application/json") -> Script:
    """An answer that is not streamed, with a content length."""
    head = f"HTTP/1.1 {status} Golden\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return Script((Send(head.encode()), Send(body)))
