"""A/B: an effect is an effect only where neither order, nor device, nor the spread between starts can pass for one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from judge_rows import suite_of

from fixtures.client.transcript import Transcript
from fixtures.judge.control import FASTER, NOT_SLOWER, judge_control, pair_starts, unbalanced
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.statistics import interval_of_difference

LONG_NS = 10**13
"""More than one start takes to be measured."""


def start(
    arm: str, turn: int, *, gap_s: float = 0.01, noise: float = 0.0, seed: int = 0, lift: float = 1.0
) -> list[Transcript]:
    """One start measured in its turn, with rates that scatter by `noise` between prompts and by `lift` as a whole."""
    rng = np.random.default_rng([seed, turn, *map(ord, arm)])
    rows = []
    for t in suite_of(arm, gap_s=1.0):
        gap_ns = int(gap_s / lift * math.exp(rng.normal(0, noise)) * 1e9)
        sent_ns = t.sent_ns + turn * LONG_NS
        times = tuple(sent_ns + 50_000_000 + i * gap_ns for i in range(len(t.token_ids)))
        rows.append(dataclasses.replace(t, sent_ns=sent_ns, receipt_ns=times, done_ns=times[-1]))
    return rows


def in_turns(
    order: str, gaps_s: dict[str, float], **more: float
) -> tuple[list[Transcript], list[Transcript]]:
    """Starts in the order of `order`, such as ABBA, one after the other on one slot. A is the candidate."""
    sides: dict[str, list[Transcript]] = {"A": [], "B": []}
    for turn, side in enumerate(order):
        name = {"A": "candidate", "B": "control"}[side]
        sides[side] += start(f"{name}#{turn}", turn, gap_s=gaps_s[side], **more)  # type: ignore[arg-type]
    return sides["A"], sides["B"]


def judged(candidate: Sequence[Transcript], control: Sequence[Transcript], **more: object) -> Finding:
    return judge_control(candidate, control, 0.015, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_the_same_thing_twice_is_inconclusive_every_time(seed: int) -> None:
    a, b = in_turns("ABBA", {"A": 0.01, "B": 0.01}, noise=0.03, seed=seed)
    assert judged(a, b).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("seed", range(10))
def test_starts_that_differ_by_themselves_are_no_effect(seed: int) -> None:
    """Every start runs at a speed of its own (3 % apart), on every prompt alike: prompts alone would see an effect."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Transcript]] = {"A": [], "B": []}
    for turn, side in enumerate("ABBA"):
        rows[side] += start(f"{side}{turn}", turn, noise=0.002, seed=seed, lift=math.exp(rng.normal(0, 0.03)))
    assert judged(rows["A"], rows["B"]).outcome is Outcome.INCONCLUSIVE


def test_a_machine_that_slows_down_steadily_is_no_effect() -> None:
    rows: dict[str, list[Transcript]] = {"A": [], "B": []}
    for turn, side in enumerate("ABBA"):
        rows[side] += start(f"{side}{turn}", turn, noise=0.002, lift=0.95**turn)
    found = judged(rows["A"], rows["B"])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.details["ratio"] == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize(("candidate_s", "outcome"), [(0.012, Outcome.REJECTED), (0.0085, Outcome.ACCEPTED)])
def test_a_sixth_is_seen_and_its_size_is_said(candidate_s: float, outcome: Outcome) -> None:
    found = judged(*in_turns("ABBA", {"A": candidate_s, "B": 0.01}, noise=0.02))
    assert found.outcome is outcome
    assert found.details["ratio"] == pytest.approx(0.01 / candidate_s, rel=0.02)
    assert [b["pairs"] for b in found.details["blocks"]] == [10, 10]


def test_what_only_claims_not_to_be_slower_passes_inside_the_band() -> None:
    a, b = in_turns("ABBA", {"A": 0.01, "B": 0.01}, noise=0.001)
    assert judged(a, b, claim=NOT_SLOWER).outcome is Outcome.ACCEPTED
    assert judged(a, b, claim=FASTER).outcome is Outcome.INCONCLUSIVE
    slow, control = in_turns("ABBA", {"A": 0.0102, "B": 0.01}, noise=0.02)
    assert judged(slow, control, claim=NOT_SLOWER).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("AABB", "no common window"),
        ("ABAB", "the candidate came first in 2 of 2 blocks"),
        ("AB", "the candidate came first in 1 of 1 blocks"),
    ],
)
def test_an_order_that_could_pass_for_an_effect_gives_no_ratio(order: str, why: str) -> None:
    found = judged(*in_turns(order, {"A": 0.02, "B": 0.01}))
    assert found.outcome is Outcome.PENDING
    assert why in found.message
    assert "ratio" not in found.details


