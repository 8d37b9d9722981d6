"""Speed of a fault against none on one server: decided as soon as it can be, and not at all where noise hides it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from judge_rows import suite_of

from fixtures.fault_injection import paired_speed
from fixtures.fault_injection.paired_speed import LOOKS, compare_speed
from fixtures.fault_injection.variants import LANE
from fixtures.fault_injection.workloads import workloads
from fixtures.judge.finding import Finding, Outcome
from fixtures.lanes.lane import load_lane

SUITE = workloads(load_lane(LANE))["speed"].suite


def asked(monkeypatch: pytest.MonkeyPatch, loss: float, noise: float, seed: int = 5) -> tuple[Finding, int]:
    """Ask a server whose gaps are `loss` longer while planted, give or take `noise`; returns finding and blocks."""
    planted, turns, luck = [False], [0], random.Random(seed)

    def switch(on: bool) -> None:
        planted[0] = on

    def run_suite(*_: Any, arm: str) -> Any:
        turns[0] += 1
        gap_s = 0.01 * (1 + loss * planted[0]) * (1 + luck.uniform(-noise, noise))
        return tuple(suite_of(arm, prompts=2, gap_s=gap_s))

    monkeypatch.setattr(paired_speed, "run_suite", run_suite)
    found = compare_speed(None, SUITE, switch)  # type: ignore[arg-type]
    return found, turns[0] // 2


@pytest.mark.parametrize(
    ("loss", "noise", "outcome", "blocks"),
    [
        (0.20, 0.02, Outcome.REJECTED, LOOKS[0]),
        (0.0, 0.02, Outcome.ACCEPTED, LOOKS[0]),
        (0.20, 0.25, Outcome.REJECTED, LOOKS[-1]),
        (0.02, 0.25, Outcome.INCONCLUSIVE, LOOKS[-1]),
    ],
    ids=["slower", "not slower", "slower on a busy machine", "hidden by noise"],
)
def test_a_busy_machine_is_asked_more_often(
    monkeypatch: pytest.MonkeyPatch, loss: float, noise: float, outcome: Outcome, blocks: int
) -> None:
    found, took = asked(monkeypatch, loss, noise)
    assert (found.outcome, took) == (outcome, blocks), found.message


def test_no_loss_is_hardly_ever_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking three times does not make a loss of nothing."""
    outcomes = [asked(monkeypatch, 0.0, 0.2, seed)[0].outcome for seed in range(6)]
    assert Outcome.REJECTED not in outcomes


def test_answers_that_cannot_be_timed_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_speed, "run_suite", lambda *_, arm: ())
    found = compare_speed(None, SUITE, lambda _: None)  # type: ignore[arg-type]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "cannot be compared" in found.message
