"""What cannot be timed has no rate anywhere, and only that may be asked again."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_rows import packet_rows, span, suite_of, transcript

from fixtures.client.transcript import Transcript
from fixtures.judge.dating import undatable
from fixtures.judge.described import PromptRow, SuiteRow
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.rates import measure
from fixtures.judge.replacement import CHECK, Replacement, judge_replacements, most_replaced, why_untimed
from fixtures.judge.speed import judge_speed, measure_arm
from fixtures.judge.verdict import Verdict, derive

COLD = [Finding("freshness.cached_tokens", Outcome.ACCEPTED, "cold")]
EQUAL = [Finding("parity.exact", Outcome.ACCEPTED, "equal")]
RESERVE = [{"id": "r0", "class": "code", "expect": None}, {"id": "r1", "class": "prose", "expect": None}]


def bunched(row: Transcript, sizes: Sequence[int]) -> Transcript:
    """The same answer, its ids in reads of these sizes: each read comes when the last of its ids did."""
    times = list(row.receipt_ns)
    ends = list(itertools.accumulate(sizes))
    assert ends[-1] == len(times)
    read = [times[end - 1] for end, size in zip(ends, sizes, strict=True) for _ in range(size)]
    return dataclasses.replace(row, receipt_ns=tuple(read), done_ns=max(row.done_ns, read[-1]))


@pytest.mark.parametrize(
    "sizes",
    [[120], [99, 21], [1, 98, 21], [60, 60], [40, 40, 40], [1, 60, 59], [50, 1, 69], [9] * 13 + [3]],
    ids=str,
)
def test_ids_in_bunches_give_no_rate_and_no_gap(sizes: list[int]) -> None:
    seen = measure(bunched(transcript(), sizes))
    assert seen.undatable
    assert seen.ttft_s is not None
    numbers = dataclasses.asdict(seen) | {"ttft_s": None, "prefill_tok_s": None}
    assert {name: v for name, v in numbers.items() if name.endswith("_s")} == dict.fromkeys(
        n for n in numbers if n.endswith("_s")
    )


@given(sizes=st.lists(st.integers(1, 4), min_size=60, max_size=60), gap_ms=st.integers(1, 50))
def test_steps_of_a_few_ids_can_be_timed_and_their_rate_is_right(sizes: list[int], gap_ms: int) -> None:
    """What drafts do: a step gives one id to four, all at one time. The first step's own ids are the error left."""
    row = transcript(ids=range(sum(sizes)), gap_s=gap_ms / 1000)
    if len(row.token_ids) < 100:
        assert not why_untimed(bunched(row, sizes))
        return
    rate = measure(bunched(row, sizes)).interval_tok_s
    assert rate is not None
    assert 1000 / gap_ms * 0.96 < rate < 1000 / gap_ms * 1.05


@given(
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=120).filter(lambda s: sum(s) >= 120),
    gap_ms=st.sampled_from([1, 20]),
)
def test_no_bunching_makes_a_rate_much_higher_than_it_is(sizes: list[int], gap_ms: int) -> None:
    row = transcript(ids=range(sum(sizes)), gap_s=gap_ms / 1000)
    rate = measure(bunched(row, sizes)).interval_tok_s
    assert rate is None or rate < 1000 / gap_ms * 1.09, f"{rate} tok/s of {1000 / gap_ms}"


def test_an_answer_that_cannot_be_timed_is_in_no_number_of_its_arm() -> None:
    said = suite_of("candidate#1")
    said[0] = bunched(said[0], [119, 1])
    arm = measure_arm(said)
    assert arm.bunched == 1
    assert "cannot be timed" in arm.reason
    assert arm.class_median_tok_s.keys() == {"prose", "json", "count", "copy"}, (
        "its class has no median either"
    )
    assert {n for n, v in arm.metrics.items() if v is not None} == {"ttft_median_s", "prefill_median_tok_s"}


def test_a_run_with_such_answers_alone_is_inconclusive() -> None:
    said = [bunched(t, [120]) for arm in ("candidate#1", "candidate#2") for t in suite_of(arm)]
    report = judge_speed(said, freshness=COLD, parity=EQUAL)
    assert report.headline_tok_s is None
    assert [f.outcome for f in report.findings] == [Outcome.INCONCLUSIVE]


