"""report.html: one offline file that says everything, shows what models say as text, and invents nothing."""

from __future__ import annotations

import html.parser
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from judge_rows import packet_rows
from report_rows import HOSTILE, WRONG_AT, full_rows, seal

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import Verdict, derive
from fixtures.parsing import BadInput
from fixtures.report.html import charts, page, sections
from fixtures.report.html.rebuild import build_report, write_report
from fixtures.report.html.several import write_comparison, write_index
from fixtures.report.html.speed import speed
from fixtures.report.summary import sentence

LARGEST_BYTES = 600_000


class Page(html.parser.HTMLParser):
    """What a test asks of a page: text by section, ids, links, attributes that could fetch or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.fetching: list[str] = []
        self.by_section: dict[str, str] = {}
        self._section = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "h2":
            self._section = str(given.get("id", ""))
        if "id" in given:
            self.ids.append(str(given["id"]))
        if given.get("href"):
            self.links.append(str(given["href"]))
        self.handlers += [name for name in given if name.startswith("on")]
        self.fetching += [
            f"{tag} {name}" for name in given if name in ("src", "srcset", "data", "action", "poster")
        ]

    def handle_data(self, data: str) -> None:
        self.by_section[self._section] = self.by_section.get(self._section, "") + f"{data} "


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


def contract(**changes: Any) -> dict[str, Any]:
    row = {"subject": "s", "version": "1", "device": "cpu", "contract": "c", "case": "x", "compared": 4}
    return row | {"mismatches": 0, "max_abs_error": 0.0, "bound": None} | changes


DEVIATION = {"id": "known", "bound": 0.5}


@pytest.mark.parametrize(
    ("rows", "outcomes", "words"),
    [
        ([contract()], ["passed"], "holds"),
        ([contract(mismatches=1, max_abs_error=0.1)], ["failed"], "rejected"),
        ([contract(mismatches=1, max_abs_error=0.1, deviation=DEVIATION)], ["xfailed"], "known deviation"),
        ([contract(mismatches=1, max_abs_error=0.9, deviation=DEVIATION)], ["xfailed"], "rejected"),
        (
            [contract(mismatches=1, max_abs_error=0.1, deviation=DEVIATION), contract()],
            ["failed"],
            "rejected",
        ),
        ([], ["not offered", "not offered"], "not offered"),
        ([], ["skipped"], "not runnable"),
        ([], ["error"], "inconclusive"),
        ([contract(compared="many")], [], "invalid evidence"),
        ([contract(compared=0)], [], "pending"),
    ],
)
def test_a_contract_cell_says_the_worst_that_is_known(
    rows: list[Mapping[str, Any]], outcomes: list[str], words: str
) -> None:
    tests = [
        {"nodeid": f"tests/contracts/test_c.py::test_x[s@cpu-{n}]", "stage": "contracts", "outcome": outcome}
        for n, outcome in enumerate(outcomes)
    ]
    matrix = sections.contracts({"contract": rows, "test": tests})
    assert matrix is not None
    (cell,) = matrix.cells.values()
    assert cell.words == words
    assert matrix.names == ("c",)


def test_a_stage_that_was_not_reached_says_why_and_one_that_failed_says_so() -> None:
    rows = {
        "stage": [
            {"name": "contracts", "state": "reached", "reason": ""},
            {"name": "server", "state": "not reached", "reason": "stage contracts did not pass"},
        ],
        "test": [
            {"nodeid": "a", "stage": "contracts", "outcome": "failed", "duration_s": 1.5, "setup_s": 2.0},
            {"nodeid": "b", "stage": "contracts", "outcome": "passed"},
        ],
    }
    first, second = sections.stages(rows)
    assert (first.name, first.state, first.outcome, first.seconds) == (
        "contracts",
        "did not pass",
        Outcome.REJECTED,
        3.5,
    )
    assert (second.state, second.reason, second.seconds) == (
        "not reached",
        "stage contracts did not pass",
        None,
    )


def test_a_stage_whose_tests_passed_is_not_passed_if_what_was_judged_is_not() -> None:
    """An interrupted run may have judged what no test came to."""
    tests = [{"nodeid": "tests/quality/test_parity.py::test_x", "stage": "quality", "outcome": "passed"}]
    findings = [
        Finding("batch.isolation", Outcome.REJECTED, "mixed up"),
        Finding("canary.answer", Outcome.REJECTED, ""),
    ]
    (stage,) = sections.stages({"test": tests}, findings)
    assert (stage.name, stage.state, stage.outcome) == ("parity", "did not pass", Outcome.REJECTED)


def test_findings_are_brought_together_by_check_and_arm() -> None:
    bad = [
        Finding("parity.diverged", Outcome.REJECTED, f"prompt {n}", f"candidate#{n % 2}") for n in range(6)
    ]
    groups = sections.grouped(bad)
    assert [(g.arm, g.count, g.message) for g in groups] == [
        ("candidate#0", 3, "prompt 0"),
        ("candidate#1", 3, "prompt 1"),
    ]


def test_a_server_that_answers_under_several_names_is_one_start_with_all_its_requests() -> None:
    names = ("candidate#1@fix", "candidate#1@fix/reversed", "candidate#10@fix")
    rows = {
        "arm": [{"arm": n, "role": "candidate", "instance": str("0@" in n)} for n in names],
        "lease": [{"arm": names[0], "slot": "cpu:0", "leased_ns": 0, "ready_ns": 5, "released_ns": 100}],
        "transcript": [{"arm": n, "sent_ns": 10, "done_ns": 20} for n in names],
    }
    assert [s.arm for s in sections.starts(rows)] == [names[0], names[2]]
    (life,) = sections.lives(rows)
    assert len(life.requests) == 2, "its own and those of its other order, not those of candidate#10"


def test_names_of_arms_lose_the_stack_only_where_they_still_differ() -> None:
    assert charts.short_names(["candidate#1@fix", "candidate#1@fix/mixed"]) == [
        "candidate#1",
        "candidate#1/mixed",
    ]
    same = ["candidate#1@fix", "candidate#1@other"]
    assert charts.short_names(same) == same


def test_a_ratio_is_drawn_with_its_interval_and_its_band() -> None:
    details = {"ratio": 1.04, "low": 1.02, "high": 1.06, "band": 0.015}
    finding = Finding("speed.control", Outcome.ACCEPTED, "faster", details=details)
    found = speed({}, Verdict(Outcome.ACCEPTED, (finding,)))
    (ratio,) = found.ratios
    assert (ratio.ratio, ratio.low, ratio.high, ratio.band) == (1.04, 1.02, 1.06, 0.015)
    chart = charts.ratios(found.ratios)
    assert "1.0400 [1.0200, 1.0600]" in chart.says
    assert "var(--good)" in chart.svg
    assert "noise band 1.5%" in chart.svg


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            derive(packet_rows()),
            "Accepted: every check that was asked for ran and passed. 100.0 tok/s, strict cold",
        ),
        (
            Verdict(Outcome.PENDING, ()),
            "Pending: something that is required is missing: nothing was checked.",
        ),
        (
            Verdict(
                Outcome.REJECTED,
                (
                    Finding("test.failed", Outcome.REJECTED, "tests/x.py: assert"),
                    Finding("parity.restarts", Outcome.REJECTED, "restarts differ"),
                    Finding("parity.corruption", Outcome.REJECTED, "answer is garbage.\nmore"),
                ),
            ),
            "Rejected: answer is garbage (2 more findings: 1 parity.restarts, 1 test.failed).",
        ),
    ],
)
def test_the_sentence_names_the_cause_and_not_the_test_that_noticed(verdict: Verdict, said: str) -> None:
    assert sentence(verdict).startswith(said)


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
    sealed: Path, packet: Path, tmp_path: Path
) -> None:
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
