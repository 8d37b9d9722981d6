"""Rows that the judges read are written by the values that they are read as: nothing is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from judge_rows import span

from fixtures.judge.curves import Level
from fixtures.judge.explanation import Score
from fixtures.judge.rounds import Round
from fixtures.judge.run import READERS
from fixtures.judge.steps import PromptCounters

SCORE = Score("target#1", "candidate#1", ("suite", "p3"), 50, {7: -0.5, 9: -1.25})
VALUES: tuple[tuple[str, Any], ...] = (
    ("level", Level("candidate#1", "suite", at_once=4, first_order=900, count=12)),
    ("score", SCORE),
    (
        "score",
        Score(
            *("target#1", "candidate#1", ("suite", "p3"), 50, {7: -0.5, 9: -1.25}),
            dtype="bfloat16",
            logit_magnitude=16.0,
            layers=6,
            rounds=(Round(3, 3), Round(3, 0)),
            rounds_from="trace",
            verifier_chose=9,
            prefill_chunks=3,
            continued=(1, 2),
        ),
    ),
    ("prompt_counters", PromptCounters("p3", span("candidate#1"))),
)


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=["level", "bare score", "whole score", "counters"])
def test_a_value_comes_back_from_the_row_that_it_writes(kind: str, value: Any) -> None:
    stored = json.loads(json.dumps(value.to_row()))
    assert READERS[kind](stored) == value
