"""Running a suite, scoring, counters, the ledger and the endpoint."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from fixtures.client.ask import GIVE_UP_AFTER, run_suite
from fixtures.client.endpoint import Endpoint
from fixtures.client.ledger import FreshnessLedger, RepeatedPrompt
from fixtures.client.metrics import Counters, MetricsUnavailable, difference, parse_counters, read_counters
from fixtures.client.scoring import ScoringFailed, read_answer, score, score_steps
from fixtures.client.stream import error_kind
from fixtures.client.wire import Deadlines
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


METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 183.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 17.0
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 600.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 450.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 200.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 100.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 150.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_created gauge
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.79e+09
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 0.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
"""


def test_counters_are_summed_over_engines_and_a_missing_family_is_not_zero():
    counters = parse_counters(METRICS)
    assert counters == Counters(
        drafts=200,
        draft_tokens=600,
        accepted_tokens=450,
        accepted_per_position=(200, 150, 100),
        prefix_cache_queries=0,
        preemptions=1,
    )
    assert counters.prefix_cache_hits is None
    assert counters.acceptance == 0.75
    assert parse_counters("") == Counters()
    assert Counters().acceptance is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm:num_preemptions_total 1.5\n", "expected a count"),
        ("vllm:num_preemptions_total -1\n", "expected a count"),
        ("vllm:num_preemptions_total NaN\n", "expected a count"),
        ('vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1\n', "positions from 0 on"),
        ("vllm:spec_decode_num_accepted_tokens_per_pos_total 1\n", "has no position"),
    ],
)
def test_counters_that_are_no_counts_raise(text, words):
    with pytest.raises(ValueError, match=words):
        parse_counters(text)


def test_the_difference_of_two_readings_is_what_happened_between_them():
    before = Counters(drafts=10, accepted_per_position=(5, 2), prefix_cache_hits=0)
    after = Counters(drafts=25, accepted_per_position=(9, 2), prefix_cache_hits=0, preemptions=3)
    assert difference(before, after) == Counters(drafts=15, accepted_per_position=(4, 0), prefix_cache_hits=0)
    assert difference(before, after).preemptions is None, "there was no reading before"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Counters(drafts=5), Counters(drafts=4)),
        (Counters(accepted_per_position=(5, 5)), Counters(accepted_per_position=(6, 4))),
        (Counters(accepted_per_position=(5,)), Counters(accepted_per_position=(6, 4))),
    ],
)
def test_counters_that_go_back_are_not_from_one_server(before, after):
    with pytest.raises(ValueError, match=r"went down|positions before"):
        difference(before, after)


