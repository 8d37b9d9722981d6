"""The judge of gaps: every token that the target has read, against its bounds and against the target's own answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.gap_rates import mechanism, rates
from fixtures.judge.gap_statistics import (
    ANSWERS_BEYOND,
    FALSE_ALARM_RATE,
    chance_of_beyond,
    working_threshold,
)
from fixtures.judge.gaps import Place, Pool, Reading
from fixtures.judge.judges.gaps import GAPS
from fixtures.judge.judges.parity import PARITY
from fixtures.judge.rounds import Round
from fixtures.judge.run import Run

PROMPTS, TOKENS = 65, 64
Gaps = Mapping[int, float]


def gaps_row(arm: str, prompt: str, gaps: Gaps, tokens: int = TOKENS, **changes: Any) -> dict[str, Any]:
    """A reading of one answer. Gaps of 30 nats and more are tokens that are not among the best."""
    logprobs: list[float | None] = [-1.0 - gaps.get(at, 0.0) for at in range(tokens)]
    ranks: list[int | None] = [2 if at in gaps else 1 for at in range(tokens)]
    heads = {}
    for at, gap in gaps.items():
        heads[str(at)] = {str(i): -1.0 - i / 16 for i in range(20)} | {"99": -1.0 - gap}
        if gap >= 30:
            logprobs[at] = ranks[at] = None
    row = {
        "arm": "target#1",
        "candidate_arm": arm,
        "suite": "s",
        "prompt_id": prompt,
        "class": "c",
        "prompt_tokens": 40,
        "token_ids": list(range(tokens)),
        "dtype": "bfloat16",
        "layers": 6,
        "top": 20,
        "logprobs": logprobs,
        "ranks": ranks,
        "best": [-1.0] * tokens,
        "worst": [-31.0] * tokens,
        "heads": heads,
        "rounds": [],
    }
    return row | changes


def transcript_row(arm: str, prompt: str, tokens: int = TOKENS, **changes: Any) -> dict[str, Any]:
    row = {
        "suite": "s",
        "prompt_id": prompt,
        "prompt_class": "c",
        "arm": arm,
        "request": {"messages": prompt, "max_tokens": tokens},
        "token_ids": list(range(tokens)),
        "prompt_token_ids": [1, 2, 3],
        "finish_reason": "length",
        "usage": {},
        "purpose": "parity",
    }
    return row | changes


def packet(said: Mapping[str, Sequence[Gaps]], *, near_ties: bool = True) -> dict[str, list[Any]]:
    """Rows of arms by label: for each prompt the gaps of the arm's answer."""
    return {
        "lane": [
            {
                "name": "l",
                "dtype": "bfloat16",
                "thresholds": {"allow_near_ties": near_ties, "candidate_arms": 1},
            }
        ],
        "arm": [{"arm": arm, "role": arm.partition("#")[0], "speculation": None} for arm in said],
        "transcript": [
            transcript_row(arm, f"p{n}") for arm, answers in said.items() for n in range(len(answers))
        ],
        "gaps": [
            gaps_row(arm, f"p{n}", gaps) for arm, answers in said.items() for n, gaps in enumerate(answers)
        ],
    }


def findings(rows: Mapping[str, Sequence[Any]]) -> list[Finding]:
    return list(GAPS.findings(Run(rows)))


def outcomes(rows: Mapping[str, Sequence[Any]]) -> dict[str, Outcome]:
    """The worst outcome of each check."""
    found = sorted(findings(rows), key=lambda f: list(Outcome).index(f.outcome))
    return {f.check: f.outcome for f in found}


def rounding(seed: str, share: float = 0.02, scale: float = 0.05, answers: int = PROMPTS) -> list[Gaps]:
    """Gaps as rounding makes them: rare, on the grid of bf16 logits, with an exponential tail."""
    rng = random.Random(seed)
    return [
        {
            at: 0.0625 * (1 + int(rng.expovariate(1 / scale) / 0.0625))
            for at in range(TOKENS)
            if rng.random() < share
        }
        for _ in range(answers)
    ]


