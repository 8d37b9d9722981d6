"""Rates from result files of vllm bench, guidellm and aiperf: derived where they can be, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_results import checks, written

from fixtures.evidence.__main__ import main
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome
from fixtures.parsing import BadInput

VLLM = {
    "duration": 4.0,
    "completed": 2,
    "total_output_tokens": 240,
    "output_throughput": 60.0,
    "request_throughput": 0.5,
    "mean_ttft_ms": 150.0,
    "input_lens": [10, 10],
    "output_lens": [120, 120],
    "ttfts": [0.1, 0.2],
    "itls": [[0.01] * 119, [0.01] * 119],
    "errors": ["", ""],
    "generated_texts": ["a", "b"],
}


def test_vllm_bench_rates_are_derived_where_a_chunk_was_a_token(tmp_path: Path) -> None:
    report = verify(written(tmp_path, VLLM))
    assert report.numbers["interval_median_tok_s"] == pytest.approx(100.0)
    assert report.outcome is Outcome.PENDING
    assert {"foreign.cached_tokens", "foreign.ids_counted"} <= checks(report, Outcome.PENDING)


def test_vllm_bench_gaps_of_chunks_are_not_taken_for_tokens(tmp_path: Path) -> None:
    report = verify(written(tmp_path, VLLM | {"itls": [[0.03] * 40, [0.03] * 40]}))
    assert report.numbers["interval_median_tok_s"] is None
    assert report.numbers["full_median_tok_s"] == pytest.approx(119 / 1.2)


def test_vllm_bench_totals_have_to_follow(tmp_path: Path) -> None:
    report = verify(written(tmp_path, VLLM | {"output_throughput": 93.0}))
    assert report.exit_code == 12
    assert any(f.message.startswith("output_throughput: 93.0 is stored") for f in report.findings)


def guidellm(**changes: Any) -> dict[str, Any]:
    timings = {
        "request_start": 10.0,
        "first_token_iteration": 10.5,
        "last_token_iteration": 11.69,
        "request_end": 11.7,
    }
    request = {
        "request_id": "a",
        "info": {"timings": timings},
        "output_metrics": {"text_tokens": 120},
        "time_to_first_token_ms": 500.0,
        "inter_token_latency_ms": 10.0,
        "request_latency": 1.7,
    }
    return {
        "benchmarks": [{"requests": {"successful": [request | changes], "incomplete": [], "errored": []}}]
    }


def test_a_guidellm_report_shows_a_full_rate_and_no_window(tmp_path: Path) -> None:
    report = verify(written(tmp_path, guidellm()))
    assert report.numbers["full_median_tok_s"] == pytest.approx(100.0)
    assert report.numbers["interval_median_tok_s"] is None
    assert report.outcome is Outcome.PENDING


def test_a_guidellm_latency_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    assert verify(written(tmp_path, guidellm(inter_token_latency_ms=8.0))).exit_code == 12


def aiperf(**metrics: Any) -> bytes:
    record = {
        "metadata": {"conversation_id": "c1", "x_request_id": "r1"},
        "metrics": {
            "output_sequence_length": {"value": 120, "unit": "tokens"},
            "time_to_first_token": {"value": 500.0, "unit": "ms"},
            "request_latency": {"value": 1690.0, "unit": "ms"},
            "inter_token_latency": {"value": 10.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [10.0] * 119, "unit": "ms"},
        }
        | metrics,
        "error": None,
    }
    failed = {
        "metadata": {"conversation_id": "c2"},
        "metrics": {},
        "error": {"code": 499, "message": "cancelled"},
    }
    return f"{json.dumps(record)}\n{json.dumps(failed)}\n".encode()


def test_an_aiperf_export_is_derived_request_by_request(tmp_path: Path) -> None:
    report = verify(written(tmp_path, aiperf(), "profile_export.jsonl"))
    assert report.outcome is Outcome.INCONCLUSIVE, "one request failed"
    assert "cancelled" in next(f.message for f in report.findings if f.check == "foreign.complete")
    one = aiperf().splitlines()[0]
    assert verify(written(tmp_path, one, "one.jsonl")).numbers["interval_median_tok_s"] == pytest.approx(
        100.0
    )


def test_an_aiperf_latency_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, aiperf(inter_token_latency={"value": 8.0, "unit": "ms"}), "profile_export.jsonl")
    assert verify(path).exit_code == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"{}", "unknown format; known:"),
        (
            {"rows": [{"token_id_offsets_s": [0.1, "0.2"]}]},
            "rows[0].token_id_offsets_s: expected a list of numbers",
        ),
        (
            {"rows": [{"usage": {"completion_tokens": True}}]},
            "rows[0].usage.completion_tokens: expected a count",
        ),
        ({"rows": ["x"]}, "rows[0]: expected an object"),
        (VLLM | {"ttfts": [0.1]}, "expected lists of one length"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_what_is_allowed(
    tmp_path: Path, content: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInput) as error:
        verify(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert main(["verify", str(path)]) == 12
    assert message in capsys.readouterr().out