def test_counters_are_read_from_the_servers_root_with_the_key():
    with GoldenServer(plain(200, METRICS.encode(), "text/plain")) as server:
        assert read_counters(Endpoint(server.base_url + "/v1", "k", "m")).drafts == 200
    assert server.exchanges[0].route == "/metrics"
    assert server.exchanges[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(("status", "body"), [(404, b""), (200, b"<html>"), (200, b"\xff")])
def test_unreadable_metrics_raise(status, body):
    with GoldenServer(plain(status, body)) as server, pytest.raises(MetricsUnavailable, match="/metrics: "):
        read_counters(Endpoint(server.base_url, None, "m"))


def scored(count: int = 20, **changes) -> bytes:
    top = {f"token_id:{i}": -0.5 * i - 0.001 for i in range(count)}
    logprobs = {"tokens": ["token_id:0"], "token_logprobs": [-0.001], "top_logprobs": [top]} | changes
    choice = {"index": 0, "text": "a", "logprobs": logprobs, "token_ids": [0], "prompt_token_ids": [7, 8]}
    return json.dumps({"choices": [choice], "usage": {}}).encode()


def test_scoring_returns_logprobs_by_token_id():
    with GoldenServer(plain(200, scored())) as server:
        token = score(Endpoint(server.base_url, "k", "m"), [7, 8])
    assert token.best == 0
    assert token.margin_nats == pytest.approx(0.5)
    assert token.gap_nats(3) == pytest.approx(1.5)
    assert token.gap_nats(99) is None, "an id that was not among the best is unknown"
    assert (token.context_length, len(token.logprobs)) == (2, 20)
    assert server.exchanges[0].json == {
        "model": "m",
        "prompt": [7, 8],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 20,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def test_the_steps_of_an_answer_are_scored_with_the_ids_that_were_chosen():
    tops = [{"token_id:4": -1.0, "token_id:3": -1.0}, {"token_id:9": -0.1, "token_id:8": -3.0}]
    reply = scored(top_logprobs=tops).replace(b'"token_ids": [0]', b'"token_ids": [4, 9]')
    with GoldenServer(plain(200, reply)) as server:
        steps = score_steps(Endpoint(server.base_url, None, "m"), [7, 8], 2, top=2)
    assert [(s.context_length, s.best, s.chosen) for s in steps] == [(2, 3, 4), (3, 9, 9)]
    sent = server.exchanges[0].json
    assert (sent["max_tokens"], sent["ignore_eos"]) == (2, True)


def test_an_answer_with_fewer_steps_than_asked_for_is_refused():
    with GoldenServer(plain(200, scored())) as server, pytest.raises(ScoringFailed, match="of 3 next token"):
        score_steps(Endpoint(server.base_url, None, "m"), [7, 8], 3)
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        score_steps(Endpoint("http://127.0.0.1:9", None, "m"), [7, 8], 0)


def test_of_equal_logprobs_the_lower_id_is_best_and_the_margin_is_zero():
    top = {f"token_id:{i}": -1.0 for i in (5, 3)}
    with GoldenServer(plain(200, scored(top_logprobs=[top]))) as server:
        token = score(Endpoint(server.base_url, None, "m"), [7, 8], top=2)
    assert (token.best, token.margin_nats) == (3, 0.0)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (plain(400, b'{"error":"logprobs too large"}'), "status 400.*logprobs too large"),
        (plain(200, b"{}"), "choices"),
        (plain(200, scored(count=7)), "asked for the 20 best tokens, got 7"),
        (plain(200, scored(top_logprobs=[{"the": -1.0}])), "expected token_id:N"),
        (plain(200, scored(top_logprobs=None)), "no log-probabilities"),
        (plain(200, scored().replace(b"[7, 8]", b"[7, 9]")), "other ids"),
        (plain(200, scored().replace(b'"token_id:0": -0.001', b'"token_id:0": NaN')), "JSON is malformed"),
    ],
)
def test_a_server_that_does_not_score_is_named(reply, words):
    with GoldenServer(reply) as server, pytest.raises(ScoringFailed, match=words):
        score(Endpoint(server.base_url, None, "m"), [7, 8])


@pytest.mark.parametrize(("ids", "top"), [([], 20), ([-1], 20), ([1], 1), ([1], 21)])
def test_scoring_what_cannot_be_scored_raises(ids, top):
    with pytest.raises(ValueError, match=r"context_ids|top"):
        score(Endpoint("http://127.0.0.1:9", None, "m"), ids, top=top)


def read_reply(places: list | None = None, **changes) -> bytes:
    """A reply to prompt [7, 8] and answer [4, 9, 5]: the last token is the next one after the others."""
    places = (
        places
        if places is not None
        else [
            None,
            {"8": {"logprob": -2.0, "rank": 3}},
            {"4": {"logprob": -0.1, "rank": 1}, "3": {"logprob": -3.0, "rank": 2}},
            {
                "9": {"logprob": -7.5, "rank": 250},
                "1": {"logprob": -0.5, "rank": 1},
                "2": {"logprob": -1.5, "rank": 2},
            },
        ]
    )
    top = {"token_id:6": -0.25, "token_id:5": -0.375}
    choice = {
        "index": 0,
        "text": "a",
        "logprobs": {"tokens": ["token_id:6"], "token_logprobs": [-0.25], "top_logprobs": [top]},
        "token_ids": [6],
        "prompt_token_ids": [7, 8, 4, 9],
        "prompt_logprobs": places,
    }
    return json.dumps({"choices": [choice | changes], "usage": {}}).encode()


