"""Running a suite, in whatever order and however many at once, and the ledger of what a server has seen."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from fixtures.client.ask import GIVE_UP_AFTER, run_suite
from fixtures.client.endpoint import Endpoint
from fixtures.client.ledger import FreshnessLedger, RepeatedPrompt
from fixtures.client.stream import error_kind
from fixtures.prompts.suite import Suite
from tests.unit.golden.script import Script, plain, script, stream, usage
from tests.unit.golden.server import Exchange, GoldenServer

SUITE = Suite.model_validate(
    {
        "schema": "draftproof-suite-1",
        "name": "six",
        "description": "six prompts",
        "prompts": [
            {"id": f"p{i}", "class": "even" if i % 2 == 0 else "odd", "user": f"Say {i}.", "max_tokens": 4}
            for i in range(6)
        ],
    }
)


def number_of(exchange: Exchange) -> int:
    return int(exchange.json["messages"][0]["content"].split()[1].strip("."))


def answer_by_prompt(exchange: Exchange) -> Script:
    """Every prompt has ids of its own, so that a mix-up of answers shows."""
    number = number_of(exchange)
    return script(stream(["a", "b"], first_id=10 * number, wait_s=0.002, usage=usage(3, 2)))


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("order", ["given", "reversed", 7])
def test_a_suite_comes_back_in_its_own_order_whatever_was_sent_first(concurrency, order):
    with GoldenServer(answer_by_prompt) as server:
        transcripts = run_suite(
            Endpoint(server.base_url, None, "m"),
            SUITE,
            arm="a",
            concurrency=concurrency,
            order=order,
            first_order=20,
        )
    assert [t.prompt_id for t in transcripts] == [p.id for p in SUITE.prompts]
    assert [t.token_ids for t in transcripts] == [(10 * i, 10 * i + 1) for i in range(6)]
    assert [t.error for t in transcripts] == [None] * 6
    assert sorted(t.order for t in transcripts) == list(range(20, 26))
    if concurrency == 1:
        sent = [number_of(e) for e in server.exchanges]
        assert sent == [int(t.prompt_id[1:]) for t in sorted(transcripts, key=lambda t: t.order)]
    if order == "reversed":
        assert [t.order for t in transcripts] == [25, 24, 23, 22, 21, 20]


def test_a_seeded_order_is_a_permutation_that_the_seed_decides():
    with GoldenServer(answer_by_prompt) as server:
        endpoint = Endpoint(server.base_url, None, "m")
        orders = [[t.order for t in run_suite(endpoint, SUITE, arm="a", order=seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_no_more_requests_run_at_once_than_were_asked_for():
    lock, running, most = threading.Lock(), 0, 0
    barrier = threading.Barrier(3)

    def reply(exchange: Exchange) -> Script:
        return answer_by_prompt(exchange)

    class Counting(GoldenServer):
        def _play(self, connection: socket.socket, request: Exchange) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            barrier.wait(10)  # passes only when three requests are open at once
            super()._play(connection, request)
            with lock:
                running -= 1

    with Counting(reply) as server:
        transcripts = run_suite(Endpoint(server.base_url, None, "m"), SUITE, arm="a", concurrency=3)
    assert [t.error for t in transcripts] == [None] * 6
    assert most == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_progress_and_traces_are_handed_out_for_every_answer(concurrency):
    seen, kept = [], {}
    with GoldenServer(answer_by_prompt) as server:
        transcripts = run_suite(
            Endpoint(server.base_url, None, "m"),
            SUITE,
            arm="a",
            concurrency=concurrency,
            progress=lambda done, total, ids: seen.append((done, total, ids)),
            on_trace=lambda transcript, trace: kept.update({transcript.prompt_id: trace.raw}),
        )
    assert seen == [(i, 6, 2 * i if concurrency == 1 else None) for i in range(1, 7)]
    assert {t.prompt_id for t in transcripts} == set(kept)
    assert all(b"token_ids" in raw for raw in kept.values())


@pytest.mark.parametrize("concurrency", [1, 4])
def test_one_bad_answer_does_not_touch_the_others(concurrency):
    def reply(exchange: Exchange) -> Script:
        return plain(500, b'{"error":"boom"}') if number_of(exchange) == 2 else answer_by_prompt(exchange)

    with GoldenServer(reply) as server:
        transcripts = run_suite(Endpoint(server.base_url, None, "m"), SUITE, arm="a", concurrency=concurrency)
    assert [t.error for t in transcripts] == [None, None, "http: status 500: boom", None, None, None]


def test_an_interrupt_does_not_wait_for_open_streams():
    """Whoever is interrupted has a server to stop; only that ends the streams."""
    silent = Script(script(stream(["a"])).sends[:2], linger_s=20)

    def reply(exchange: Exchange) -> Script:
        return plain(200, b"{}") if number_of(exchange) == 0 else silent

    def interrupt(done: int, total: int, ids: int | None) -> None:
        raise KeyboardInterrupt

    with GoldenServer(reply) as server:
        endpoint = Endpoint(server.base_url, None, "m")
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run_suite(endpoint, SUITE, arm="a", concurrency=2, progress=interrupt)
        took_s = time.monotonic() - began
    assert took_s < 10, "waited for a stream that stays open for 20 s"


def test_a_dead_server_is_given_up_and_the_rest_says_so():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    transcripts = run_suite(Endpoint(f"http://127.0.0.1:{port}", None, "m"), SUITE, arm="a")
    kinds = [error_kind(t.error or "") for t in transcripts]
    assert kinds == ["connect"] * GIVE_UP_AFTER + ["not-sent"] * (6 - GIVE_UP_AFTER)
    assert "connect: " in (transcripts[-1].error or "")


@pytest.mark.parametrize(
    "kw", [{"concurrency": 0}, {"order": "random"}, {"order": True}, {"extra": {"n": 2}}]
)
def test_a_suite_that_cannot_be_run_raises_before_anything_is_sent(kw):
    with (
        GoldenServer(answer_by_prompt) as server,
        pytest.raises(ValueError, match=r"concurrency|order|extra"),
    ):
        run_suite(Endpoint(server.base_url, None, "m"), SUITE, arm="a", **kw)
    assert server.exchanges == []


def test_a_second_measured_run_on_one_server_is_refused_before_the_first_request():
    ledger = FreshnessLedger("server-1")
    with GoldenServer(answer_by_prompt) as server:
        endpoint = Endpoint(server.base_url, None, "m")
        run_suite(endpoint, SUITE, arm="a", ledger=ledger)
        with pytest.raises(RepeatedPrompt, match="server-1 has already been asked: p0, p1"):
            run_suite(endpoint, SUITE, arm="b", ledger=ledger, max_tokens=2)
    assert len(server.exchanges) == 6
    assert len(ledger) == 6


def test_the_ledger_names_the_prompt_that_asked_the_same_under_another_id():
    ledger = FreshnessLedger("s")
    ledger.enter({"warm-up": "hash"})
    with pytest.raises(RepeatedPrompt, match=r"p1 \(asked before as warm-up\)"):
        ledger.enter({"p0": "other", "p1": "hash"})
    ledger.enter({"p0": "other"})  # the refused call entered nothing
    with pytest.raises(RepeatedPrompt, match=r"p3 \(asked before as p2\)"):
        ledger.enter({"p2": "same", "p3": "same"})