def test_two_sound_arms_are_accepted_with_the_number_of_tokens_behind_it():
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")})

    found = findings(rows)

    assert {f.outcome for f in found} == {Outcome.ACCEPTED}
    message = next(f.message for f in found if f.check == "gaps.wrong_token")
    assert message.startswith("candidate#1: rank 1 or near tie at each of 4160 tokens of 65 answers")


def test_100_sound_runs_raise_no_alarm():
    alarms = [
        seed
        for seed in range(100)
        if Outcome.REJECTED
        in outcomes(packet({"target#1": rounding(f"t{seed}"), "candidate#1": rounding(f"c{seed}")})).values()
    ]

    assert not alarms


def test_sound_answers_that_loop_over_a_near_tie_raise_no_alarm():
    """One answer in a loop makes the same near tie dozens of times; the unit is the answer, not the token."""
    looping = [dict.fromkeys(range(0, TOKENS, 2), 0.0625), *rounding("c")[1:]]

    assert (
        Outcome.REJECTED not in outcomes(packet({"target#1": rounding("t"), "candidate#1": looping})).values()
    )


def test_one_wrong_token_is_rejected_wherever_it_stands():
    said = rounding("c")
    said[40] = {3: 0.0625, 60: 5.0}

    found = [
        f
        for f in findings(packet({"target#1": rounding("t"), "candidate#1": said}))
        if f.check == "gaps.wrong_token"
    ]

    assert [f.outcome for f in found] == [Outcome.REJECTED]
    assert (found[0].prompt_id, found[0].details["position"]) == ("p40", 60)
    assert "gap 5 nats, rank 2" in found[0].message
    assert "working threshold" in found[0].message
    assert "bound" in found[0].message


def test_a_token_that_is_not_among_the_best_is_wrong():
    said = rounding("c")
    said[7] = {5: 30.0}

    found = findings(packet({"target#1": rounding("t"), "candidate#1": said}))

    wrong = [f for f in found if f.outcome is Outcome.REJECTED]
    assert "gap at least 30 nats, not among the 20 best" in wrong[0].message


def test_more_gaps_are_rejected_though_each_is_within_the_bound():
    said = [{at: min(g, 0.25) for at, g in gaps.items()} for gaps in rounding("c", share=0.06)]

    found = outcomes(packet({"target#1": rounding("t"), "candidate#1": said}))

    assert found["gaps.distribution"] is Outcome.REJECTED
    assert found["gaps.wrong_token"] is Outcome.ACCEPTED


def test_a_few_answers_beyond_the_working_threshold_are_rejected():
    null, said = rounding("t", scale=0.01), rounding("c", scale=0.01)
    for n in range(ANSWERS_BEYOND):
        said[n] = {20: 0.3}

    found = [
        f for f in findings(packet({"target#1": null, "candidate#1": said})) if f.check == "gaps.distribution"
    ]

    assert found[0].outcome is Outcome.REJECTED
    assert "3 answers have gaps beyond the working threshold" in found[0].message


def test_too_few_tokens_are_pending():
    rows = packet({"target#1": rounding("t")[:10], "candidate#1": rounding("c")[:10]})

    assert outcomes(rows)["gaps.null"] is Outcome.PENDING
    assert outcomes(rows)["gaps.distribution"] is Outcome.PENDING


def test_a_null_with_few_gaps_is_compared_without_a_working_threshold():
    few = [{3: 0.0625} if n < 14 else {} for n in range(PROMPTS)]
    many = [dict.fromkeys((3, 20, 40), 0.0625) for _ in range(PROMPTS)]

    sound = findings(packet({"target#1": few, "candidate#1": few[::-1]}))
    shifted = outcomes(packet({"target#1": few, "candidate#1": many}))

    assert {f.outcome for f in sound} == {Outcome.ACCEPTED}
    assert "no working threshold, which 20 gaps" in next(
        f.message for f in sound if f.check == "gaps.distribution"
    )
    assert shifted["gaps.distribution"] is Outcome.REJECTED


