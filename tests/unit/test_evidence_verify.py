"""Verification derives everything again, from our packets and from files that others wrote."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judge_rows import CLASSES, packet_rows
from test_evidence_packet import edit_line, one_digit, reseal

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.verify import Report, verify
from fixtures.judge.finding import Outcome
from fixtures.parsing import BadInput

LAB_ROW = Path(__file__).parent / "data" / "lab-row-incident-retrospective.json"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed packet of a sound run, made once: its report takes half a second."""
    directory = tmp_path_factory.mktemp("sealed") / "packet"
    writer = PacketWriter.create(directory)
    writer.set_identity({"lane": "canary-cpu"})
    for kind, rows in packet_rows().items():
        for row in rows:
            writer.append(kind, row)
    writer.finish()
    return directory


@pytest.fixture
def packet(sealed: Path, tmp_path: Path) -> Path:
    """A copy of the sealed packet, to be attacked."""
    return shutil.copytree(sealed, tmp_path / "packet")


def checks(report: Report, outcome: Outcome) -> set[str]:
    return {f.check for f in report.findings if f.outcome is outcome}


def test_a_sound_packet_is_accepted_with_its_numbers(
    packet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(packet)]) == 0
    assert verify(packet).numbers["headline_tok_s"] == pytest.approx(100.0)
    assert "accepted" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("sums", ["left", "rewritten"])
def test_a_tampered_time_exits_12_and_says_where(
    packet: Path, capsys: pytest.CaptureFixture[str], sums: str
) -> None:
    edit_line(packet / "rows" / "transcript.jsonl", 24, one_digit)
    if sums == "rewritten":
        reseal(packet)
    assert main(["verify", str(packet)]) == 12
    assert "rows/transcript.jsonl:24" in capsys.readouterr().out


def flatter(packet: Path, **fields: Any) -> None:
    path = packet / "verdict.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    reseal(packet)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"passed": True}, "verdict.json: passed: added"),
        ({"headline_tok_s": 146.8}, "verdict.json: headline_tok_s: 146.8 is stored"),
        ({"outcome": True}, "verdict.json: outcome: True is stored"),
    ],
)
def test_a_stored_verdict_that_does_not_follow_is_refused(
    packet: Path, fields: dict[str, Any], where: str
) -> None:
    flatter(packet, **fields)
    report = verify(packet)
    assert report.exit_code == 12
    assert any(where in f.message for f in report.findings)


def test_a_removed_finding_is_refused(packet: Path) -> None:
    path = packet / "findings.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    reseal(packet)
    report = verify(packet)
    assert report.exit_code == 12
    assert any(f.message.startswith("findings.jsonl:") for f in report.findings)


def test_a_packet_of_another_judge_is_compared_by_what_decides(packet: Path) -> None:
    flatter(packet, judge_sha256="0" * 64, headline_reason="other words")
    assert verify(packet).outcome is Outcome.ACCEPTED
    flatter(packet, headline_tok_s=146.8)
    assert verify(packet).exit_code == 12


