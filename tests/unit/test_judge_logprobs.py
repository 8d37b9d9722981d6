"""Log-probabilities of requests that share their steps: a neighbour's row is seen by its alternatives."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fixtures.judge.finding import Outcome
from fixtures.judge.logprobs import BOUND_NATS, LogprobsRow, judge_logprobs, read_logprobs

HEADS = ({"5": -0.01, "7": -6.0, "8": -7.5}, {"6": -0.02, "5": -5.0, "9": -9.0})
SOUND = LogprobsRow("candidate#1", "sort-1", 8, (5, 6), (5, 6), HEADS, HEADS)


def outcome(**changes: object) -> Outcome:
    row = json.loads(json.dumps(dataclasses.replace(SOUND, **changes).to_row()))
    (found,) = judge_logprobs([read_logprobs(row)])
    return found.outcome


def test_the_same_values_together_and_alone_are_accepted() -> None:
    assert outcome() is Outcome.ACCEPTED
    near = tuple({t: min(0.0, v - 0.3) for t, v in head.items()} for head in HEADS)
    assert outcome(together=near) is Outcome.ACCEPTED, "rounding of another batch shape"


@pytest.mark.parametrize(
    "together",
    [
        (HEADS[1], HEADS[0]),
        ({"5": -0.01, "7": -6.0 - BOUND_NATS - 0.1, "8": -7.5}, HEADS[1]),
        ({"5": -0.01, "1": -6.0, "2": -7.5}, HEADS[1]),
    ],
    ids=["the other row", "one alternative", "other alternatives"],
)
def test_a_row_of_somebody_else_is_rejected_though_its_best_id_is_right(together: object) -> None:
    assert outcome(together=together) is Outcome.REJECTED


def test_other_ids_are_rejected_and_missing_rows_are_pending() -> None:
    assert outcome(together_ids=(5, 7)) is Outcome.REJECTED
    assert outcome(together=HEADS[:1]) is Outcome.PENDING
    assert outcome(alone=(), together=(), alone_ids=(), together_ids=()) is Outcome.PENDING


@pytest.mark.parametrize("value", [0.5, float("nan"), float("-inf")])
def test_a_value_that_is_no_log_probability_cannot_be_read(value: float) -> None:
    with pytest.raises(ValueError, match="log-probabilities"):
        read_logprobs(SOUND.to_row() | {"alone": [{"5": value}]})