def test_a_null_without_any_gap_shows_nothing_where_near_ties_are_accepted():
    rows = packet({"target#1": [{}] * PROMPTS, "candidate#1": [{}] * PROMPTS})

    assert outcomes(rows)["gaps.distribution"] is Outcome.PENDING


def test_a_near_tie_lane_whose_answers_nobody_read_is_pending():
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")}) | {"gaps": []}

    assert outcomes(rows) == {"gaps.read": Outcome.PENDING}
    assert findings(packet({"target#1": [{}], "candidate#1": [{}]}, near_ties=False) | {"gaps": []}) == []


def test_an_exact_lane_gets_the_statement_for_nothing():
    rows = packet({"target#1": [{}] * 4, "candidate#1": [{}] * 4}, near_ties=False)

    assert set(outcomes(rows).values()) == {Outcome.ACCEPTED}


def test_a_target_that_contradicts_its_own_reading_decides_nothing_for_itself():
    null = rounding("t")
    null[0] = {4: 6.0}

    assert outcomes(packet({"target#1": null, "candidate#1": rounding("c")}))["gaps.null"] is Outcome.PENDING


def test_only_the_target_may_say_what_the_target_thinks():
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")})
    rows["gaps"] = [row | {"arm": "candidate#1"} for row in rows["gaps"]]

    assert outcomes(rows) == {"gaps.read": Outcome.PENDING}


def by_oracle(said: Mapping[str, Sequence[Gaps]]) -> dict[str, list[Any]]:
    """Rows of a run in which an oracle, which no stack can have changed, reads everything."""
    rows = packet(said)
    return rows | {"gaps": [row | {"arm": "oracle#1"} for row in rows["gaps"]]}


def test_a_change_in_both_arms_is_seen_by_a_target_without_the_stack():
    """A margin in the sampler of target and candidate alike: they agree with each other, and not with the model."""
    margin = [dict.fromkeys(range(0, TOKENS, 9), 0.25) for _ in range(PROMPTS)]

    both = findings(by_oracle({"target#1": margin, "candidate#1": margin, "oracle#1": rounding("o")}))

    assert {f.arm for f in both if f.outcome is Outcome.REJECTED} == {"target#1", "candidate#1"}
    sound = by_oracle({"target#1": rounding("t"), "candidate#1": rounding("c"), "oracle#1": rounding("o")})
    assert set(outcomes(sound).values()) == {Outcome.ACCEPTED}


def test_where_an_oracle_is_the_changed_target_is_not_believed():
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c"), "oracle#1": rounding("o")})

    assert outcomes(rows) == {"gaps.read": Outcome.PENDING}


def test_a_loop_of_near_ties_is_no_corruption_once_the_target_has_read_it():
    """After a near tie the candidate runs into a loop that the target would run into too: looks decide nothing."""
    looping = [*range(8), *[50, 51, 52] * 18, 50, 51]
    rows = packet({"target#1": [{}], "candidate#1": [{8: 0.0625}]})
    rows["suite"] = [{"suite": "s", "prompts": [{"id": "p0", "class": "c", "expect": None}]}]
    rows["transcript"][1]["token_ids"] = rows["gaps"][1]["token_ids"] = looping
    logprobs = {"8": -0.7, "50": -0.7625} | {str(600 + i): -25.0 for i in range(18)}
    rows["score"] = [
        {
            "arm": "target#1",
            "candidate_arm": "candidate#1",
            "suite": "s",
            "prompt_id": "p0",
            "position": 8,
            "logprobs": logprobs,
            "layers": 6,
        }
    ]

    def classes(of: Mapping[str, Sequence[Any]]) -> set[str]:
        return {f.check for f in PARITY.findings(Run(of)) if f.arm == "candidate#1" and f.prompt_id}

    assert classes(rows) == {"parity.near_tie"}
    assert classes(rows | {"gaps": []}) == {"parity.corruption"}


