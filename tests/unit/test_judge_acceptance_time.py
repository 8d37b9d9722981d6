"""Acceptance over a run: when it fell, and where it is below what the stock engine reaches."""

from __future__ import annotations

import json

import pytest

from fixtures.client.metrics import Counters
from fixtures.judge.acceptance_time import (
    AcceptanceReference,
    AcceptanceSpan,
    Counts,
    judge_acceptance_over_time,
    read_acceptance_reference,
    read_acceptance_span,
)
from fixtures.judge.counters import CounterSpan
from fixtures.judge.finding import Finding, Outcome

ARM = "candidate#1"
STOCK: Counts = (20, 16, 10, 5)
DEAD: Counts = (44, 2, 0, 0)
PROMPTS = [f"p{n}" for n in range(30)]


def counted(counts: Counts) -> CounterSpan:
    rounds, *accepted = counts
    zero = Counters(0, 0, 0, (0, 0, 0))
    return CounterSpan(ARM, zero, Counters(rounds, 3 * rounds, sum(accepted), tuple(accepted)))


def judged(
    by_prompt: list[Counts], spans: list[tuple[str, tuple[str, ...], Counts]], *, reference: bool = True
) -> dict[str, Finding]:
    answers = [((ARM, "suite", p), counted(c)) for p, c in zip(PROMPTS, by_prompt, strict=False)]
    stock = AcceptanceReference(
        "stock 1", "a machine", {"suite": dict.fromkeys(PROMPTS, STOCK)}, {"in long": (60, 48, 30, 15)}
    )
    seen = [AcceptanceSpan(name, "suite", prompts, counted(counts)) for name, prompts, counts in spans]
    # As a packet has them.
    read = [read_acceptance_span(json.loads(json.dumps(s.to_row()))) for s in seen]
    known = read_acceptance_reference(json.loads(json.dumps(stock.to_row()))) if reference else None
    return {
        f.check.removeprefix("acceptance."): f for f in judge_acceptance_over_time(ARM, answers, read, known)
    }


def again(counts: Counts, times: int = 4) -> tuple[str, tuple[str, ...], Counts]:
    return "after long", tuple(PROMPTS[:times]), tuple(n * times for n in counts)


def test_a_stock_engine_is_accepted_in_every_span() -> None:
    found = judged([STOCK] * 30, [("in long", (), (61, 48, 30, 14)), again((20, 16, 9, 5))])
    assert {name: f.outcome for name, f in found.items()} == {
        "over_time": Outcome.ACCEPTED,
        "reference": Outcome.ACCEPTED,
    }


def test_a_drafter_that_was_lost_is_named_with_the_moment() -> None:
    found = judged([STOCK] * 30, [again(DEAD)], reference=False)
    assert found.keys() == {"over_time"}
    assert found["over_time"].outcome is Outcome.REJECTED
    assert found["over_time"].details["died"] == "after long"
    assert "fell after long" in found["over_time"].message


@pytest.mark.parametrize(("begins", "third"), [(0, 1), (10, 2), (20, 3)])
def test_the_third_in_which_it_fell_is_named(begins: int, third: int) -> None:
    """A quarter of the accepted drafts is lost, which no floor of half of them would show."""
    counts = [STOCK] * begins + [(24, 14, 8, 4)] * (30 - begins)
    found = judged(counts, [])
    assert found["reference"].outcome is Outcome.REJECTED
    assert f"in third {third} of the run" in found["reference"].message


def test_a_drafter_that_fails_in_long_contexts_alone_is_seen() -> None:
    found = judged([STOCK] * 30, [("in long", (), (120, 6, 0, 0))])
    assert found["reference"].outcome is Outcome.REJECTED
    assert "in long: 0.050 of 120 rounds" in found["reference"].message


def test_one_position_alone_is_seen() -> None:
    found = judged([(20, 16, 10, 1)] * 30, [])
    assert "at position 2" in found["reference"].message
    assert found["reference"].outcome is Outcome.REJECTED


def test_a_better_drafter_is_no_fault() -> None:
    found = judged([(16, 15, 13, 12)] * 30, [again((16, 15, 13, 12))])
    assert {f.outcome for f in found.values()} == {Outcome.ACCEPTED}


def test_what_was_not_counted_before_is_pending() -> None:
    found = judged([STOCK] * 2, [again(STOCK)], reference=False)
    assert found["over_time"].outcome is Outcome.PENDING


@pytest.mark.parametrize("counts", [[20], [20, 21], [20, -1], [20, 1.5], []])
def test_counts_that_are_none_cannot_be_read(counts: list[float]) -> None:
    with pytest.raises(ValueError, match="rounds"):
        read_acceptance_reference(
            {"engine": "e", "machine": "m", "prompts": {"s": {"p": counts}}, "spans": {}}
        )
