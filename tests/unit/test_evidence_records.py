"""Records keep their history, take only what qualifies, and follow from their packets."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from judge_rows import packet_rows, transcript

from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.reading import read_packet
from fixtures.evidence.records import (
    RECORDS,
    Entry,
    add_entry,
    check_entry,
    check_record,
    comparison_row,
    entry_of,
    known_records,
    load_record,
)
from fixtures.judge.finding import EXIT_CODES, Outcome
from fixtures.judge.record import RecordRow, judge_against_record
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput

DATE = datetime.date(2026, 11, 29)


def packet(directory: Path, rows: dict[str, Any] | None = None) -> Path:
    writer = PacketWriter.create(directory)
    for kind, items in (rows or packet_rows()).items():
        for row in items:
            writer.append(kind, row)
    writer.set_identity({"lane": "canary-cpu"})
    writer.finish()
    return directory


def qualified(tmp_path: Path) -> Entry:
    return entry_of(read_packet(packet(tmp_path / "packet")), "canary-cpu", DATE)


def test_the_seed_records_load_with_their_published_numbers() -> None:
    assert {"b70-tp1", "b70-tp2"} <= set(known_records())
    tp2 = load_record("b70-tp2")
    assert tp2 is not None
    rates = [e.rate.tok_s for e in tp2.history if e.rate]
    assert rates == [87.02911429766677, 93.03624230561563, 95.384867741895, 98.766]
    assert [e.state for e in tp2.history] == ["superseded", "rejected", "rejected", "rejected"]
    tp1 = load_record("b70-tp1")
    assert tp1 is not None
    assert [round(e.rate.tok_s, 3) for e in tp1.history if e.rate] == [53.522, 62.628, 65.276, 68.236]


def test_no_seed_is_qualified_because_none_was_checked_strictly() -> None:
    assert {e.state for name in ("b70-tp1", "b70-tp2") for e in load_record(name).history} == {  # type: ignore[union-attr]
        "measured",
        "rejected",
        "superseded",
    }


def test_an_inclusive_rate_is_compared_by_intervals() -> None:
    row = comparison_row("b70-tp2")
    assert row["entry"] == "2026-07-11-full-graph"
    assert row["interval_tok_s"] == pytest.approx(93.03624230561563 * 0.99, rel=1e-15)
    fusions = next(e for e in load_record("b70-tp2").history if "fusions" in e.id)  # type: ignore[union-attr]
    assert fusions.rate is not None
    assert round(fusions.rate.interval_tok_s, 6) == fusions.metrics["interval_tok_s"]


@pytest.mark.parametrize(
    ("headline_tok_s", "outcome"),
    [(95.0, Outcome.ACCEPTED), (89.0, Outcome.ACCEPTED), (87.0, Outcome.REJECTED), (None, Outcome.PENDING)],
    ids=["faster", "inside the band", "slower", "no headline"],
)
def test_a_headline_is_held_against_the_record_within_its_noise_band(
    headline_tok_s: float | None, outcome: Outcome
) -> None:
    assert (
        judge_against_record(RecordRow.from_row(comparison_row("b70-tp2")), headline_tok_s).outcome is outcome
    )


@pytest.mark.parametrize(
    ("gap_s", "outcome"),
    [(1 / 93.0, Outcome.ACCEPTED), (1 / 89.0, Outcome.ACCEPTED), (1 / 85.0, Outcome.REJECTED)],
    ids=["the record again", "inside the band", "slower"],
)
def test_a_run_of_the_b70_tp2_lane_is_held_against_the_93_tok_s_record(
    gap_s: float, outcome: Outcome
) -> None:
    """The lane's own band, the record's number by intervals, and a verdict that follows from the rows."""
    lane = load_lane("b70-tp2")
    assert (lane.thresholds.same_window_band, lane.thresholds.cross_window_band) == (0.015, 0.044)
    rows = packet_rows()
    for n, row in enumerate(rows["transcript"]):
        if row["purpose"] == "measured":
            said = transcript(
                row["prompt_id"],
                row["arm"],
                gap_s=gap_s,
                order=row["order"],
                prompt_class=row["prompt_class"],
            )
            rows["transcript"][n] = said.to_row() | {"purpose": "measured"}
    rows["record"] = [comparison_row(lane.name, band=lane.thresholds.cross_window_band)]
    verdict = derive(rows)
    (found,) = [f for f in verdict.findings if f.check == "speed.record"]
    assert found.outcome is verdict.outcome is outcome
    assert "of 92.106 (2026-07-11-full-graph), noise band 4.4%" in found.message


def test_the_first_run_of_a_lane_is_pending_and_still_becomes_its_record(tmp_path: Path) -> None:
    rows = packet_rows() | {"record": [comparison_row("new-lane", tmp_path / "records")]}
    directory = packet(tmp_path / "packet", rows)
    assert read_packet(directory).stored_verdict["exit_code"] == EXIT_CODES[Outcome.PENDING]
    entry = entry_of(read_packet(directory), "new-lane", DATE)
    add_entry("new-lane", entry, tmp_path / "records")
    assert comparison_row("new-lane", tmp_path / "records")["entry"] == entry.id
    assert check_entry(entry, "new-lane", directory) == []


def test_a_record_keeps_every_number_of_its_central_arm(tmp_path: Path) -> None:
    assert {"accepted_per_step", "acceptance_at_3", "step_ms", "gap_p99_s", "prefill_median_tok_s"} <= set(
        qualified(tmp_path).metrics
    )


def test_a_run_that_is_slower_than_the_record_does_not_become_one(tmp_path: Path) -> None:
    row = {"lane": "canary-cpu", "entry": "old", "interval_tok_s": 200.0, "band": 0.044}
    with pytest.raises(BadInput, match=r"the verdict is rejected: speed\.record"):
        entry_of(
            read_packet(packet(tmp_path / "packet", packet_rows() | {"record": [row]})), "canary-cpu", DATE
        )


def test_a_lane_without_a_record_is_measured_and_pending(tmp_path: Path) -> None:
    found = judge_against_record(RecordRow.from_row(comparison_row("new-lane", tmp_path)), 100.0)
    assert (found.outcome, found.message) == (Outcome.PENDING, "lane new-lane: measured, no record")


def test_an_accepted_packet_becomes_an_entry_that_follows_from_it(tmp_path: Path) -> None:
    entry = qualified(tmp_path)
    assert entry.rate is not None
    assert (entry.state, entry.rate.rule, entry.rate.tok_s) == (
        "qualified",
        "intervals",
        pytest.approx(100.0),
    )
    path = add_entry("canary-cpu", entry, tmp_path / "records")
    record = load_record("canary-cpu", tmp_path / "records")
    assert record is not None
    assert record.reference == entry
    assert check_entry(entry, "canary-cpu", tmp_path / "packet") == []
    assert entry.packet is not None
    found = check_record(path, {entry.packet.run_id: tmp_path / "packet"})
    assert {f.outcome for f in found} == {Outcome.ACCEPTED}
    assert Outcome.PENDING in {f.outcome for f in check_record(path)}, "without its packet it is only claimed"


def test_an_entry_that_was_changed_by_hand_does_not_follow(tmp_path: Path) -> None:
    entry = qualified(tmp_path)
    assert entry.rate is not None
    better = entry.model_copy(update={"rate": entry.rate.model_copy(update={"tok_s": 146.8})})
    assert check_entry(better, "canary-cpu", tmp_path / "packet")[0].startswith(f"{entry.id}: rate:")


def test_a_packet_that_does_not_qualify_is_refused_with_the_reason(tmp_path: Path) -> None:
    rows = packet_rows()
    rows["counters"] = []
    read = read_packet(packet(tmp_path / "packet", rows))
    with pytest.raises(BadInput, match="coldness is pending"):
        entry_of(read, "canary-cpu", DATE)
    with pytest.raises(BadInput, match="not finished"):
        entry_of(dataclasses.replace(read, finished=False), "canary-cpu", DATE)


def test_nothing_is_overwritten_and_the_order_is_stable(tmp_path: Path) -> None:
    entry, folder = qualified(tmp_path), tmp_path / "records"
    path = add_entry("canary-cpu", entry, folder)
    before = path.read_text()
    with pytest.raises(BadInput, match="nothing is overwritten"):
        add_entry("canary-cpu", entry, folder)
    assert path.read_text() == before
    earlier = entry.model_copy(update={"id": "2026-11-01-a", "date": datetime.date(2026, 11, 1)})
    add_entry("canary-cpu", earlier, folder)
    assert [e["id"] for e in json.loads(path.read_text())["history"]] == ["2026-11-01-a", entry.id]
    assert path.read_text().endswith("}\n")


def test_only_what_qualifies_is_recorded(tmp_path: Path) -> None:
    measured = qualified(tmp_path).model_copy(update={"state": "measured"})
    with pytest.raises(BadInput, match="only what qualifies"):
        add_entry("canary-cpu", measured, tmp_path / "records")


def seed(**changes: Any) -> dict[str, Any]:
    data = json.loads((RECORDS / "b70-tp2.json").read_text())
    data["history"][1] |= changes
    return data


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (seed(state="verified"), "history.1.state"),
        (seed(state="qualified"), "a qualified entry needs a rate and the hash of its packet"),
        (seed(reason=""), "a rejected entry needs a reason"),
        (seed(passed=True), "history.1.passed"),
        (seed(rate={"tok_s": -1, "rule": "intervals", "over": "prompts"}), "history.1.rate.tok_s"),
        (seed(id="2026-07-11-captured-gdn"), "occur more than once"),
        (seed(date="2026-09-01"), "sorted by date"),
        (seed() | {"compare_with": "nobody"}, "there is no entry 'nobody'"),
        (seed() | {"lane": "b70-tp9"}, "the file is called 'b70-tp2'"),
    ],
)
def test_a_malformed_record_names_file_line_and_field(
    tmp_path: Path, data: dict[str, Any], field: str
) -> None:
    path = tmp_path / "b70-tp2.json"
    path.write_text(json.dumps(data, indent=2))
    with pytest.raises(BadInput) as error:
        load_record("b70-tp2", tmp_path)
    assert str(path) in str(error.value)
    assert field in str(error.value)
