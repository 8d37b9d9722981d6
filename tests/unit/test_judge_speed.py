"""A rate is intervals over time, a headline needs everything shown, and noise is not an effect."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from judge_rows import CLASSES, suite_of, transcript

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.rates import inclusive_rate_tok_s, interval_rate_tok_s, measure
from fixtures.judge.speed import judge_speed, measure_arm
from fixtures.judge.statistics import (
    Pair,
    bootstrap_of_class_medians,
    class_medians,
    compare_paired,
    sign_flip_p,
)

LAB_ROW = Path(__file__).parent / "data" / "lab-row-incident-retrospective.json"
COLD = [Finding("freshness.cached_tokens", Outcome.ACCEPTED, "cold")]
EQUAL = [Finding("parity.exact", Outcome.ACCEPTED, "equal")]


def test_a_published_row_is_reproduced_to_the_last_digit() -> None:
    row = json.loads(LAB_ROW.read_text())
    times_s = row["token_id_offsets_s"]
    assert inclusive_rate_tok_s(times_s) == 96.21226513263952 == row["published_tok_s_1_100_after_ttft"]
    assert interval_rate_tok_s(times_s) == 95.25014248131313


def test_the_window_is_the_first_hundred_ids_and_ninety_nine_intervals() -> None:
    seen = measure(transcript(gap_s=0.01))
    assert seen.interval_tok_s == pytest.approx(100.0, rel=1e-12)
    assert seen.inclusive_tok_s == pytest.approx(100 / 0.99, rel=1e-12)
    assert seen.ttft_s == 0.05
    assert seen.wall_tok_s == pytest.approx(120 / (0.05 + 1.19 + 0.001))
    assert seen.prefill_tok_s == pytest.approx(40 / 0.05)


def test_gaps_are_between_ids_so_that_ids_of_one_read_have_gaps_of_zero() -> None:
    start = transcript().receipt_ns[0]
    times = tuple(start + (i // 4) * 40_000_000 for i in range(120))
    seen = measure(dataclasses.replace(transcript(), receipt_ns=times))
    assert (seen.gap_p50_s, seen.gap_max_s) == (0.0, 0.04)


def test_a_monotonic_clock_far_from_zero_costs_no_digits() -> None:
    near = transcript()
    far = dataclasses.replace(
        near,
        sent_ns=near.sent_ns + 10**17,
        done_ns=near.done_ns + 10**17,
        receipt_ns=tuple(t + 10**17 for t in near.receipt_ns),
    )
    assert measure(far).interval_tok_s == measure(near).interval_tok_s


@pytest.mark.parametrize(
    "row",
    [transcript(ids=range(99)), dataclasses.replace(transcript(), receipt_ns=())],
    ids=["too short", "no times"],
)
def test_an_answer_that_cannot_show_the_window_has_no_rate(row: object) -> None:
    assert measure(row).interval_tok_s is None  # type: ignore[arg-type]


def test_an_answer_in_a_single_burst_has_no_rate() -> None:
    burst = dataclasses.replace(transcript(), receipt_ns=transcript().receipt_ns[:1] * 120)
    assert measure(burst).interval_tok_s is None


def test_the_headline_is_the_median_of_class_medians() -> None:
    gaps_s = {
        "code": [0.010, 0.010, 0.010],
        "prose": [0.020],
        "json": [0.025],
        "count": [0.040],
        "copy": [0.050],
    }
    rows = [
        transcript(f"{name}{n}", gap_s=gap_s, prompt_class=name, order=n)
        for name, values in gaps_s.items()
        for n, gap_s in enumerate(values)
    ]
    arm = measure_arm(rows)
    assert arm.headline_tok_s == pytest.approx(40.0)
    assert arm.median_tok_s == pytest.approx(50.0)
    assert list(arm.class_median_tok_s) == list(CLASSES)


def report(*gaps_s: float, freshness: list[Finding] = COLD, parity: list[Finding] = EQUAL, prompts: int = 10):
    rows = [t for n, g in enumerate(gaps_s) for t in suite_of(f"candidate#{n}", gap_s=g, prompts=prompts)]
    return judge_speed(rows, freshness=freshness, parity=parity)


def test_the_central_arm_is_the_result_and_never_the_fastest() -> None:
    assert report(0.010, 0.011, 0.012).central_arm == "candidate#1"
    assert report(0.010, 0.011).central_arm == "candidate#1", "of two, the slower one"
    assert {a.arm for a in report(0.010, 0.011, 0.012).arms} == {"candidate#0", "candidate#1", "candidate#2"}


NOT_COLD = [Finding("freshness.cached_tokens", Outcome.PENDING, "usage has no cached_tokens")]
NOT_EQUAL = [Finding("parity.diverged", Outcome.REJECTED, "25 of 25 prompts differ")]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (report(0.01, 0.01, freshness=NOT_COLD), "coldness is pending: usage has no cached_tokens"),
        (report(0.01, 0.01, freshness=[]), "coldness is pending: nothing was checked"),
        (report(0.01, 0.01, parity=NOT_EQUAL), "parity is rejected: 25 of 25 prompts differ"),
        (report(0.01, 0.01, parity=[]), "parity is pending"),
        (report(0.01), "1 measured arm(s), 2 fresh starts required"),
        (report(0.01, 0.01, prompts=4), "4 prompt classes, 5 required"),
        (report(), "0 measured arm(s), 2 fresh starts required"),
    ],
    ids=[
        "not cold",
        "coldness unchecked",
        "not equal",
        "parity unchecked",
        "one start",
        "four classes",
        "nothing",
    ],
)
def test_what_cannot_be_defended_has_no_headline_and_says_why(made: object, reason: str) -> None:
    assert made.headline_tok_s is None  # type: ignore[attr-defined]
    assert reason in made.reason  # type: ignore[attr-defined]
    assert made.findings[-1].outcome is Outcome.PENDING  # type: ignore[attr-defined]


def test_one_short_answer_takes_the_headline_away() -> None:
    rows = [t for arm in ("a", "b") for t in suite_of(arm)]
    rows[3] = transcript("p3", "a", ids=range(40), order=3, prompt_class="count")
    made = judge_speed(rows, freshness=COLD, parity=EQUAL)
    assert made.headline_tok_s is None
    assert "first p3 with 40" in made.reason


def test_the_bootstrap_interval_holds_the_point_and_widens_with_spread() -> None:
    narrow = {name: [100.0, 101.0, 99.0, 100.5] for name in CLASSES}
    wide = {name: [100.0, 150.0, 60.0, 120.0] for name in CLASSES}
    low, high = bootstrap_of_class_medians(narrow)
    assert low <= np.median(list(class_medians(narrow).values())) <= high
    wider = bootstrap_of_class_medians(wide)
    assert wider[1] - wider[0] > high - low


def test_classes_of_one_prompt_have_an_interval_of_no_width() -> None:
    assert bootstrap_of_class_medians({name: [float(n)] for n, name in enumerate(CLASSES)}) == (2.0, 2.0)


def pairs(ratio: float, blocks: int = 6, noise: float = 0.01, seed: int = 1) -> list[Pair]:
    rng = np.random.default_rng(seed)
    return [
        Pair(
            f"block{b}",
            f"p{n}",
            100 * ratio * float(np.exp(rng.normal(0, noise))),
            100 * float(np.exp(rng.normal(0, noise))),
        )
        for b in range(blocks)
        for n in range(10)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_the_same_thing_twice_is_inconclusive_every_time(seed: int) -> None:
    assert compare_paired(pairs(1.0, seed=seed), band=0.015).outcome is Outcome.INCONCLUSIVE


def test_five_prompts_of_a_stack_against_itself_show_nothing() -> None:
    """Ratios as a stack against itself had on a busy machine: a plain bootstrap of them lies below the noise band."""
    ratios = [0.80, 0.84, 0.97, 1.01, 0.84]
    found = compare_paired([Pair("b", f"p{n}", 100 * r, 100.0) for n, r in enumerate(ratios)], band=0.015)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.low < 0.80 < 1 < found.high


def test_fewer_than_six_units_never_show_an_effect_and_six_do() -> None:
    def ratio_of(prompts: int) -> Outcome:
        pairs = [Pair("b", f"p{n}", 80 + n / 10, 100.0) for n in range(prompts)]
        return compare_paired(pairs, band=0.015).outcome

    assert [ratio_of(n) for n in (4, 5, 6)] == [Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.REJECTED]


@pytest.mark.parametrize("prompts", [6, 10])
def test_noise_passes_for_an_effect_less_often_than_one_time_in_twenty(prompts: int) -> None:
    rng = np.random.default_rng(prompts)
    wrong = 0
    for _ in range(150):
        logs = rng.normal(0, 0.1, prompts)
        pairs = [Pair("b", f"p{n}", 100 * float(np.exp(v)), 100.0) for n, v in enumerate(logs)]
        wrong += compare_paired(pairs, band=0.015).outcome is not Outcome.INCONCLUSIVE
    assert wrong <= 150 / 20


def test_effects_outside_the_band_are_told_apart() -> None:
    assert compare_paired(pairs(1.10), band=0.015).outcome is Outcome.ACCEPTED
    assert compare_paired(pairs(0.80), band=0.015).outcome is Outcome.REJECTED


def test_a_real_effect_inside_the_band_is_inconclusive() -> None:
    found = compare_paired(pairs(1.008, noise=0.0001), band=0.015)
    assert (found.outcome, found.low > 1) == (Outcome.INCONCLUSIVE, True)


def test_the_unit_is_the_server_start_once_there_are_six() -> None:
    assert compare_paired(pairs(1.1, blocks=6), band=0.015).unit == "block"
    assert compare_paired(pairs(1.1, blocks=2), band=0.015).unit == "prompt"


@pytest.mark.parametrize(
    ("given", "band", "message"),
    [
        ([Pair("b", "p", 1.0, 1.0)], 0.01, "needs two"),
        ([Pair("b", "p", 0.0, 1.0)], 0.01, "positive and finite"),
        (pairs(1.0), 1.5, "share from 0 to 1"),
    ],
)
def test_pairs_that_show_nothing_are_refused(given: list[Pair], band: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_paired(given, band)


def test_the_sign_flip_test_is_exact_for_few_values() -> None:
    assert sign_flip_p([1.0] * 6) == pytest.approx(2 / 64)
    assert sign_flip_p([1.0, -1.0]) == 1.0


def test_an_answer_that_arrives_in_one_read_is_no_measurement_and_no_shortage() -> None:
    """A starved client gets 120 ids at once: there is no rate, and that says something about the machine only."""
    arms = [
        dataclasses.replace(t, arm=arm, receipt_ns=(t.receipt_ns[-1],) * len(t.receipt_ns))
        for arm in ("candidate#1", "candidate#2")
        for t in suite_of(arm)
    ]
    report = judge_speed(arms, freshness=COLD, parity=EQUAL)
    (headline,) = [f for f in report.findings if f.check == "speed.headline"]
    assert report.headline_tok_s is None
    assert headline.outcome is Outcome.INCONCLUSIVE
    assert "did not get the processor" in headline.message
