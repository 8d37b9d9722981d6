"""Parts of a report: cells, stages, merged findings, names of arms, intervals, and the sentence of the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from judge_rows import packet_rows

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import Verdict, derive
from fixtures.report.html import charts, sections
from fixtures.report.html.speed import speed
from fixtures.report.summary import sentence


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
