"""Result files of other tools: failures and warm-up left out, each number derived or named, bad files said so."""

from __future__ import annotations

import copy
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_results import (
    aiperf_record,
    benchy_report,
    guidellm_report,
    lines,
    messages,
    sglang_run,
    vllm_run,
    written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.evidence.__main__ import main
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome
from fixtures.parsing import BadInput


def test_a_sound_vllm_file_has_no_false_number(tmp_path: Path) -> None:
    report = verify(written(tmp_path, vllm_run()))
    assert not [f for f in report.findings if f.outcome in (Outcome.INVALID, Outcome.REJECTED)], (
        report.lines()
    )
    assert report.numbers["measured_rows"] == 6.0
    assert "23 of 23 stored numbers follow from the raw values" in messages(report, "foreign.claim")


CLAIMED = [
    name for name in vllm_run() if name.endswith(("_ms", "_throughput", "_tokens", "completed", "failed"))
]


@pytest.mark.parametrize("name", CLAIMED)
def test_each_number_of_a_vllm_summary_is_derived_again(tmp_path: Path, name: str) -> None:
    run = vllm_run(failed=1)
    run[name] = run[name] * 1.01 + 1
    report = verify(written(tmp_path, run))
    assert report.exit_code == 12
    assert any(m.startswith(f"{name}: ") for m in messages(report, "foreign.claim", Outcome.INVALID))


def test_failed_requests_are_counted_and_enter_no_median(tmp_path: Path) -> None:
    report = verify(written(tmp_path, vllm_run(requests=4, failed=6)))
    assert report.outcome is Outcome.INCONCLUSIVE
    assert report.numbers["failed_rows"] == 6.0
    assert report.numbers["ttft_median_s"] == pytest.approx(np.median(vllm_run(requests=4)["ttfts"]))
    assert "Bad Gateway" in messages(report, "foreign.complete")[0]


def test_a_median_over_failed_requests_does_not_follow(tmp_path: Path) -> None:
    run = vllm_run(requests=2, failed=6)
    run["median_ttft_ms"] = float(np.median(run["ttfts"])) * 1000
    assert run["median_ttft_ms"] == 0.0
    assert verify(written(tmp_path, run)).exit_code == 12


def test_a_run_shorter_than_its_requests_is_invalid(tmp_path: Path) -> None:
    run = vllm_run()
    half = run["duration"] / 4
    for name in ("request_throughput", "output_throughput", "total_token_throughput"):
        run[name] *= 4
    report = verify(written(tmp_path, run | {"duration": half}))
    assert any(m.startswith("duration: ") for m in messages(report, "foreign.impossible", Outcome.INVALID))


def test_a_summary_without_requests_shows_only_what_it_implies(tmp_path: Path) -> None:
    run = {k: v for k, v in vllm_run().items() if not isinstance(v, list)}
    report = verify(written(tmp_path, run))
    assert report.outcome is Outcome.PENDING
    assert "3 of" in messages(report, "foreign.claim", Outcome.ACCEPTED)[0]
    assert "median_ttft_ms" in messages(report, "foreign.claim", Outcome.PENDING)[0]
    assert verify(written(tmp_path, run | {"output_throughput": 9000.0})).exit_code == 12


def test_gaps_that_sglang_spread_over_a_chunk_are_no_times(tmp_path: Path) -> None:
    report = verify(written(tmp_path, sglang_run()))
    assert report.numbers["interval_median_tok_s"] is None
    assert report.numbers["full_median_tok_s"] is not None
    assert "spread evenly" in messages(report, "foreign.ids_counted", Outcome.PENDING)[0]
    token_by_token = verify(written(tmp_path, sglang_run(chunk=1) | {"output_lens": [31] * 4}))
    assert not any("spread" in m for m in messages(token_by_token, "foreign.ids_counted"))


def test_spread_gaps_are_recognised_in_a_file_that_does_not_say_sglang(tmp_path: Path) -> None:
    run = vllm_run()
    run["itls"] = [[gap for gap in gaps[::3] for _ in range(3)][:119] for gaps in run["itls"]]
    assert verify(written(tmp_path, run)).numbers["interval_median_tok_s"] is None


def test_a_llama_benchy_report_is_not_taken_for_guidellm(tmp_path: Path) -> None:
    report = verify(written(tmp_path, benchy_report()))
    assert report.kind == "a llama-benchy report"
    assert report.outcome is Outcome.PENDING
    false = benchy_report()
    false["benchmarks"][0]["tg_throughput"]["mean"] = 93.0
    assert verify(written(tmp_path, false)).exit_code == 12
    false = benchy_report()
    false["benchmarks"][0]["est_ppt"] = {"mean": 100.0, "std": 0.0, "values": [100.0, 100.0]}
    assert verify(written(tmp_path, false)).exit_code == 12


@pytest.mark.parametrize("benchmarks", [[], [1], [{}], [{"name": "x", "requests": 3}], [{"requests": {}}]])
def test_any_object_with_benchmarks_is_not_taken_for_guidellm(tmp_path: Path, benchmarks: object) -> None:
    with pytest.raises(BadInput, match="unknown format"):
        verify(written(tmp_path, {"benchmarks": benchmarks, "results": {"ttft": 1.0}}))


def test_guidellm_metrics_follow_from_the_requests(tmp_path: Path) -> None:
    report = verify(written(tmp_path, guidellm_report()))
    assert not messages(report, "foreign.claim", Outcome.INVALID), report.lines()
    false = guidellm_report()
    false["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["mean"] *= 1.001
    assert verify(written(tmp_path, false)).exit_code == 12


def test_guidellm_times_in_a_wrong_order_are_invalid(tmp_path: Path) -> None:
    data = guidellm_report()
    data["benchmarks"][0]["requests"]["successful"][2]["info"]["timings"]["first_token_iteration"] = 0.0
    report = verify(written(tmp_path, data))
    assert report.exit_code == 12
    assert "before" in messages(report, "foreign.impossible", Outcome.INVALID)[0]


def test_guidellm_requests_of_the_warm_up_are_left_out(tmp_path: Path) -> None:
    data = guidellm_report()
    data["benchmarks"][0] |= {"warmup_duration": 4.0, "metrics": {}}
    report = verify(written(tmp_path, data))
    assert (report.numbers["warm_up_rows"], report.numbers["measured_rows"]) == (2.0, 2.0)


def test_warm_up_of_aiperf_is_counted_and_measured_nowhere(tmp_path: Path) -> None:
    warm = aiperf_record(0)
    warm["metadata"]["benchmark_phase"] = "warmup"
    warm["metrics"]["time_to_first_token"]["value"] = 60_000.0
    warm["metrics"]["request_latency"]["value"] += 59_500.0
    report = verify(written(tmp_path, lines(warm, *(aiperf_record(i) for i in range(1, 4))), "a.jsonl"))
    assert report.numbers["warm_up_rows"] == 1.0
    assert report.numbers["ttft_median_s"] == pytest.approx(0.5)
    assert "1 of 4 rows are warm-up" in messages(report, "foreign.warm_up")[0]


@pytest.mark.parametrize(
    "change",
    [
        {"error": {"code": 503, "message": "busy"}},
        {"metadata": {"x_request_id": "r9", "was_cancelled": True}},
        {"metrics": {"time_to_first_token": {"value": 0.0, "unit": "ms"}}},
    ],
    ids=["error", "cancelled", "no token"],
)
def test_every_way_of_aiperf_to_fail_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    report = verify(written(tmp_path, lines(aiperf_record(1), aiperf_record(2, **change)), "a.jsonl"))
    assert (report.outcome, report.numbers["failed_rows"]) == (Outcome.INCONCLUSIVE, 1.0)
    assert report.numbers["ttft_median_s"] == pytest.approx(0.5)


def test_a_request_that_stands_twice_is_two_runs_in_one_file(tmp_path: Path) -> None:
    other = aiperf_record(1)
    other["metadata"]["x_request_id"] = "other"
    for second in (aiperf_record(1), other):
        report = verify(written(tmp_path, lines(aiperf_record(1), second), "a.jsonl"))
        assert report.exit_code == 12
        assert "stands already in line 1" in messages(report, "foreign.impossible")[0]


def test_aiperf_statistics_are_known_and_show_nothing(tmp_path: Path) -> None:
    block = {"unit": "ms", "avg": 10.0, "min": 5.0, "max": 20.0, "p50": 9.0, "p99": 19.0}
    report = verify(written(tmp_path, {"request_latency": block, "aiperf_version": "0.9"}))
    assert (report.kind, report.outcome) == ("AIPerf's profile_export_aiperf.json", Outcome.PENDING)
    for change in ({"avg": 21.0}, {"p50": 19.5}, {"min": 11.0}, {"avg": 10.0, "sum": 40.0, "count": 3}):
        assert verify(written(tmp_path, {"request_latency": block | change})).exit_code == 12, change


def test_runs_appended_to_each_other_are_judged_alone(tmp_path: Path) -> None:
    one, two = vllm_run(seed=1), vllm_run(seed=2)
    report = verify(written(tmp_path, lines(one, two)))
    assert report.outcome is Outcome.PENDING
    assert report.numbers["run 1: ttft_median_s"] == pytest.approx(np.median(two["ttfts"]))
    assert "ttft_median_s" not in report.numbers
    report = verify(written(tmp_path, lines(one, two | {"output_throughput": 1.0})))
    assert (
        "run 1: run[1].output_throughput: 1.0 is stored"
        in messages(report, "foreign.claim", Outcome.INVALID)[0]
    )
    assert verify(written(tmp_path, lines(one, one))).exit_code == 12, "one run twice"


def test_results_of_two_tools_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r":2: a run of vllm .* but line 1 is a request of AIPerf"):
        verify(written(tmp_path, lines(aiperf_record(1), vllm_run()), "a.jsonl"))


BAD_TIMES = [float("nan"), float("inf"), -0.5, 1e9, -1e-9]


@pytest.mark.parametrize("bad", BAD_TIMES)
@pytest.mark.parametrize(
    "place", ["vllm ttft", "vllm gap", "aiperf ttft", "guidellm end", "lab time", "lab wall"]
)
def test_a_time_that_cannot_be_is_invalid(tmp_path: Path, bad: float, place: str) -> None:
    tool = place.split()[0]
    vllm, guide, record = vllm_run(), guidellm_report(), aiperf_record(1)
    lab: dict[str, Any] = {
        "rows": [{"prompt_id": "p", "token_id_offsets_s": [0.5, 0.6, 0.7], "elapsed_s": 1.0}]
    }
    vllm["ttfts" if "ttft" in place else "itls"][1] = bad if "ttft" in place else [0.01, bad]
    record["metrics"]["time_to_first_token"]["value"] = 1000 * bad
    guide["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]["request_end"] = (
        1_760_000_000.0 + bad
    )
    lab["rows"][0] |= {"token_id_offsets_s": [0.5, bad, 0.7]} if "time" in place else {"elapsed_s": bad}
    data = {"vllm": vllm, "guidellm": guide, "aiperf": record, "lab": lab}[tool]
    assert verify(written(tmp_path, data)).exit_code == 12


def test_what_is_not_derived_is_named(tmp_path: Path) -> None:
    run = vllm_run() | {"my_tok_s": 146.8, "extra": {"speedup": 3.0, "per_gpu": [1.0, 2.0]}}
    report = verify(written(tmp_path, run))
    named = messages(report, "foreign.claim", Outcome.PENDING)[0]
    assert all(name in named for name in ("my_tok_s", "extra.speedup", "extra.per_gpu[]")), named


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \r\n\t", "is empty"),
    "nested lists": (b"[" * 100_000, "nested too deep"),
    "nested objects": (b'{"a":' * 100_000, "nested too deep"),
    "nested and closed": (b"[" * 200 + b"]" * 200, "nested too deep"),
    "gzip": (gzip.compress(b"{}"), "compressed (gzip)"),
    "zip": (b"PK\x03\x04rest", "compressed (zip)"),
    "utf-16": ("{}".encode("utf-16"), "UTF-16"),
    "utf-16 without a mark": ("{}".encode("utf-16-le"), "binary"),
    "latin-1": (b'{"a": "\xe9"}', "not UTF-8"),
    "binary": (os.urandom(8) + b"\x00\xff", ""),
    "truncated": (json.dumps(vllm_run()).encode()[:5000], "not JSON"),
    "truncated second run": (lines(vllm_run()) + b'{"duration": 1', "(1 complete documents stand before it)"),
    "a name twice": (b'{"duration": 1.0, "duration": 2.0}', "stands twice"),
    "an integer of 10,000 digits": (b'{"rows": [' + b"9" * 10_000 + b"]}", "cannot be read"),
    "csv": (b"ttft,tpot\n1,2\n", "not JSON"),
    "a number": (b"146.8", "unknown format"),
    "a list": (b"[1, 2]", "unknown format"),
    "text after": (b"{} trailing", "not JSON"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_ends_in_a_sentence(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, sentence = BAD_FILES[kind]
    path = written(tmp_path, content)
    assert main(["verify", str(path)]) == 12
    assert sentence in capsys.readouterr().out


def test_a_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + lines(aiperf_record(1), aiperf_record(2)).replace(b"\n", b"\r\n\r\n")
    assert verify(written(tmp_path, content, "a.jsonl")).numbers["measured_rows"] == 2.0


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, sentence in ((tmp_path / "pipe", "not a plain file"), (Path("/dev/zero"), "not a plain file")):
        with pytest.raises(BadInput, match=sentence):
            verify(path)
    assert verify(tmp_path).exit_code == 12, "a folder that is no packet"


def test_names_that_a_terminal_does_not_hold_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"rows": [{"prompt_id": "\ud800\x1b[2J", "token_id_offsets_s": [0.1], "error": "\udcff"}]}
    assert main(["verify", str(written(tmp_path, data))]) == 10
    out = capsys.readouterr().out
    assert "\\ud800" in out
    assert "\x1b" not in out


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
SAMPLES: tuple[Callable[[], object], ...] = (
    vllm_run,
    sglang_run,
    benchy_report,
    guidellm_report,
    lambda: aiperf_record(1),
)


def places(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(data, dict):
        return [path, *(p for k, v in data.items() for p in places(v, (*path, k)))]
    if isinstance(data, list):
        return [path, *(p for i, v in enumerate(data[:3]) for p in places(v, (*path, i)))]
    return [path]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SAMPLES), st.data())
def test_a_file_with_anything_anywhere_ends_in_a_report_or_a_sentence(
    tmp_path: Path, make: Callable[[], object], data: st.DataObject
) -> None:
    sample = copy.deepcopy(make())
    for place in data.draw(st.lists(st.sampled_from(places(sample)), min_size=1, max_size=3)):
        inner: Any = {"": sample}
        for step in ("", *place)[:-1]:
            inner = inner[step] if isinstance(inner, dict) and step in inner else None
            if inner is None:
                break
        try:
            inner[("", *place)[-1]] = data.draw(JSON)
            sample = inner[""] if place == () else sample
        except (TypeError, IndexError, KeyError):
            continue
    path = tmp_path / "fuzzed.json"
    path.write_bytes(json.dumps(sample).encode("utf-8", "surrogatepass"))
    assert main(["verify", str(path)]) in (1, 10, 11, 12)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.text(alphabet='{}[]",:0123456789eE.-+ \n\\utrfalsn', max_size=200).map(str.encode)
)
def test_any_bytes_end_in_a_report_or_a_sentence(tmp_path: Path, content: bytes) -> None:
    assert main(["verify", str(written(tmp_path, content, "any"))]) == 12