def test_an_unfinished_packet_shows_nothing(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    for row in packet_rows()["contract"]:
        writer.append("contract", row)
    writer.close()
    report = verify(tmp_path / "packet")
    assert report.outcome is Outcome.PENDING
    assert "evidence.unfinished" in checks(report, Outcome.PENDING)


def lab(prompts: int = 10, **changes: Any) -> dict[str, Any]:
    """A file in the lab's realistic-suite format, with every stored number right."""
    rows = []
    for n in range(prompts):
        times = [0.5 + i * (0.010 + 0.001 * n) for i in range(128)]
        rows.append(
            {
                "prompt_id": f"p{n}",
                "prompt_class": CLASSES[n % 5],
                "prompt_sha256": hashlib.sha256(str(n).encode()).hexdigest(),
                "token_id_offsets_s": times,
                "token_ids": list(range(128)),
                "chunk_count": 45,
                "cached_tokens": 0,
                "completion_tokens": 128,
                "elapsed_s": times[-1] + 0.01,
                "post_ttft_s": times[-1] + 0.01 - times[0],
                "tok_s_1_100_after_ttft": 100 / (times[99] - times[0]),
                "tok_s_1_100_intervals_after_ttft": 99 / (times[99] - times[0]),
                "tok_s_after_ttft_full": 128 / (times[-1] + 0.01 - times[0]),
                "tok_s_wall_full": 128 / (times[-1] + 0.01),
                "ttft_s": 0.5,
                "usage": {
                    "completion_tokens": 128,
                    "prompt_tokens": 87,
                    "prompt_tokens_details": {"cached_tokens": 0},
                },
            }
        )
    rates = sorted(r["tok_s_1_100_after_ttft"] for r in rows)
    return {
        "rows": rows,
        "summary": {
            "tok_s_1_100_after_ttft": {
                "count": prompts,
                "median": (rates[4] + rates[5]) / 2,
                "max": rates[-1],
            }
        },
        "realistic_final_gate": {"passed": True},
        "run_identity": {"max_tokens": 512},
    } | changes


def written(tmp_path: Path, data: object, name: str = "result.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_published_row_is_derived_to_the_last_digit() -> None:
    numbers = verify(LAB_ROW).numbers
    assert numbers["inclusive_median_tok_s"] == 96.21226513263952
    assert numbers["interval_median_tok_s"] == 95.25014248131313


def test_a_sound_file_of_the_lab_lacks_parity_and_restarts_only(tmp_path: Path) -> None:
    report = verify(written(tmp_path, lab()))
    assert report.outcome is Outcome.PENDING
    assert checks(report, Outcome.PENDING) == {"foreign.parity", "foreign.restarts"}
    assert report.numbers["class_balanced_interval_median_tok_s"] == pytest.approx(
        (1 / 0.012 + 1 / 0.017) / 2
    )


def edit(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data = copy.deepcopy(lab())
    change(data)
    return data


LAB_FAULTS: dict[str, tuple[dict[str, Any], str, Outcome, str]] = {
    "one digit of a time": (
        edit(
            lambda d: d["rows"][3]["token_id_offsets_s"].__setitem__(
                99, d["rows"][3]["token_id_offsets_s"][99] + 1e-6
            )
        ),
        "foreign.claim",
        Outcome.INVALID,
        "rows[3].tok_s_1_100_after_ttft",
    ),
    "a better median": (
        edit(lambda d: d["summary"]["tok_s_1_100_after_ttft"].update(median=93.036)),
        "foreign.claim",
        Outcome.INVALID,
        "summary.tok_s_1_100_after_ttft.median",
    ),
    "a row removed": (
        edit(lambda d: d["rows"].pop(2)),
        "foreign.claim",
        Outcome.INVALID,
        "summary.tok_s_1_100_after_ttft.count",
    ),
    "warm": (
        edit(lambda d: d["rows"][2]["usage"]["prompt_tokens_details"].update(cached_tokens=64)),
        "foreign.cached_tokens",
        Outcome.REJECTED,
        "p2",
    ),
    "cached tokens null, stored as zero": (
        edit(lambda d: d["rows"][2]["usage"].update(prompt_tokens_details=None)),
        "foreign.cached_tokens",
        Outcome.PENDING,
        "p2",
    ),
    "fewer ids than usage": (
        edit(lambda d: d["rows"][2]["usage"].update(completion_tokens=129)),
        "foreign.ids_counted",
        Outcome.PENDING,
        "p2",
    ),
    "the same prompt twice": (
        edit(lambda d: d["rows"][4].update(prompt_sha256=d["rows"][0]["prompt_sha256"])),
        "foreign.repeated_prompt",
        Outcome.REJECTED,
        "p4",
    ),
    "capped at 128": (
        edit(lambda d: d["run_identity"].update(max_tokens=128)),
        "foreign.cap",
        Outcome.PENDING,
        "128",
    ),
    "no classes": (
        edit(lambda d: [r.pop("prompt_class") for r in d["rows"]]),
        "foreign.headline",
        Outcome.PENDING,
        "no prompt class",
    ),
    "time runs back": (
        edit(lambda d: d["rows"][1]["token_id_offsets_s"].__setitem__(50, 0.4)),
        "foreign.times",
        Outcome.INVALID,
        "time 50",
    ),
}


@pytest.mark.parametrize("fault", LAB_FAULTS)
def test_a_faulty_file_of_the_lab_is_found_and_placed(tmp_path: Path, fault: str) -> None:
    data, check, outcome, where = LAB_FAULTS[fault]
    report = verify(written(tmp_path, data))
    assert any(f.check == check and f.outcome is outcome and where in f.message for f in report.findings)


def test_a_stored_passed_changes_nothing(tmp_path: Path) -> None:
    with_flag = verify(written(tmp_path, lab()))
    without = verify(written(tmp_path, lab(realistic_final_gate={}), "other.json"))
    assert with_flag.outcome is without.outcome is Outcome.PENDING
    assert "realistic_final_gate.passed" in next(
        f.message for f in with_flag.findings if f.check == "foreign.flags"
    )


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


def aiperf(**metrics: Any) -> str:
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
    return json.dumps(record) + "\n" + json.dumps(failed) + "\n"


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
        ("{", "not JSON"),
        ("{}", "unknown format; known:"),
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


def test_the_worst_of_several_paths_decides_the_exit_code(tmp_path: Path, packet: Path) -> None:
    assert main(["verify", str(packet), str(LAB_ROW), "--json"]) == 11


def test_a_path_that_does_not_exist_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(tmp_path / "nothing")])
