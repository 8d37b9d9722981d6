"""Requests that go away: what the server's gauges say decides, and what they do not say is pending."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fixtures.client.departure import OpenRequest
from fixtures.client.endpoint import Endpoint
from fixtures.client.metrics import Gauges, parse_gauges
from fixtures.judge.departures import (
    Departure,
    IdleRow,
    judge_departures,
    judge_idle,
    read_departure,
    read_idle,
)
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import RowList
from fixtures.workload.departures import note_idle
from tests.unit.golden.script import script, stream
from tests.unit.golden.server import GoldenServer

FREE = Gauges(0, 0, 0.0)
SOUND = Departure("candidate#1", "in decode", 4, 1, 20, 40, 300, FREE, FREE, "copy", (5, 6, 2), (5, 6, 2))


def outcomes(departure: Departure) -> dict[str, Outcome]:
    row = json.loads(json.dumps(departure.to_row()))
    return {f.check.removeprefix("requests."): f.outcome for f in judge_departures([read_departure(row)])}


def test_requests_that_ended_with_their_blocks_back_are_accepted() -> None:
    assert set(outcomes(SOUND).values()) == {Outcome.ACCEPTED}


@pytest.mark.parametrize(
    ("change", "check", "outcome"),
    [
        ({"gone_after": None}, "departed", Outcome.REJECTED),
        ({"gone_after": None, "readings": 3}, "departed", Outcome.PENDING),
        ({"after": Gauges(1, 0, 0.0)}, "departed", Outcome.REJECTED),
        ({"after": Gauges(0, 3, 0.0)}, "departed", Outcome.REJECTED),
        ({"gone_after": None, "before": Gauges(None, None, 0.0)}, "departed", Outcome.PENDING),
        ({"after": Gauges(None, None, 0.0)}, "departed", Outcome.PENDING),
        ({"after": Gauges(0, 0, 0.0147)}, "blocks", Outcome.REJECTED),
        ({"after": Gauges(0, 0, None)}, "blocks", Outcome.PENDING),
        ({"said": (5, 7, 2)}, "neighbours", Outcome.REJECTED),
        ({"said": (5, 6)}, "neighbours", Outcome.REJECTED),
        ({"said": ()}, "neighbours", Outcome.REJECTED),
        ({"alone": ()}, "neighbours", Outcome.PENDING),
    ],
)
def test_what_is_wrong_or_not_said_is_seen_by_its_own_check(change, check, outcome) -> None:
    found = outcomes(dataclasses.replace(SOUND, **change))
    assert found.pop(check) is outcome
    assert set(found.values()) == {Outcome.ACCEPTED}


def test_a_row_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="gone_after"):
        read_departure(dataclasses.replace(SOUND, gone_after=301).to_row())


def test_a_leak_of_one_block_at_any_moment_without_requests_is_seen() -> None:
    rows = [IdleRow("a", f"suite {n}", Gauges(0, 0, 0.0 if n != 3 else 0.001)) for n in range(6)]
    found = {f.check: f for f in judge_idle([read_idle(json.loads(json.dumps(r.to_row()))) for r in rows])}
    assert found["requests.idle"].outcome is Outcome.ACCEPTED
    assert found["requests.blocks"].outcome is Outcome.REJECTED
    assert "suite 3" in found["requests.blocks"].message


@pytest.mark.parametrize(
    ("gauges", "outcome"),
    [
        (Gauges(2, 0, 0.0), Outcome.REJECTED),
        (Gauges(None, 0, 0.0), Outcome.PENDING),
        (FREE, Outcome.ACCEPTED),
    ],
)
def test_a_server_that_nobody_asks_runs_nothing(gauges: Gauges, outcome: Outcome) -> None:
    assert {f.check: f.outcome for f in judge_idle([IdleRow("a", "suite", gauges)])}[
        "requests.idle"
    ] is outcome


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "0"])
def test_a_gauge_that_is_none_cannot_be_read(value: object) -> None:
    with pytest.raises(ValueError, match="cache_usage"):
        read_idle({"arm": "a", "after": "s", "gauges": {"running": 0, "waiting": 0, "cache_usage": value}})


def test_gauges_are_summed_over_engines_and_missing_ones_are_not_zero() -> None:
    text = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 1.0\n'
        "# TYPE vllm:kv_cache_usage_perc gauge\n"
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    )
    assert parse_gauges(text) == Gauges(3.0, None, 0.25)


def test_a_request_is_heard_for_a_while_and_hung_up_on() -> None:
    answer = script(stream([f" w{n}" for n in range(400)], wait_s=0.005))
    with GoldenServer(answer) as server:
        with OpenRequest(
            Endpoint(server.base_url, "key", "golden"), "/v1/chat/completions", {"stream": True}
        ) as r:
            r.hear(3)
        assert 3 <= r.heard.count(b"data: ") < 50
    assert server.exchanges[0].json == {"model": "golden", "stream": True}


def test_an_answer_that_ends_before_it_was_heard_is_an_error() -> None:
    with (
        GoldenServer(script(stream(["a"]))) as server,
        OpenRequest(Endpoint(server.base_url, None, "golden"), "/v1/x", {}) as request,
        pytest.raises(RuntimeError, match="no 9 events"),
    ):
        request.hear(9)


def test_a_server_that_is_dying_leaves_no_row_and_no_error() -> None:
    sink = RowList()
    note_idle(Endpoint("http://127.0.0.1:9", None, "gone"), "candidate#1", "a test", sink)
    assert not sink.rows