def test_an_answer_is_read_at_once_and_its_last_token_is_the_next_one():
    with GoldenServer(plain(200, read_reply())) as server:
        read = read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 5], top=2)
    assert read.logprobs == (-0.1, -7.5, -0.375)
    assert read.ranks == (1, 250, 2)
    assert read.best == (-0.1, -0.5, -0.25)
    assert read.heads == {1: {9: -7.5, 1: -0.5, 2: -1.5}, 2: {6: -0.25, 5: -0.375}}
    sent = server.exchanges[0].json
    assert (sent["prompt"], sent["max_tokens"], sent["prompt_logprobs"]) == ([7, 8, 4, 9], 1, 2)


def test_a_last_token_that_is_not_among_the_best_has_no_logprob_and_no_rank():
    with GoldenServer(plain(200, read_reply())) as server:
        read = read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 77], top=2)
    assert (read.logprobs[2], read.ranks[2], read.worst[2]) == (None, None, -0.375)
    assert 2 in read.heads


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (plain(400, b'{"error":"token 9999 is out of vocabulary"}'), "status 400.*out of vocabulary"),
        (plain(200, read_reply(prompt_logprobs=None)), "no log-probabilities of a prompt"),
        (plain(200, read_reply([None] * 3)), "of 3 prompt tokens, 4 were sent"),
        (plain(200, read_reply([None] * 4)), "no log-probabilities of prompt token 2"),
        (plain(200, read_reply(prompt_token_ids=[7, 8, 4, 1])), "other ids"),
    ],
)
def test_a_server_that_does_not_read_answers_is_named(reply, words):
    with GoldenServer(reply) as server, pytest.raises(ScoringFailed, match=words):
        read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 5], top=2)


@pytest.mark.parametrize(
    ("prompt", "answer", "top"), [([], [1], 20), ([1], [], 20), ([1], [-1], 20), ([1], [1], 0)]
)
def test_reading_what_cannot_be_read_raises(prompt, answer, top):
    with pytest.raises(ValueError, match=r"prompt_ids|top"):
        read_answer(Endpoint("http://127.0.0.1:9", None, "m"), prompt, answer, top=top)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"]
)
def test_an_endpoint_is_the_same_with_and_without_v1(url):
    endpoint = Endpoint(url, "secret-key", "m")
    assert endpoint == Endpoint("http://127.0.0.1:8000", "secret-key", "m")
    assert endpoint.openai_base_url == "http://127.0.0.1:8000/v1"
    assert endpoint.address == ("127.0.0.1", 8000)
    assert "secret" not in repr(endpoint)


def test_an_endpoint_below_a_path_keeps_it():
    endpoint = Endpoint("https://host.example/team/v1", None, "m")
    assert endpoint.path("/metrics") == "/team/metrics"
    assert endpoint.address == ("host.example", 443)
    assert endpoint.secure


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://u:p@h/", "http://h/?q=1"]
)
def test_a_base_url_that_is_none_raises(url):
    with pytest.raises(ValueError, match="base_url"):
        Endpoint(url, None, "m")


@pytest.mark.parametrize("key", ["a\r\nX: y", "schlüssel"])
def test_a_key_that_would_break_the_header_raises(key):
    with pytest.raises(ValueError, match="api_key"):
        Endpoint("http://h", key, "m")


@pytest.mark.parametrize("name", ["connect_s", "first_byte_s", "silence_s", "total_s"])
def test_a_deadline_of_nothing_raises(name):
    with pytest.raises(ValueError, match=name):
        Deadlines(**{name: 0})
