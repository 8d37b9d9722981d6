"""Speculation must not change the distribution: a shift of 5 % is seen, the same distribution never is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fixtures.judge.finding import Outcome
from fixtures.judge.sampling import compare_counts, judge_sampling, samples_needed

SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def draw(shares: np.ndarray, n: int, seed: int) -> Counter[int]:
    return Counter(np.random.default_rng(seed).choice(len(shares), size=n, p=shares).tolist())


def test_the_same_distribution_is_accepted_in_every_one_of_two_hundred_runs() -> None:
    n = samples_needed(1, 4)
    for seed in range(200):
        [found] = judge_sampling({"p": draw(SHARES, n, seed)}, {"p": draw(SHARES, n, seed + 10_000)})
        assert found.outcome is Outcome.ACCEPTED, found.message


def test_a_shift_of_five_percent_is_seen() -> None:
    shifted = SHARES + np.array([0.05, -0.05, 0, 0])
    n = samples_needed(1, 4)
    seen = [
        judge_sampling({"p": draw(SHARES, n, s)}, {"p": draw(shifted, n, s + 10_000)})[0].outcome
        for s in range(40)
    ]
    assert seen.count(Outcome.REJECTED) >= 36


def test_too_few_samples_are_pending() -> None:
    [found] = judge_sampling({"p": draw(SHARES, 100, 1)}, {"p": draw(SHARES, 100, 2)})
    assert found.outcome is Outcome.PENDING
    assert "needed to see a shift of 5%" in found.message


def test_a_gross_difference_is_rejected_even_with_few_samples() -> None:
    [found] = judge_sampling({"p": Counter({1: 100})}, {"p": Counter({2: 100})})
    assert found.outcome is Outcome.REJECTED


@pytest.mark.parametrize(("target", "candidate"), [({}, {}), ({"p": {1: 9000}}, {}), ({}, {"p": {1: 9000}})])
def test_what_was_not_sampled_is_pending(
    target: dict[str, dict[int, int]], candidate: dict[str, dict[int, int]]
) -> None:
    assert {f.outcome for f in judge_sampling(target, candidate)} == {Outcome.PENDING}


def test_rare_tokens_are_pooled_instead_of_tested_one_by_one() -> None:
    many = dict.fromkeys(range(2, 60), 1)
    seen = compare_counts({1: 1000} | many, {1: 1000} | {i + 100: 1 for i in many})
    assert seen.cells == 2
    assert seen.p == pytest.approx(1.0)


def test_more_prompts_need_more_samples() -> None:
    assert samples_needed(1, 2) < samples_needed(50, 2) < samples_needed(50, 20)
