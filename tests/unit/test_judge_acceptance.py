"""Acceptance has a floor and a ceiling, and has to be what the draft programme forces."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from judge_rows import span

from fixtures.client.metrics import Counters
from fixtures.judge.acceptance import judge_acceptance, judge_programme, read_acceptance
from fixtures.judge.counters import CounterSpan
from fixtures.judge.finding import Outcome


def outcome(after: CounterSpan, **limits: Any) -> Outcome:
    [found] = judge_acceptance([after], **limits)
    return found.outcome


NONE_ACCEPTED = span(accepted_tokens=0, accepted_per_position=(0, 0, 0))
ALL_ACCEPTED = span(accepted_tokens=300, accepted_per_position=(100, 100, 100))


def test_acceptance_by_position_is_read_from_the_counters() -> None:
    seen = read_acceptance(span())
    assert seen is not None
    assert (seen.rate, seen.rate_by_position, seen.accepted_per_round) == (0.5, (0.8, 0.5, 0.2), 1.5)


def test_a_rate_between_floor_and_ceiling_is_accepted() -> None:
    assert outcome(span(), floor=0.4, ceiling=0.7) is Outcome.ACCEPTED


@pytest.mark.parametrize("limits", [{}, {"floor": 0.0, "ceiling": 1.0}])
def test_nothing_accepted_is_rejected_whatever_the_floor(limits: dict[str, float]) -> None:
    assert outcome(NONE_ACCEPTED, **limits) is Outcome.REJECTED


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"floor_by_position": (0.9, 0.1)}, "position 0: 0.800 is below the floor 0.9"),
        ({"floor_by_position": (0.7, 0.4, 0.3)}, "position 2: 0.200 is below the floor 0.3"),
        ({"ceiling_by_position": (0.9, 0.4)}, "position 1: 0.500 is above the ceiling 0.4"),
        ({"floor_by_position": (0.1, 0.1, 0.1, 0.1)}, "a floor for position 3, but only 3 were counted"),
    ],
)
def test_each_position_has_limits_of_its_own(limits: dict[str, tuple[float, ...]], words: str) -> None:
    [found] = judge_acceptance([span()], **limits)
    assert found.outcome is Outcome.REJECTED
    assert words in found.message
    assert (
        outcome(span(), floor_by_position=(0.7, 0.4), ceiling_by_position=(0.9, 0.6, 0.3)) is Outcome.ACCEPTED
    )


def test_never_wrong_says_that_it_is_suspicious_even_where_the_lane_allows_it() -> None:
    [found] = judge_acceptance([ALL_ACCEPTED], ceiling=1.0)
    assert "suspicious on realistic prompts" in found.message


def test_below_the_floor_and_above_the_ceiling_are_rejected() -> None:
    assert outcome(span(), floor=0.6) is Outcome.REJECTED
    assert outcome(span(), ceiling=0.4) is Outcome.REJECTED


def test_a_drafter_that_is_never_wrong_is_suspicious_unless_the_lane_allows_it() -> None:
    assert outcome(ALL_ACCEPTED) is Outcome.PENDING
    assert outcome(ALL_ACCEPTED, ceiling=1.0) is Outcome.ACCEPTED


def test_no_drafts_at_all_means_that_speculation_did_not_run() -> None:
    idle = span(drafts=0, draft_tokens=0, accepted_tokens=0, accepted_per_position=(0, 0, 0))
    assert outcome(idle) is Outcome.REJECTED


def test_counters_that_contradict_each_other_are_rejected() -> None:
    assert outcome(span(accepted_tokens=151)) is Outcome.REJECTED


def test_missing_counters_are_pending_and_not_zero() -> None:
    assert outcome(span(accepted_per_position=None)) is Outcome.PENDING
    assert judge_acceptance([])[0].outcome is Outcome.PENDING


def test_counters_that_went_down_are_inconclusive() -> None:
    other = dataclasses.replace(span(), before=Counters(drafts=500))
    assert outcome(other) is Outcome.INCONCLUSIVE
    assert judge_programme(other, [1]).outcome is Outcome.INCONCLUSIVE


def test_accepted_counts_have_to_equal_the_programme() -> None:
    assert judge_programme(span(), [80, 50, 20]).outcome is Outcome.ACCEPTED
    assert judge_programme(span(), [80, 51, 20]).outcome is Outcome.REJECTED
    assert judge_programme(span(drafts=None), [80, 50, 20]).outcome is Outcome.PENDING


def test_a_counter_row_survives_the_packet() -> None:
    assert CounterSpan.from_row(span().to_row()) == span()


@pytest.mark.parametrize("bad", [{"drafts": True}, {"drafts": -1}, {"drafts": 1.5}, {"draughts": 1}])
def test_a_counter_row_with_something_else_than_counts_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="after"):
        CounterSpan.from_row({"arm": "a", "before": {}, "after": bad})


def test_an_arm_that_was_not_counted_is_pending() -> None:
    found = judge_acceptance([span("a")], arms=["a", "b"])
    assert [(f.arm, f.outcome) for f in found] == [("a", Outcome.ACCEPTED), ("b", Outcome.PENDING)]