def replaced_rows(
    late: str = "p0", by: str = "r0", *, bunch: bool = True, **row: Any
) -> dict[str, list[Any]]:
    """A sound run in which `late` of the first candidate could not be timed and `by` was asked instead."""
    rows = packet_rows()
    rows["suite"][0] = rows["suite"][0] | {"reserve": RESERVE}
    fresh = transcript(
        by, "candidate#1", order=50, prompt_class=next(r["class"] for r in RESERVE if r["id"] == by)
    )
    fresh = dataclasses.replace(fresh, token_ids=tuple(range(200, 320)))
    rows["counters"] = [span(arm, generation_tokens=1400).to_row() for arm in ("candidate#1", "candidate#2")]
    rows["transcript"] += [fresh.to_row() | {"purpose": "measured"}]
    rows["transcript"] += [
        dataclasses.replace(fresh, arm="target#1", order=80).to_row() | {"purpose": "parity"},
    ]
    for n, said in enumerate(rows["transcript"]):
        if bunch and (said["arm"], said["prompt_id"], said["purpose"]) == ("candidate#1", late, "measured"):
            made = bunched(Transcript.from_row(said), [120])
            rows["transcript"][n] = made.to_row() | {"purpose": "measured"}
    rows["replacement"] = [Replacement("candidate#1", "suite", late, by, "no time between").to_row() | row]
    return rows


def outcome_of(verdict: Verdict, check: str) -> list[Outcome]:
    return [f.outcome for f in verdict.findings if f.check == check]


def test_a_fresh_answer_of_the_same_class_stands_in_and_the_packet_says_so() -> None:
    verdict = derive(replaced_rows())
    said = [f.message for f in verdict.findings if f.check == CHECK]
    assert verdict.outcome is Outcome.ACCEPTED, [
        f for f in verdict.findings if f.outcome is not Outcome.ACCEPTED
    ]
    assert verdict.headline_tok_s == pytest.approx(100.0)
    assert said == [
        "candidate#1: 1 of 10 answers could not be timed and were replaced: p0 by r0 (no time between)"
    ]


@pytest.mark.parametrize(
    ("rows", "outcome", "check"),
    [
        (replaced_rows(bunch=False), Outcome.INVALID, CHECK),
        (replaced_rows(by="r1"), Outcome.INVALID, CHECK),
        (replaced_rows(by="r0") | {"suite": packet_rows()["suite"]}, Outcome.INVALID, CHECK),
        (replaced_rows(prompt_id="p9"), Outcome.INVALID, CHECK),
        (replaced_rows() | {"replacement": []}, Outcome.REJECTED, "freshness.full_suite"),
    ],
    ids=["it can be timed", "another class", "not in the reserve", "another answer", "nobody says why"],
)
def test_an_answer_is_not_replaced_because_it_is_slow(rows: Any, outcome: Outcome, check: str) -> None:
    verdict = derive(rows)
    assert outcome in outcome_of(verdict, check)
    assert verdict.outcome in (Outcome.REJECTED, Outcome.INVALID)


def test_a_stand_in_that_target_only_was_not_asked_gives_no_accepted_run() -> None:
    rows = replaced_rows()
    rows["transcript"] = [t for t in rows["transcript"] if (t["arm"], t["prompt_id"]) != ("target#1", "r0")]
    assert outcome_of(derive(rows), CHECK) == [Outcome.PENDING, Outcome.ACCEPTED]


def test_a_stand_in_with_a_wrong_token_is_rejected_as_any_answer() -> None:
    rows = replaced_rows()
    for n, said in enumerate(rows["transcript"]):
        if (said["arm"], said["prompt_id"]) == ("candidate#1", "r0"):
            wrong = dataclasses.replace(Transcript.from_row(said), token_ids=(9, *said["token_ids"][1:]))
            rows["transcript"][n] = wrong.to_row() | {"purpose": "measured"}
    assert derive(rows).outcome is Outcome.REJECTED


def test_more_than_a_third_replaced_is_inconclusive() -> None:
    said = suite_of("candidate#1", prompts=9)
    reserve = [transcript(f"r{n}", order=50 + n, prompt_class=said[n].prompt_class) for n in range(4)]
    measured = [bunched(t, [120]) if n < 4 else t for n, t in enumerate(said)]
    instead = [Replacement("candidate#1", "suite", f"p{n}", f"r{n}", "bunched") for n in range(4)]
    prompts, spare = (tuple(PromptRow(t.prompt_id, t.prompt_class) for t in part) for part in (said, reserve))
    suite = SuiteRow("suite", prompts, spare)
    found = judge_replacements([*measured, *reserve], instead, [suite])
    assert most_replaced(len(said)) == 3
    assert [f.outcome for f in found.findings] == [Outcome.INCONCLUSIVE]
    assert {t.prompt_id for t in found.timed} == {"p4", "p5", "p6", "p7", "p8", "r0", "r1", "r2", "r3"}


def test_ids_behind_the_window_that_share_its_last_time_count() -> None:
    times = [float(n) for n in range(97)] + [97.0] * 40
    assert undatable(times) == "1 ids came together with the first, 40 with id 100"
