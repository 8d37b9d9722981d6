"""The report is one table that a person understands, then the worst divergence in full."""

from __future__ import annotations

from judge_rows import packet_rows, transcript

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import Verdict, derive
from fixtures.report.summary import summary


def test_a_sound_run_shows_its_arms_and_its_speed() -> None:
    text = summary(derive(packet_rows()), "canary-cpu")
    assert text.startswith("# canary-cpu: accepted\n")
    assert "Speed: 100.000 tok/s" in text
    row = next(line for line in text.splitlines() if line.startswith("| candidate#1"))
    assert {c.strip() for c in row.split("|")[2:-1]} == {"ok"}
    assert "What was found" not in text


def test_a_divergence_is_shown_in_full_and_the_speed_is_withheld() -> None:
    rows = packet_rows()
    changed = next(r for r in rows["transcript"] if (r["arm"], r["prompt_id"]) == ("candidate#2", "p3"))
    changed["token_ids"] = [*changed["token_ids"][:50], 499, *changed["token_ids"][51:]]
    del changed["output_sha256"]
    text = summary(derive(rows))
    ids = transcript("p3").token_ids
    assert text.startswith("# draftproof: rejected\n")
    assert "Speed: no result, because parity is rejected" in text
    assert "prompt p3 of suite, arm candidate#2, id 50" in text
    assert f"target said: {list(ids[50:58])}" in text
    assert f"candidate said: {[499, *ids[51:58]]}" in text
    assert "| REJECTED" in next(line for line in text.splitlines() if line.startswith("| candidate#2"))


def test_the_worst_findings_come_first() -> None:
    findings = tuple(
        Finding("stage", o, o.value)
        for o in (Outcome.PENDING, Outcome.INVALID, Outcome.ACCEPTED, Outcome.REJECTED)
    )
    lines = [
        line for line in summary(Verdict(Outcome.INVALID, findings)).splitlines() if line.startswith("- ")
    ]
    assert [line.split("`")[0].strip("- ") for line in lines] == ["INVALID", "REJECTED", "pending"]
