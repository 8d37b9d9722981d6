"""Pages of several packets: side by side, and a folder of them listed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from judge_rows import packet_rows
from report_page import Page
from report_rows import full_rows, seal

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter
from fixtures.judge.finding import Finding, Outcome
from fixtures.parsing import BadInput
from fixtures.report.html.several import write_comparison, write_index


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejected packet with something in every section."""
    directory = tmp_path_factory.mktemp("full") / "packet"
    seal(directory, full_rows())
    return directory


def test_two_packets_side_by_side_show_what_differs(
    sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seal(tmp_path / "sound", packet_rows())
    output = tmp_path / "both.html"
    assert main(["compare", str(tmp_path / "sound"), str(sealed), "--output", str(output)]) == 0
    assert capsys.readouterr().out.strip() == str(output)
    made = output.read_text()
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", made))
    assert "candidate#2 10 of 10 9 of 10" in said
    assert "headline 100.00 not shown not shown" in said
    assert "parity.wrong_token" in said
    assert "no outcome follows from it" in said
    assert Page(made).fetching == []


def test_two_stacks_share_the_lines_of_their_arms(tmp_path: Path) -> None:
    """`candidate#1@fix` of one packet is beside `candidate#1@other` of the other, and only what differs is listed."""
    for stack in ("fix", "other"):
        rows = packet_rows()
        for row in (*rows["arm"], *rows["transcript"], *rows["counters"]):
            row["arm"] += f"@{stack}"
        rows["finding"] = [Finding("server.start", Outcome.INCONCLUSIVE, "x", f"late#1@{stack}").to_row()]
        seal(tmp_path / stack, rows)
    made = write_comparison(tmp_path / "fix", tmp_path / "other").read_text()
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", made))
    assert "candidate#2 10 of 10 10 of 10" in said
    assert "Findings of one only fix none other none" in said


def test_a_folder_of_packets_is_listed_with_links_and_verdicts_derived_anew(
    sealed: Path, tmp_path: Path
) -> None:
    shutil.copytree(sealed, tmp_path / "packet")
    seal(tmp_path / "deep" / "sound", packet_rows())
    changed = shutil.copytree(sealed, tmp_path / "changed")
    (changed / "rows" / "test.jsonl").write_text("{}\n")
    PacketWriter.create(tmp_path / "unfinished").close()
    made = write_index(tmp_path).read_text()
    verdicts = dict(
        re.findall(
            r'<th scope="row">(?:<a [^>]*>)?([\w/]+)(?:</a>)?</th>.*?<span class="\w+">([\w ]+)<', made
        )
    )
    assert verdicts == {
        "packet": "rejected",
        "deep/sound": "accepted",
        "changed": "invalid evidence",
        "unfinished": "pending",
    }
    assert set(Page(made).links) == {
        "#main",
        "packet/report.html",
        "deep/sound/report.html",
        "changed/report.html",
    }
    write_index(tmp_path)  # its own page is no packet and no obstacle


def test_folders_that_are_no_packets_are_usage_errors(
    sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        ["report", str(tmp_path)],
        ["compare", str(sealed), str(tmp_path)],
        ["index", str(tmp_path)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2
        assert "packet" in capsys.readouterr().err
    with pytest.raises(BadInput, match="a packet itself"):
        write_index(sealed)
