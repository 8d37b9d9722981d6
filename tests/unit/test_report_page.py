"""report.html: one offline file that says everything, shows what models say as text, and invents nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from judge_rows import packet_rows
from report_page import Page
from report_rows import HOSTILE, WRONG_AT, full_rows, seal

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome
from fixtures.report.html import charts, page
from fixtures.report.html.rebuild import build_report, write_report

LARGEST_BYTES = 600_000


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejected packet with something in every section."""
    directory = tmp_path_factory.mktemp("full") / "packet"
    assert seal(directory, full_rows()).outcome is Outcome.REJECTED
    return directory


@pytest.fixture(scope="module")
def text(sealed: Path) -> str:
    return (sealed / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def full(text: str) -> Page:
    return Page(text)


@pytest.fixture
def packet(sealed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sealed, tmp_path / "packet")


def test_the_page_is_one_file_that_fetches_nothing(text: str, full: Page) -> None:
    assert "default-src 'none'" in text
    assert full.fetching == []
    assert "link" not in full.tags
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert [link for link in full.links if not link.startswith("#")] == []
    outside = re.findall(r"https?://[^\s\"'<]+", text)
    assert outside == []
    assert len(text.encode()) < LARGEST_BYTES, "a report is mailed and attached: keep it small"


def test_ids_are_unique_and_links_within_the_page_lead_somewhere(text: str, full: Page) -> None:
    assert len(full.ids) == len(set(full.ids))
    inside = {link[1:] for link in full.links} | set(re.findall(r"url\(#([^)]+)\)", text))
    assert inside
    assert inside <= set(full.ids)


def test_what_a_model_says_is_text_and_never_markup(text: str, full: Page) -> None:
    assert HOSTILE.split(" ")[0] in full.by_section["parity"], "it is shown"
    assert "<script>document.title" not in text
    assert "img" not in full.tags
    assert full.handlers == []
    assert full.tags.count("script") == 1


def test_the_verdict_comes_first_with_the_sentence_that_explains_it(text: str) -> None:
    opening = re.search(r'<p class="sentence">(.*?)</p>', text, re.S)
    assert opening is not None
    assert opening[1].startswith("Rejected: candidate#2/p3: diverged at 50")
    assert opening.start() < text.index("<h2")


def test_every_section_shows_what_its_rows_say(full: Page) -> None:
    said = {name: re.sub(r"\s+", " ", text) for name, text in full.by_section.items()}
    assert "canaries passed 1 passed 33.0 s" in said["stages"]
    assert "parity.wrong_token" in said["findings"]
    assert "python -m fixtures.diagnosis.replay" in said["findings"]
    for words in (
        "recurrent prefix",
        "known deviation",
        "vllm-cpu-decode-strength: up to 0.0156",
        "not offered",
    ):
        assert words in said["contracts"]
    for words in (
        "count 2 of 2 2 of 2 1 of 2",
        "9.49 nats",
        "round 16, row 1",
        "state between packed verifier rows",
    ):
        assert words in said["parity"]
    for words in (
        "no ratio: coldness is pending",
        "0.800 / 0.500 / 0.200",
        "a check failed",
        "by prompt length",
        "candidate#1 p0 code 120 100.00",
    ):
        assert words in said["speed"]
    assert "late#1 cpu:1 0.0 s never 20.0 s" in said["servers"]
    assert "lane.name canary-cpu" in said["identity"]
    assert "logs/target-1.log" in said["identity"]
    assert "6 lease" in said["identity"], "rows that no section shows are counted all the same"


def test_every_chart_with_data_is_drawn_and_says_its_numbers_to_who_cannot_see_it(text: str) -> None:
    drawn = dict(re.findall(r'<figcaption>(.*?)</figcaption><div role="img" aria-label="(.*?)"', text, re.S))
    assert set(drawn) == {
        "Class medians",
        "Token arrival, candidate#1",
        "Token arrival, candidate#2",
        "Inter-token gaps",
        "Acceptance by position",
        "Speed by prompt length",
        "Record history",
        "Servers and pool",
    }
    assert "code 100.0" in drawn["Class medians"]
    assert "0.800, 0.500, 0.200" in drawn["Acceptance by position"]
    assert "median 10.00 ms" in drawn["Inter-token gaps"]
    assert "late#1 on cpu:1: leased at 0 s, never ready, stopped at 20 s" in drawn["Servers and pool"]


def test_charts_take_their_colours_from_the_page(text: str) -> None:
    """Dark mode is the page's variables; a colour of matplotlib's own would stay as it is."""
    pictures = re.findall(r"<svg.*?</svg>", text, re.S)
    assert pictures
    for picture in pictures:
        assert "var(--ink)" in picture
        assert re.findall(r"#01f[ed]0\d", picture) == []
        assert re.findall(r"(?:fill|stroke): #(?:000000|1f77b4)", picture) == []
    assert "prefers-color-scheme: dark" in text


def test_a_divergence_marks_the_differing_word_and_id_of_both_sides(text: str) -> None:
    ids = packet_rows()["transcript"][3]["token_ids"]
    part = text[text.index('id="divergences"') :]
    part = part[: part.index("</details>")]
    assert "<mark>499</mark>" in part
    assert re.findall(r"<mark>(\d+)</mark>", part).count(str(ids[WRONG_AT])) == 2, (
        "in the text and among the ids"
    )
    assert "<mark>&lt;script&gt;document.title</mark>" in part


def test_tables_and_divergences_need_no_javascript(text: str) -> None:
    """Expandable parts are `details`; what only the script can do is hidden without it."""
    assert text.count("<details") > 5
    assert ".filter { display: none" in text
    assert "button.copy { display: none" in text
    assert text.index("<script>") > text.index("</main>")


def test_the_same_packet_gives_the_same_page(packet: Path, text: str) -> None:
    assert build_report(packet)[0] == text
    assert write_report(packet) == packet / "report.html"
    assert verify(packet).outcome is Outcome.REJECTED, "and the packet still holds together"


def test_a_sealed_packet_with_another_page_is_left_alone(
    packet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report of another version of the suite goes beside the packet: its hash may be bound elsewhere."""
    monkeypatch.setattr(page, "sentence", lambda _verdict: "another wording")
    page.environment.cache_clear()
    before = {p: p.read_bytes() for p in packet.rglob("*") if p.is_file()}
    try:
        assert main(["report", str(packet)]) == 0
    finally:
        monkeypatch.undo()
        page.environment.cache_clear()
    beside = packet.with_name("packet.html")
    assert capsys.readouterr().out.strip() == str(beside)
    assert "another wording" in beside.read_text()
    assert {p: p.read_bytes() for p in packet.rglob("*") if p.is_file()} == before


def test_a_changed_report_is_found_out(packet: Path) -> None:
    report = packet / "report.html"
    report.write_text(report.read_text().replace("Rejected:", "Accepted:"))
    assert any("report.html" in f.message for f in verify(packet).findings)


def test_a_tampered_packet_has_a_page_that_shows_its_problems_and_nothing_else(packet: Path) -> None:
    rows = packet / "rows" / "contract.jsonl"
    rows.write_text(rows.read_text().replace("0.0156", "0.0001"))
    made, verdict = build_report(packet)
    assert verdict is None
    assert "Invalid evidence: " in made
    assert "rows/contract.jsonl" in made
    assert "vllm-cpu-decode-strength" not in made


def test_an_unfinished_run_is_pending_whatever_its_rows_say(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    for kind, rows in packet_rows().items():
        for row in rows:
            writer.append(kind, row)
    writer.close()
    made, verdict = build_report(tmp_path / "packet")
    assert verdict is not None
    assert (verdict.outcome, verdict.headline_tok_s) == (Outcome.PENDING, None)
    assert "Pending: the run was not finished" in made
    assert write_report(tmp_path / "packet") == tmp_path / "packet" / "report.html"


def test_a_packet_without_rows_says_not_shown_everywhere(tmp_path: Path) -> None:
    assert seal(tmp_path / "packet", {}).outcome is Outcome.PENDING
    made = (tmp_path / "packet" / "report.html").read_text()
    said = Page(made).by_section
    for section in ("stages", "contracts", "parity", "speed", "servers"):
        assert "ot shown" in said[section], section
    assert "<svg" not in made
    assert "tok/s, strict cold" not in made


def test_rows_that_make_no_sense_still_give_a_page(tmp_path: Path) -> None:
    """A report of a broken run is when a person needs one most: every kind with nothing in it, and with rubbish."""
    rubbish: dict[str, Any] = {
        "arm": None,
        "purpose": "measured",
        "receipt_ns": "x",
        "sent_ns": "y",
        "ready_s": "z",
    }
    kinds = ("transcript", "arm", "counters", "suite", "score", "contract", "test", "stage", "lane", "record")
    rows = {
        kind: [{}, rubbish]
        for kind in (*kinds, "lease", "history", "level", "trace", "finding", "unheard-of")
    }
    assert seal(tmp_path / "packet", rows).outcome is Outcome.INVALID
    made = (tmp_path / "packet" / "report.html").read_text()
    assert "this page could not be made" not in made
    assert "Invalid evidence: rows/" in made


def test_a_page_that_cannot_be_made_costs_neither_verdict_nor_packet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> charts.Chart:
        raise RuntimeError("no canvas")

    monkeypatch.setattr(charts, "class_medians", broken)
    assert seal(tmp_path / "packet", packet_rows()).outcome is Outcome.ACCEPTED
    made = (tmp_path / "packet" / "report.html").read_text()
    assert "this page could not be made" in made
    assert "RuntimeError: no canvas" in made
    assert "Accepted: every check" in made
    assert verify(tmp_path / "packet").outcome is Outcome.ACCEPTED
    with pytest.raises(RuntimeError, match="no canvas"):
        write_report(tmp_path / "packet")
