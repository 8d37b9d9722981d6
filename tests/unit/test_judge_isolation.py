"""In another order or batch shape every answer has to be right for its own prompt; equal ids are only reported."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from judge_rows import suite_of

from fixtures.client.transcript import Transcript
from fixtures.judge.divergence import Divergence, classify
from fixtures.judge.finding import Outcome
from fixtures.judge.isolation import FOREIGN_RUN
from fixtures.judge.matrix import Key
from fixtures.judge.parity import ParityReport, Role, judge_parity

ALONE = {"target#1": Role.TARGET, "target#2": Role.TARGET, "candidate#1": Role.CANDIDATE}
SHAPED = {"target#1/4-at-once": Role.NULL, "candidate#1/4-at-once": Role.SHAPED}
OF = {"target#1/4-at-once": "target#1", "candidate#1/4-at-once": "candidate#1"}
KEY: Key = ("suite", "p3")
IDS = suite_of("x")[3].token_ids
OTHERS = suite_of("x")[7].token_ids
TIE = {1000 + i: -20.0 for i in range(18)}


def differing(at: int, token: int = 499) -> tuple[int, ...]:
    return (*IDS[:at], token, *IDS[at + 1 :])


def judge(
    explained: dict[tuple[str, Key], Divergence] | None = None, strict: bool = True, **ids: Any
) -> ParityReport:
    """All arms say the same, but for prompt p3 on the arms that `ids` names (`null`, `shaped`, `candidate`)."""
    names = {"null": "target#1/4-at-once", "shaped": "candidate#1/4-at-once", "candidate": "candidate#1"}
    rows: list[Transcript] = [t for arm in (*ALONE, *SHAPED) for t in suite_of(arm)]
    for short, said in ids.items():
        rows = [
            dataclasses.replace(t, token_ids=said, receipt_ns=t.receipt_ns[: len(said)])
            if (t.arm, t.prompt_id) == (names[short], "p3")
            else t
            for t in rows
        ]
    return judge_parity(rows, ALONE | SHAPED, explained=explained or {}, alone=OF, allow_near_ties=not strict)


def outcomes(report: ParityReport, check: str) -> dict[str, Outcome]:
    return {f.arm: f.outcome for f in report.findings if f.check == check}


def tie(arm: str, at: int, gap_nats: float = 0.0625) -> dict[tuple[str, Key], Divergence]:
    logprobs = {IDS[at]: -0.7, 499: -0.7 - gap_nats} | TIE
    return {(arm, KEY): classify(logprobs, IDS[at], 499)}


def test_equal_answers_are_isolated_and_identical() -> None:
    report = judge()
    assert report.outcome is Outcome.ACCEPTED
    assert outcomes(report, "batch.isolation") == dict.fromkeys(SHAPED, Outcome.ACCEPTED)
    assert outcomes(report, "batch.identity") == dict.fromkeys(SHAPED, Outcome.ACCEPTED)


def test_a_wrong_token_in_a_batch_is_rejected_though_it_is_right_alone() -> None:
    wrong = tie("candidate#1/4-at-once", 50, gap_nats=9.0)
    report = judge(wrong, shaped=differing(50))
    assert outcomes(report, "batch.isolation")["candidate#1/4-at-once"] is Outcome.REJECTED
    assert outcomes(report, "parity.exact") == {"candidate#1": Outcome.ACCEPTED}


def test_a_difference_in_a_batch_that_nobody_scored_is_not_excused() -> None:
    assert (
        outcomes(judge(shaped=differing(50)), "batch.isolation")["candidate#1/4-at-once"] is Outcome.REJECTED
    )
    assert outcomes(judge(null=differing(50)), "batch.isolation")["target#1/4-at-once"] is Outcome.PENDING


def test_a_near_tie_in_a_batch_is_reported_and_accepted_on_a_strict_lane() -> None:
    report = judge(tie("candidate#1/4-at-once", 50), shaped=differing(50))
    assert outcomes(report, "batch.isolation")["candidate#1/4-at-once"] is Outcome.ACCEPTED
    identity = next(f for f in report.findings if f.check == "batch.identity" and f.details["differing"])
    assert identity.details == {"differing": {"p3": 50}}
    assert "9 of 10" in identity.message


def test_the_same_place_in_the_targets_own_batch_is_arithmetic() -> None:
    excused = tie("target#1/4-at-once", 50)
    report = judge(excused, null=differing(50), shaped=differing(50))
    assert outcomes(report, "batch.isolation") == dict.fromkeys(SHAPED, Outcome.ACCEPTED)
    elsewhere = judge(excused, null=differing(50), shaped=differing(51))
    assert outcomes(elsewhere, "batch.isolation")["candidate#1/4-at-once"] is Outcome.REJECTED


def test_a_wrong_token_of_the_null_arm_excuses_nobody() -> None:
    gross = tie("target#1/4-at-once", 50, gap_nats=9.0)
    report = judge(gross, null=differing(50), candidate=differing(50))
    assert outcomes(report, "batch.isolation")["target#1/4-at-once"] is Outcome.REJECTED
    assert outcomes(report, "parity.diverged") == {"candidate#1": Outcome.REJECTED}
    assert outcomes(report, "parity.arithmetic") == {}


def test_a_wrong_token_of_the_candidate_is_not_arithmetic_because_the_null_arm_differs_there_too() -> None:
    explained = tie("target#1/4-at-once", 50) | tie("candidate#1", 50, gap_nats=9.0)
    report = judge(explained, strict=False, null=differing(50), candidate=differing(50))
    assert outcomes(report, "parity.wrong_token") == {"candidate#1": Outcome.REJECTED}
    assert report.weaker == ""


def test_another_prompts_answer_is_named() -> None:
    mixed = (*IDS[:50], *OTHERS[50:])  # the answers of these rows are one cycle of ids, begun at other places
    assert mixed[50] != IDS[50]
    report = judge(shaped=mixed)
    [found] = [f for f in report.findings if f.check == "batch.isolation" and f.outcome is Outcome.REJECTED]
    assert "what it says then is in the answer to p" in found.message
    assert len(mixed) - 50 >= FOREIGN_RUN


@pytest.mark.parametrize(("strict", "outcome"), [(True, Outcome.PENDING), (False, Outcome.ACCEPTED)])
def test_arithmetic_of_the_candidate_is_accepted_only_as_a_weaker_class(
    strict: bool, outcome: Outcome
) -> None:
    excused = tie("target#1/4-at-once", 50)
    report = judge(excused, strict=strict, null=differing(50), candidate=differing(50))
    assert outcomes(report, "parity.arithmetic") == {"candidate#1": outcome}
    assert bool(report.weaker) is not strict


def test_an_unstable_target_leaves_the_batch_pending() -> None:
    rows = [t for arm in (*ALONE, *SHAPED) for t in suite_of(arm)]
    changed = {"target#2": differing(20), "candidate#1/4-at-once": differing(50)}
    rows = [
        dataclasses.replace(t, token_ids=changed[t.arm]) if t.prompt_id == "p3" and t.arm in changed else t
        for t in rows
    ]
    report = judge_parity(rows, ALONE | SHAPED, alone=OF)
    assert outcomes(report, "batch.isolation")["candidate#1/4-at-once"] is Outcome.PENDING