def side_by_side(candidate_s: float, fast_slot: float = 1.0, swapped: bool = True) -> Finding:
    """Two blocks of two servers at once, on a slot `x:1` that is `fast_slot` times as fast as `x:0`."""
    slots = (
        {"a1": "x:0", "b1": "x:1", "a2": "x:1", "b2": "x:0"}
        if swapped
        else dict.fromkeys(("a1", "a2"), "x:0")
    )
    slots |= {} if swapped else dict.fromkeys(("b1", "b2"), "x:1")
    rows: dict[str, list[Transcript]] = {"a": [], "b": []}
    for arm, slot in slots.items():
        lift = fast_slot if slot == "x:1" else 1.0
        gap_s = candidate_s if arm[0] == "a" else 0.01
        rows[arm[0]] += start(arm, int(arm[1]), gap_s=gap_s, noise=0.005, lift=lift)
    return judged(rows["a"], rows["b"], slots=slots)


def test_a_faster_device_is_no_effect_once_slots_are_swapped() -> None:
    found = side_by_side(0.01, fast_slot=1.2)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "slots swapped" in found.message
    assert side_by_side(0.012, fast_slot=1.2).outcome is Outcome.REJECTED


def test_slots_that_were_not_swapped_give_no_ratio() -> None:
    found = side_by_side(0.012, swapped=False)
    assert found.outcome is Outcome.PENDING
    assert "slots were not swapped (candidate : control on x:0 2:0, x:1 0:2)" in found.message


def test_two_seats_of_one_device_need_no_swap() -> None:
    slots = {"a1": "cpu:0*0", "b1": "cpu:0*1", "a2": "cpu:0*0", "b2": "cpu:0*1"}
    rows: dict[str, list[Transcript]] = {"a": [], "b": []}
    for arm in slots:
        rows[arm[0]] += start(arm, int(arm[1]), gap_s=0.012 if arm[0] == "a" else 0.01, noise=0.005)
    found = judged(rows["a"], rows["b"], slots=slots)
    assert found.outcome is Outcome.REJECTED
    assert "(side by side)" in found.message


def test_one_block_on_two_slots_is_not_balanced() -> None:
    slots = {"a": "x:0", "b": "x:1"}
    assert "swapped" in unbalanced(pair_starts(start("a", 0), start("b", 0), slots))


def test_a_ratio_needs_coldness_and_parity() -> None:
    a, b = in_turns("ABBA", {"A": 0.005, "B": 0.01})
    wrong = [Finding("parity.diverged", Outcome.REJECTED, "25 of 25 prompts differ")]
    found = judged(a, b, shown={"parity": wrong})
    assert (found.outcome, found.message) == (Outcome.PENDING, "no ratio: parity is rejected")
    assert judged(a, b, shown={"coldness": []}).outcome is Outcome.PENDING


def test_answers_without_a_rate_are_counted_and_too_many_show_nothing() -> None:
    a, b = in_turns("ABBA", {"A": 0.01, "B": 0.01}, noise=0.002)
    a[0] = dataclasses.replace(a[0], receipt_ns=a[0].receipt_ns[:1] * len(a[0].receipt_ns))
    assert "19 pairs of answers" in judged(a, b).message
    gone = [dataclasses.replace(t, receipt_ns=t.receipt_ns[:1] * len(t.receipt_ns)) for t in a[:5]]
    found = judged([*gone, *a[5:]], b)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "only 15 of 20" in found.message


def test_the_interval_between_starts_is_students() -> None:
    low, high = interval_of_difference([0.0, 0.02], [0.01, 0.03])
    assert (low + high) / 2 == pytest.approx(-0.01)
    assert (high - low) / 2 == pytest.approx(4.3027 * 0.0141421, rel=1e-4)
    assert interval_of_difference([1.0, 1.0], [0.5, 0.5]) == (0.5, 0.5)
    with pytest.raises(ValueError, match="two values"):
        interval_of_difference([1.0], [0.5, 0.5])
