"""Speculation must not change the distribution: a shift of 5 % is seen, the same distribution never is."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.judge.finding import Outcome
from fixtures.judge.sampling import Sample, compare_samples, judge_sampling, judge_tie_rule
from fixtures.judge.verdict import derive

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
ANSWERS, LENGTH = 480, 32


def chains(
    seed: int, shares: np.ndarray = SHARES, *, answers: int = ANSWERS, stay: float = 0.3
) -> list[list[int]]:
    """Answers whose tokens depend on each other: with probability `stay` a token repeats the one before."""
    rng = np.random.default_rng(seed)
    fresh = rng.choice(len(shares), size=(answers, LENGTH), p=shares)
    repeated = rng.random((answers, LENGTH)) < stay
    for place in range(1, LENGTH):
        fresh[:, place] = np.where(repeated[:, place], fresh[:, place - 1], fresh[:, place])
    return fresh.tolist()


def test_the_same_distribution_is_accepted_in_every_one_of_a_hundred_runs() -> None:
    for seed in range(100):
        [found] = judge_sampling({"p": chains(seed)}, {"p": chains(seed + 10_000)})
        assert found.outcome is Outcome.ACCEPTED, found.message


def test_p_values_of_the_same_distribution_are_uniform_though_tokens_depend_on_each_other() -> None:
    p = [
        compare_samples(chains(s, answers=100), chains(s + 10_000, answers=100)).p or 0.0 for s in range(500)
    ]
    for level in (0.02, 0.1, 0.5):
        seen = sum(value < level for value in p)
        # Six standard deviations of a binomial count.
        assert abs(seen - 500 * level) < 6 * (500 * level * (1 - level)) ** 0.5, (level, seen)


def test_a_shift_of_five_percent_is_seen() -> None:
    shifted = SHARES + np.array([0.05, -0.05, 0, 0])
    seen = [
        judge_sampling({"p": chains(s)}, {"p": chains(s + 10_000, shifted)})[0].outcome for s in range(40)
    ]
    assert seen.count(Outcome.REJECTED) >= 36


def test_the_power_that_a_finding_states_is_the_share_of_shifts_that_are_seen() -> None:
    """At sample sizes between blind and certain: what is computed has to be what happens."""
    shifted, level, runs, answers = SHARES + np.array([0.05, -0.05, 0, 0]), 1e-3, 150, 120
    seen = [
        compare_samples(chains(s, answers=answers), chains(s + 10_000, shifted, answers=answers), level=level)
        for s in range(runs)
    ]
    stated = float(np.mean([one.power for one in seen]))
    happened = float(np.mean([(one.p or 0.0) < level for one in seen]))
    assert 0.3 < stated < 0.7, "neither blind nor certain"
    # Four standard deviations of a binomial share.
    assert abs(stated - happened) < 4 * (stated * (1 - stated) / runs) ** 0.5, (stated, happened)


def test_the_level_of_the_suite_is_shared_by_its_prompts() -> None:
    found = judge_sampling({"a": chains(1), "b": chains(2)}, {"a": chains(3), "b": chains(4)})
    assert [f.details["level"] for f in found] == [0.5e-6, 0.5e-6]


def rows_of(**arms: list[list[int]]) -> dict[str, list[dict[str, object]]]:
    """A packet's rows: `target` is target-only, every other arm a candidate."""
    roles = {arm: "target" if arm == "target" else "candidate" for arm in arms}
    return {
        "arm": [{"arm": arm, "role": role} for arm, role in roles.items()],
        "sample": [Sample(arm, "p", answers).to_row() for arm, answers in arms.items()],
    }


def sampling_findings(rows: dict[str, list[dict[str, object]]]) -> dict[str, Outcome]:
    return {f.check: f.outcome for f in derive(rows).findings if f.check.startswith("sampling")}


def test_a_packet_is_judged_by_its_samples() -> None:
    shifted = SHARES + np.array([0.1, -0.1, 0, 0])
    assert sampling_findings(rows_of(target=chains(1), mine=chains(2))) == {
        "sampling.distribution": Outcome.ACCEPTED
    }
    assert sampling_findings(rows_of(target=chains(1), mine=chains(2, shifted))) == {
        "sampling.distribution": Outcome.REJECTED
    }
    assert sampling_findings(rows_of(mine=chains(2))) == {"sampling.distribution": Outcome.PENDING}
    assert sampling_findings(rows_of(target=chains(1))) == {"sampling.distribution": Outcome.PENDING}


def test_a_known_deviation_is_accepted_by_name_and_rejected_once_it_is_gone() -> None:
    shifted = SHARES + np.array([0.1, -0.1, 0, 0])
    rows = rows_of(target=chains(1), mine=chains(2, shifted))
    rows["sample"][1]["deviation"] = {"id": "known"}
    assert sampling_findings(rows) == {"sampling.deviation": Outcome.ACCEPTED}
    rows["sample"][1]["answers"] = chains(2)
    assert sampling_findings(rows)["sampling.stale_deviation"] is Outcome.REJECTED
    rows["sample"][1]["answers"] = chains(2, answers=40)
    assert sampling_findings(rows) == {"sampling.distribution": Outcome.PENDING}, "too few to call it stale"


def test_a_sample_with_an_empty_answer_is_no_evidence() -> None:
    rows = rows_of(target=chains(1), mine=[[1], []])
    assert derive(rows).outcome is Outcome.INVALID


def test_too_few_samples_are_pending() -> None:
    [found] = judge_sampling({"p": chains(1, answers=40)}, {"p": chains(2, answers=40)})
    assert found.outcome is Outcome.PENDING
    assert "a shift of 5% is seen with probability" in found.message


def test_a_gross_difference_is_rejected_even_with_few_samples() -> None:
    [found] = judge_sampling({"p": [[1, 1, 2]] * 20}, {"p": [[3, 3, 3]] * 20})
    assert found.outcome is Outcome.REJECTED


def test_answers_that_never_vary_are_pending_and_not_accepted() -> None:
    [found] = judge_sampling({"p": [[1, 2]] * 500}, {"p": [[1, 2]] * 500})
    assert found.outcome is Outcome.PENDING


@pytest.mark.parametrize(
    ("target", "candidate"), [({}, {}), ({"p": [[1], [2]]}, {}), ({}, {"p": [[1], [2]]})]
)
def test_what_was_not_sampled_is_pending(
    target: dict[str, list[list[int]]], candidate: dict[str, list[list[int]]]
) -> None:
    assert {f.outcome for f in judge_sampling(target, candidate)} == {Outcome.PENDING}


def test_rare_tokens_are_pooled() -> None:
    target, candidate = chains(1), chains(2)
    for number, answer in enumerate(target):
        answer[0] = 100 + number
    seen = compare_samples(target, candidate)
    assert seen.tokens == len(SHARES) + 1


def test_answers_without_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        compare_samples([[1], []], [[1], [2]])


@pytest.mark.parametrize(
    ("said", "outcome"), [([4, 7], Outcome.ACCEPTED), ([4, 9], Outcome.REJECTED)], ids=["lowest", "other"]
)
def test_an_exact_tie_goes_to_the_lowest_id(said: list[int], outcome: Outcome) -> None:
    found = judge_tie_rule(said, [{4: -0.1, 5: -3.0}, {9: -0.7, 7: -0.7, 3: -2.0}])
    assert found.outcome is outcome
    assert "1 exact ties" in found.message or "1 of 1 exact ties" in found.message


def test_without_a_tie_the_rule_was_not_seen() -> None:
    assert judge_tie_rule([4], [{4: -0.1, 5: -3.0}]).outcome is Outcome.PENDING