@pytest.mark.parametrize(
    ("change", "check", "outcome", "words"),
    [
        ({"problem": "status 400: no prompt_logprobs"}, "gaps.read", Outcome.PENDING, "no prompt_logprobs"),
        ({"token_ids": [5] * TOKENS}, "gaps.answer", Outcome.INVALID, "other ids than the answer has"),
        (None, "gaps.read", Outcome.PENDING, "not read"),
    ],
)
def test_a_reading_that_is_none_is_named(change, check, outcome, words):
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")})
    last = rows["gaps"].pop()
    if change is not None:
        rows["gaps"].append(last | change)

    (found,) = [f for f in findings(rows) if f.check == check]

    assert found.outcome is outcome
    assert words in found.message


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"prompt_token_ids": [1, 2]}, "gaps.tokenizer", "2 prompt ids, the target has 3"),
        ({"request": {"messages": "p64", "max_tokens": 512}}, "gaps.cut", "cut at 64 of 512 tokens"),
    ],
)
def test_answers_that_cannot_be_held_against_the_target_are_named(change, check, words):
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")})
    rows["transcript"][-1] |= change

    (found,) = [f for f in findings(rows) if f.check == check]

    assert found.outcome is Outcome.PENDING
    assert words in found.message


def test_a_target_that_gives_few_logprobs_says_how_much_weaker_that_is():
    rows = packet({"target#1": rounding("t"), "candidate#1": rounding("c")})
    rows["gaps"] = [row | {"top": 1} for row in rows["gaps"]]

    (found,) = [f for f in findings(rows) if f.check == "gaps.wrong_token"]

    assert "weaker: the target gives 1 log-probabilities of a place" in found.message


@pytest.mark.parametrize(
    "change", [{"ranks": [1]}, {"heads": {}}, {"top": "many"}, {"token_ids": None}, {"dtype": "int8"}]
)
def test_a_row_that_cannot_be_read_is_no_reading(change: Mapping[str, Any]):
    rows = packet({"target#1": [{1: 0.5}]}) | {"gaps": [gaps_row("target#1", "p0", {1: 0.5}) | change]}
    run = Run(rows)

    assert run.readings == () or run.readings == []
    assert [problem.kind for problem in run.unreadable] == ["gaps"]


def test_the_working_threshold_lies_beyond_what_the_null_shows_and_needs_a_null():
    gaps = [g for answer in rounding("t") for g in answer.values()]

    threshold = working_threshold(gaps, 4160, 4160)

    assert threshold is not None
    assert max(gaps) < threshold < 1.5
    assert working_threshold(gaps[:19], 4160, 4160) is None
    assert working_threshold([0.0625] * 40, 4160, 4160) > 0.0625
    assert chance_of_beyond(ANSWERS_BEYOND) < FALSE_ALARM_RATE


def test_large_gaps_after_rejections_name_the_commit():
    rounds = tuple(Round(3, n) for n in (0, 3) * 16)
    starts = list(itertools.accumulate((r.emitted for r in rounds), initial=1))
    after_reject = [start for start, before in zip(starts[1:], rounds, strict=False) if before.accepted == 0]
    ids = tuple(range(starts[-1]))
    places = tuple(Place(at, 1.0, 2, None) for at in after_reject)
    said = Pool((Reading("t", "c", ("s", "p"), "c", 10, ids, 20, places, rounds),))

    named = mechanism(rates(said, 0.1))

    assert "points at commit bookkeeping after a rejection" in named
    assert mechanism(rates(Pool((Reading("t", "c", ("s", "p"), "c", 10, ids, 20, (), rounds),)), 0.1)) == ""
