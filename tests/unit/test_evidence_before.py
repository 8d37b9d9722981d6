"""Packets that were sealed before there was a registry of checks verify to the same outcome.

`data/packets-before-registry.tar.xz` holds four, sealed by the suite of that time: an accepted run, one with a wrong
token, one without counters, and one whose run had noted a rejected finding. They name a purpose and a role by words of
that time (`crowd`, `spare`).
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from fixtures.evidence.reading import read_packet
from fixtures.evidence.verify import verify
from fixtures.judge.described import Role
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose
from fixtures.judge.run import Run

ARCHIVE = Path(__file__).parent / "data" / "packets-before-registry.tar.xz"
OUTCOMES = {
    "accepted": Outcome.ACCEPTED,
    "rejected": Outcome.REJECTED,
    "pending": Outcome.PENDING,
    "noted": Outcome.REJECTED,
}


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_packet_of_before_verifies_to_the_same_outcome(packets: Path, name: str) -> None:
    report = verify(packets / name)
    stored = json.loads((packets / name / "verdict.json").read_text(encoding="utf-8"))
    assert report.outcome is OUTCOMES[name]
    assert (report.outcome.value, report.exit_code) == (stored["outcome"], stored["exit_code"])
    assert report.numbers["headline_tok_s"] == stored["headline_tok_s"]


def test_its_words_are_read_as_those_of_today(packets: Path) -> None:
    run = Run(read_packet(packets / "accepted").rows)
    assert not run.unreadable
    assert len(run.said(Purpose.CONCURRENT)) == 2
    assert run.roles["spare#1"] is Role.DEDICATED
