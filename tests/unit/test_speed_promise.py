"""What a lane promises decides: a null speed is missing only where a speed was promised or asked for."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from judge_rows import packet_rows

from fixtures.client.transcript import Transcript
from fixtures.gate.impact import Impact
from fixtures.judge.finding import Outcome
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import load_lane
from fixtures.report.summary import sentence
from fixtures.request import GateRequest, RunRequest
from fixtures.run.promise import promises_speed

REASON = "not promised by this lane, and not shown: candidate#1: 1 of 10 answers cannot be timed"


def busy_rows(**lane: Any) -> dict[str, list[Any]]:
    """A sound run on a busy machine: one answer of the first candidate came in one read, and nothing stands in."""
    rows = packet_rows()
    for n, said in enumerate(rows["transcript"]):
        if (said["arm"], said["prompt_id"], said["purpose"]) == ("candidate#1", "p0", "measured"):
            times = tuple(said["receipt_ns"][-1:]) * 120
            rows["transcript"][n] = said | {"receipt_ns": times}
    rows["lane"][0] |= lane
    return rows


def test_a_lane_that_promises_no_speed_is_accepted_by_what_it_promises() -> None:
    verdict = derive(busy_rows(promises_speed=False))
    assert verdict.outcome is Outcome.ACCEPTED
    assert verdict.headline_tok_s is None
    assert verdict.headline_reason.startswith(REASON)
    assert REASON in sentence(verdict), "the verdict's own sentence says that there is no speed, and why"
    assert sentence(verdict).startswith(
        "Accepted: every check that was asked for ran and passed. Speed is null"
    )


@pytest.mark.parametrize(
    "lane", [{}, {"promises_speed": True}, {"promises_speed": None}, {"promises_speed": 0}]
)
def test_a_lane_that_promises_it_or_does_not_say_is_inconclusive(lane: dict[str, Any]) -> None:
    assert derive(busy_rows(**lane)).outcome is Outcome.INCONCLUSIVE


def test_what_a_quiet_machine_would_not_show_either_is_pending() -> None:
    """A second start that is missing is missing however busy the machine was."""
    alone = busy_rows()
    alone["transcript"] = [
        t for t in alone["transcript"] if (t["arm"], t["purpose"]) != ("candidate#2", "measured")
    ]
    (headline,) = [f for f in derive(alone).findings if f.check == "speed.headline"]
    assert headline.outcome is Outcome.PENDING
    assert "2 fresh starts required" in headline.message
    assert "cannot be timed" in headline.message


def test_a_record_or_a_control_is_a_promise_whatever_the_lane_says() -> None:
    recorded = busy_rows(promises_speed=False)
    recorded["record"] = [{"lane": "canary-cpu", "entry": "e", "interval_tok_s": 90.0, "band": 0.044}]
    assert Outcome.INCONCLUSIVE in {
        f.outcome for f in derive(recorded).findings if f.check == "speed.headline"
    }
    controlled = busy_rows(promises_speed=False)
    controlled["arm"].append({"arm": "control#3", "role": "control", "speculation": None})
    assert derive(controlled).outcome is Outcome.INCONCLUSIVE


def test_only_what_the_machine_prevented_is_excused() -> None:
    short = busy_rows(promises_speed=False)
    for n, said in enumerate(short["transcript"]):
        if (said["arm"], said["purpose"]) == ("candidate#2", "measured"):
            cut = Transcript.from_row(said)
            cut = dataclasses.replace(cut, token_ids=cut.token_ids[:60], receipt_ns=cut.receipt_ns[:60])
            short["transcript"][n] = cut.to_row() | {"purpose": "measured"}
    assert derive(short).outcome is not Outcome.ACCEPTED
    alone = busy_rows(promises_speed=False)
    alone["transcript"] = [
        t for t in alone["transcript"] if (t["arm"], t["purpose"]) != ("candidate#2", "measured")
    ]
    assert derive(alone).outcome is not Outcome.ACCEPTED, "one measured start where two are required"


def test_a_speed_that_could_be_measured_is_shown_all_the_same() -> None:
    rows = packet_rows()
    rows["lane"][0] |= {"promises_speed": False}
    assert derive(rows).headline_tok_s == pytest.approx(100.0)


GATE = GateRequest("main", Impact((), ()))


def asked(**given: Any) -> RunRequest:
    return RunRequest(**{"lane": load_lane("canary-cpu"), "stack": "stock", "gate": GATE} | given)


@pytest.mark.parametrize(
    ("given", "promised"),
    [
        ({}, False),
        ({"stack": "gdn-ragged-drafts"}, False),
        ({"gate": None}, True),
        ({"record": True}, True),
        ({"control": "stock"}, True),
        ({"lane": load_lane("canary-cuda")}, True),
    ],
    ids=["gate", "gate of a repair", "by name", "record", "control", "a device of its own"],
)
def test_who_asks_for_speed_gets_a_speed_or_no_acceptance(given: dict[str, Any], promised: bool) -> None:
    assert promises_speed(asked(**given)) is promised


def test_a_stack_that_changes_speed_promises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = SimpleNamespace(sets=(SimpleNamespace(changes="repair"), SimpleNamespace(changes="speed")))
    monkeypatch.setattr("fixtures.run.promise.load_stack", lambda name: quick)
    assert promises_speed(asked(stack="quick"))


def test_a_record_of_the_lane_promises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"interval_tok_s": 97.0}
    monkeypatch.setattr("fixtures.run.promise.comparison_row", lambda name, band: row)
    assert promises_speed(asked())
