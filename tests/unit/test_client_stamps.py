"""Receive times do not depend on when the client is scheduled: the kernel's stamps, and a reader of its own."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.client import wire
from fixtures.client.ask import run_suite
from fixtures.client.endpoint import Endpoint
from fixtures.client.reader import Reader
from fixtures.client.stamps import receive_times
from fixtures.client.stream import Asked, error_kind, transcribe
from fixtures.prompts.suite import Suite
from tests.unit.golden.asking import PROMPT, assert_complete, assert_dated_by
from tests.unit.golden.script import every, inside_characters, script, stream, usage, whole
from tests.unit.golden.server import GoldenServer

WORDS = [f" w{n}" for n in range(40)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="not offered: this kernel gives no receive stamps")


def paced(gap_s: float = 0.01):
    return script(stream(WORDS, wait_s=gap_s, role_wait_s=0.0, usage=usage(3, len(WORDS))))


def asked(body: dict[str, object]) -> Asked:
    return Asked("s", "p1", "sort", "a", body)


@linux
def test_ids_that_waited_to_be_fetched_keep_the_time_at_which_they_came(monkeypatch) -> None:
    """A client that runs only every 30 ms sees bunches by its own clock; the kernel's stamps keep them apart."""
    fetch, fetched = wire._fetch, []

    def late(connection, got):
        time.sleep(0.03)
        fetched.append(time.monotonic_ns())
        fetch(connection, got)

    monkeypatch.setattr(wire, "_fetch", late)
    body = b'{"model": "golden", "stream": true, "return_token_ids": true}'
    with GoldenServer(paced()) as server:
        trace = wire.exchange(Endpoint(server.base_url, None, "golden"), "POST", "/v1/chat/completions", body)
    said = transcribe(trace, asked({"stream": True, "return_token_ids": True}))
    assert said.token_ids == server.exchanges[0].script.ids, said.error
    late_ns = [
        got - sent for got, sent in zip(said.receipt_ns, server.exchanges[0].id_before_ns, strict=True)
    ]
    assert min(late_ns) >= 0, "an id was received before the server sent it"
    apart = len(set(said.receipt_ns))
    assert apart > len(fetched), f"{len(WORDS)} ids in {len(fetched)} turns of the client have {apart} times"
    assert trace.kernel_stamps > 0


@pytest.mark.parametrize("cut", [whole, every(7), inside_characters], ids=["whole", "7", "utf8"])
def test_the_reader_receives_what_the_client_itself_receives(cut) -> None:
    answer = script(stream(["Zür", "ich ", "🜲", " – "], usage=usage(3, 4)), cut=cut)
    suite = Suite.model_validate(
        {"schema": "draftproof-suite-1", "name": "s", "description": "d", "prompts": [PROMPT]}
    )
    with GoldenServer(answer) as server, Reader() as reader:
        endpoint = Endpoint(server.base_url, "key", "golden")
        (ours,) = run_suite(endpoint, suite, arm="a")
        (theirs,) = run_suite(endpoint, suite, arm="a", send=reader.exchange)
    assert_complete(theirs, answer)
    assert_dated_by(server.exchanges[1], theirs)
    assert (theirs.token_ids, theirs.content) == (ours.token_ids, ours.content)
    assert server.exchanges[1].headers["authorization"] == "Bearer key"


def test_a_reader_that_died_is_infrastructure_and_says_so() -> None:
    with GoldenServer(paced()) as server, Reader() as reader:
        reader._process.send_signal(signal.SIGKILL)
        reader._process.wait()
        trace = reader.exchange(Endpoint(server.base_url, None, "golden"), "GET", "/health")
    assert error_kind(trace.error or "") == "not-sent"


def test_a_reader_ends_with_its_owner() -> None:
    reader = Reader()
    process = reader._process.pid
    reader.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_exchanges_of_one_reader_follow_each_other() -> None:
    """Two callers of one reader wait for each other: a measured answer has the reader to itself."""
    with GoldenServer(paced(0.001)) as server, Reader() as reader:
        endpoint, traces = Endpoint(server.base_url, None, "golden"), []
        body = b'{"model": "golden", "stream": true}'
        callers = [
            threading.Thread(target=lambda: traces.append(reader.exchange(endpoint, "POST", "/v1/x", body)))
            for _ in range(2)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    first, second = sorted(traces, key=lambda t: t.sent_ns)
    assert first.error is None
    assert second.error is None
    assert first.done_ns <= second.sent_ns


@given(
    came=st.lists(st.integers(0, 10**9), min_size=1, max_size=30),
    missing=st.sets(st.integers(0, 29)),
    offset=st.integers(-(10**15), 10**15),
    moved=st.sampled_from([0, 50_000, 10**9]),
)
def test_times_never_go_back_and_lie_between_sending_and_fetching(came, missing, offset, moved) -> None:
    sent_ns = 10**12
    fetched = [sent_ns + at + 10 for at in sorted(came)]
    stamps = [0 if i in missing else sent_ns + at - offset for i, at in enumerate(came)]
    times, by_kernel = receive_times(fetched, stamps, sent_ns, (offset, offset + moved))
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert all(sent_ns <= t <= f for t, f in zip(times, fetched, strict=True))
    if moved > 100_000:
        assert by_kernel == 0, "the wall clock was set meanwhile: its stamps say nothing"
        assert times == fetched
