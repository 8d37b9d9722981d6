"""The server's counters: read as counts, summed over engines, never guessed."""

from __future__ import annotations

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.client.metrics import Counters, MetricsUnavailable, difference, parse_counters, read_counters
from tests.unit.golden.script import plain
from tests.unit.golden.server import GoldenServer

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
