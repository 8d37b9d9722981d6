"""Verification derives everything of a packet again, and believes nothing that is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from foreign_results import LAB_ROW, checks
from judge_rows import packet_rows
from test_evidence_packet import edit_line, one_digit, reseal

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome


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


def test_the_worst_of_several_paths_decides_the_exit_code(tmp_path: Path, packet: Path) -> None:
    assert main(["verify", str(packet), str(LAB_ROW), "--json"]) == 11


def test_a_path_that_does_not_exist_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(tmp_path / "nothing")])
