"""Result files of the lab: a published row is derived to the last digit, and a faulty one is placed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_results import LAB_ROW, checks, written
from judge_rows import CLASSES

from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome


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
