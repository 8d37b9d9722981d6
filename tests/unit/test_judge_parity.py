"""Parity is over whole answers, id by id, with the null arms first."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from judge_rows import suite_of, transcript

from fixtures.client.transcript import Transcript
from fixtures.judge.comparison import Relation, compare
from fixtures.judge.divergence import classify
from fixtures.judge.finding import Outcome
from fixtures.judge.parity import Role, judge_parity

ROLES = {
    "target#1": Role.TARGET,
    "target#2": Role.TARGET,
    "candidate#1": Role.CANDIDATE,
    "candidate#2": Role.CANDIDATE,
}


def run(**changes: dict[str, Any]) -> list[Transcript]:
    """Four arms over ten prompts; `changes` replaces fields of prompt p3 by arm (`target_2={...}`)."""
    rows = [t for arm in ROLES for t in suite_of(arm)]
    for arm, fields in changes.items():
        name = arm.replace("_", "#")
        rows = [dataclasses.replace(t, **fields) if (t.arm, t.prompt_id) == (name, "p3") else t for t in rows]
    return rows


IDS = suite_of("x")[3].token_ids
WRONG = (*IDS[:100], 499, *IDS[101:])


def bad(rows: list[Transcript], **options: Any) -> dict[tuple[str, str], Outcome]:
    report = judge_parity(rows, ROLES, require_candidates=2, **options)
    return {(f.check, f.arm): f.outcome for f in report.findings if f.outcome is not Outcome.ACCEPTED}


def test_equal_arms_are_accepted() -> None:
    report = judge_parity(run(), ROLES, require_candidates=2)
    assert report.outcome is Outcome.ACCEPTED
    assert {f.check for f in report.findings} == {"parity.target_repeats", "parity.exact", "parity.restarts"}


def test_one_wrong_id_late_in_one_answer_is_rejected_and_placed() -> None:
    report = judge_parity(run(candidate_2={"token_ids": WRONG}), ROLES)
    assert report.outcome is Outcome.REJECTED
    [cell] = report.divergences()
    assert (cell.arm, cell.prompt_id, cell.first_divergence) == ("candidate#2", "p3", 100)
    assert report.against_target is not None
    cells = {arm: of["suite", "p3"] for arm, of in report.against_target.cells.items()}
    assert cells["candidate#1"].relation is Relation.EQUAL
    assert (cells["candidate#2"].relation, cells["candidate#2"].first_divergence) == (Relation.DIVERGED, 100)
    assert "parity.restarts" in {f.check for f in report.findings if f.outcome is Outcome.REJECTED}


CUT = {"token_ids": IDS[:60], "receipt_ns": suite_of("x")[3].receipt_ns[:60]}
PREFIXES = {
    "by an error": (CUT | {"error": "connection closed"}, Outcome.INCONCLUSIVE),
    "by its cap": (
        CUT | {"finish_reason": "length", "request": suite_of("x")[3].request | {"max_tokens": 60}},
        Outcome.PENDING,
    ),
    "without a reason": (CUT | {"finish_reason": None}, Outcome.INCONCLUSIVE),
    "by itself": (CUT, Outcome.REJECTED),
    "by a length that is not its cap": (CUT | {"finish_reason": "length"}, Outcome.REJECTED),
}


@pytest.mark.parametrize("cut", PREFIXES)
def test_a_shorter_exact_answer_is_a_prefix_and_no_divergence(cut: str) -> None:
    changes, outcome = PREFIXES[cut]
    rows = run(candidate_1=changes)
    report = judge_parity(rows, ROLES)
    assert report.divergences() == []
    assert ("parity.prefix", "candidate#1") in bad(rows)
    assert bad(rows)["parity.prefix", "candidate#1"] is outcome


def test_an_answer_that_goes_on_after_the_targets_end_is_rejected() -> None:
    rows = run(candidate_1={"token_ids": (*IDS, 7, 8)})
    assert bad(rows)["parity.extension", "candidate#1"] is Outcome.REJECTED


def test_a_target_that_was_cut_short_does_not_reject_the_candidate() -> None:
    rows = run(target_1=CUT | {"error": "connection closed"}, target_2=CUT | {"error": "connection closed"})
    assert Outcome.REJECTED not in bad(rows).values()
    assert bad(rows)["parity.extension", "candidate#1"] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("field", ["content", "reasoning", "finish_reason"])
def test_text_out_of_step_with_the_ids_is_rejected(field: str) -> None:
    rows = run(candidate_1={field: "other"})
    assert bad(rows)["parity.text_differs", "candidate#1"] is Outcome.REJECTED


def test_a_target_that_does_not_repeat_itself_makes_parity_pending_and_not_failed() -> None:
    found = bad(run(target_2={"token_ids": WRONG}, candidate_1={"token_ids": (*IDS[:50], 498, *IDS[51:])}))
    assert found == {
        ("parity.target_repeats", "target#1"): Outcome.PENDING,
        ("parity.diverged", "candidate#1"): Outcome.PENDING,
    }


def test_a_single_target_start_leaves_repeatability_pending() -> None:
    rows = [t for t in run() if t.arm != "target#2"]
    roles = {a: r for a, r in ROLES.items() if a != "target#2"}
    assert judge_parity(rows, roles).outcome is Outcome.PENDING


def test_a_divergence_that_a_null_arm_shows_at_the_same_place_is_arithmetic() -> None:
    roles = ROLES | {"batched#1": Role.NULL}
    null = [
        dataclasses.replace(t, arm="batched#1")
        for t in run(target_1={"token_ids": WRONG})
        if t.arm == "target#1"
    ]
    same = judge_parity([*run(candidate_1={"token_ids": WRONG}), *null], roles)
    other = judge_parity([*run(candidate_1={"token_ids": (*IDS[:50], 498, *IDS[51:])}), *null], roles)
    assert "parity.arithmetic" in {f.check for f in same.findings if f.arm == "candidate#1"}
    assert {f.outcome for f in other.findings if f.check == "parity.diverged"} == {Outcome.REJECTED}


def test_a_prompt_that_an_arm_did_not_answer_is_pending() -> None:
    rows = [t for t in run() if (t.arm, t.prompt_id) != ("candidate#2", "p3")]
    assert bad(rows) == {("parity.coverage", "candidate#2"): Outcome.PENDING}


def test_a_server_that_is_asked_for_a_test_alone_owes_no_answers() -> None:
    assert judge_parity(run(), ROLES | {"candidate#40": Role.DEDICATED}).outcome is Outcome.ACCEPTED
    assert judge_parity(run(), ROLES | {"candidate#40": Role.CANDIDATE}).outcome is Outcome.PENDING


def test_answers_without_ids_are_pending() -> None:
    rows = run(candidate_1={"token_ids": (), "receipt_ns": ()})
    assert bad(rows)["parity.not_comparable", "candidate#1"] is Outcome.PENDING


def test_different_prompts_under_one_id_are_invalid_evidence() -> None:
    rows = run(candidate_1={"request": {"messages": [{"role": "user", "content": "something else"}]}})
    assert bad(rows)["parity.not_comparable", "candidate#1"] is Outcome.INVALID


def test_without_a_target_or_without_candidates_nothing_is_accepted() -> None:
    assert judge_parity([], {}).outcome is Outcome.PENDING
    only_target = [t for t in run() if t.arm.startswith("target")]
    assert (
        judge_parity(only_target, {"target#1": Role.TARGET, "target#2": Role.TARGET}).outcome
        is Outcome.PENDING
    )


def test_near_ties_are_accepted_only_where_the_lane_says_so() -> None:
    rows = run(candidate_1={"token_ids": WRONG})
    logprobs = {IDS[100]: -0.7, 499: -0.7625} | {1000 + i: -20.0 for i in range(18)}
    tie = {("candidate#1", ("suite", "p3")): classify(logprobs, IDS[100], 499)}
    strict = bad(rows, explained=tie)
    assert strict["parity.near_tie", "candidate#1"] is Outcome.REJECTED
    assert bad(rows, explained=tie, allow_near_ties=True) == {}


def test_a_repeated_prompt_keeps_its_worst_answer() -> None:
    again = dataclasses.replace(transcript("p3", "candidate#1", order=77), token_ids=WRONG)
    assert bad([*run(), again])["parity.diverged", "candidate#1"] is Outcome.REJECTED


def test_compare_reports_both_lengths() -> None:
    cell = compare(transcript(ids=[1, 2, 3]), transcript(ids=[1, 2]))
    assert (cell.relation, cell.reference_ids, cell.candidate_ids) == (Relation.PREFIX, 3, 2)
