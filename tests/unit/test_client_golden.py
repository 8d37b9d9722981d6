"""The stand-in server itself: it sends what its script says, when it says so, and tells the truth about
it."""

from __future__ import annotations

import itertools
import json
import re
import socket

import pytest

from tests.unit.golden.script import (
    MISSING,
    Script,
    every,
    inside_characters,
    plain,
    script,
    stream,
    usage,
    whole,
)
from tests.unit.golden.server import GoldenServer

WORDS = ["Zür", "ich ", "🜲", " – ", "naïve", " end"]


def fetch(server: GoldenServer) -> bytes:
    """A client of its own, with nothing of the one under test."""
    host, port = server.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/x HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        data = b""
        while more := connection.recv(7):
            data += more
    return data


def body_of(wire: bytes) -> bytes:
    return b"".join(re.findall(rb"[0-9a-f]+\r\n(data: .*?\n\n)\r\n", wire, re.S))


@pytest.mark.parametrize(
    "cut", [whole, every(1), every(5), inside_characters], ids=["whole", "1", "5", "utf8"]
)
@pytest.mark.parametrize("coalesce", [1, 3])
def test_bytes_on_the_wire_are_the_same_however_they_are_cut(cut, coalesce):
    answer = stream(WORDS, usage=usage(3, 6))
    uncut = b"".join(s.data for s in script(answer).sends)
    with GoldenServer(script(answer, cut=cut, coalesce=coalesce)) as server:
        assert fetch(server) == uncut
    assert len(server.exchanges[0].before_ns) == len(server.exchanges[0].script.sends)


@pytest.mark.parametrize(
    "cut", [whole, every(1), every(7), inside_characters], ids=["whole", "1", "7", "utf8"]
)
@pytest.mark.parametrize(("coalesce", "ids_per_event"), [(1, 1), (2, 1), (1, 3), (2, [1, 2])])
def test_an_id_is_dated_by_the_send_that_completes_its_event(cut, coalesce, ids_per_event):
    made = script(stream(WORDS, ids_per_event=ids_per_event, usage=usage(3, 6)), cut=cut, coalesce=coalesce)
    for number, token_id in enumerate(made.ids):
        complete = b"".join(s.data for s in made.sends[: made.id_sends[number] + 1])
        before = b"".join(s.data for s in made.sends[: made.id_sends[number]])
        event = re.compile(rb'"token_ids": \[[0-9, ]*\b%d\b.*?\n\n' % token_id, re.S)
        assert event.search(complete), f"id {token_id} is not complete with send {made.id_sends[number]}"
        assert not event.search(before), f"id {token_id} was complete before"


def test_characters_are_really_cut():
    made = script(stream(WORDS), cut=inside_characters)
    broken = 0
    for send in made.sends:
        try:
            send.data.decode("utf-8")
        except UnicodeDecodeError:
            broken += 1
    assert broken >= 2 * 3


def test_usage_can_be_absent_null_or_any_count():
    def sent(**kw) -> str:
        return b"".join(s.data for s in script(stream(WORDS, **kw)).sends).decode()

    assert "usage" not in sent()
    assert '"usage": null' in sent(usage=None)
    assert "cached_tokens" not in sent(usage=usage(3, 6, MISSING))
    assert '"cached_tokens": null' in sent(usage=usage(3, 6, None))
    assert '"cached_tokens": 7' in sent(usage=usage(3, 6, 7))


def test_stopping_early_sends_exactly_the_first_ids_and_no_last_chunk():
    answer = stream(WORDS, usage=usage(3, 6))
    made = script(answer, stop_after=2)
    with GoldenServer(made) as server:
        wire = fetch(server)
    assert made.ids == (100, 101)
    assert made.content == "".join(WORDS[:2])
    assert body_of(wire).count(b"token_ids") == 2
    assert not wire.endswith(b"0\r\n\r\n")


def test_waits_are_kept_and_recorded():
    with GoldenServer(script(stream(["a", "b", "c"], wait_s=0.03))) as server:
        fetch(server)
    sent = server.exchanges[0].id_before_ns
    gaps = [b - a for a, b in itertools.pairwise(sent)]
    assert len(sent) == 3
    assert sum(gaps) >= 0.055e9, f"three sends 30 ms apart took {gaps} ns"


def test_the_request_is_recorded_and_scripts_follow_each_other():
    replies: list[Script] = [plain(500, b"{}"), script(stream(["a"]))]
    with GoldenServer(replies) as server:
        first, second = fetch(server), fetch(server)
    assert first.startswith(b"HTTP/1.1 500")
    assert second.startswith(b"HTTP/1.1 200")
    assert [json.loads(e.body) for e in server.exchanges] == [{}, {}]
    assert server.exchanges[0].route == "/v1/x"
