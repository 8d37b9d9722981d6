"""The summary of several gates derives every verdict from rows, and ends as the worst of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge_rows import packet_rows

from fixtures.evidence.packet import PacketWriter
from fixtures.gate.summary import main


def write_packet(directory: Path, *, failed: bool = False, sealed: bool = True) -> Path:
    writer = PacketWriter.create(directory)
    for kind, rows in packet_rows().items():
        for row in rows:
            broken = {"outcome": "failed", "message": "the needle was lost"}
            writer.append(kind, row | (broken if failed and kind == "test" else {}))
    writer.set_identity({"lane": {"name": "canary-cpu"}, "stack": {"name": "spec-round-trace"}})
    if sealed:
        writer.finish()
    return directory


def test_every_gate_has_a_line_and_what_decided_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_packet(tmp_path / "neutral-1")
    write_packet(tmp_path / "neutral-2", failed=True)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "| neutral-1 | canary-cpu | spec-round-trace | accepted |" in said
    assert "| neutral-2 | canary-cpu | spec-round-trace | rejected |" in said
    assert "1 of 2 accepted" in said
    assert "- neutral-2: test.failed: " in said


def test_accepted_gates_end_with_0_and_no_packet_is_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(write_packet(tmp_path / "one"))]) == 0
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
    assert "no packet was named or found" in capsys.readouterr().err


def test_a_packet_that_was_touched_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packet = write_packet(tmp_path / "one")
    tests = next((packet / "rows").glob("test*.jsonl"))
    tests.write_text(tests.read_text().replace("passed", "failed", 1))
    assert main([str(packet)]) == 12
    assert "| one |  |  | invalid evidence | unreadable |" in capsys.readouterr().out


def test_a_gate_that_still_runs_is_said_to_be_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_packet(tmp_path / "one", sealed=False)
    main([str(tmp_path)])
    assert ", not finished |" in capsys.readouterr().out
