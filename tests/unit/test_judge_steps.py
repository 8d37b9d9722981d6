"""Verifier steps come from the server's counters, by suite and by answer; what it does not count is not shown."""

from __future__ import annotations

import dataclasses

import pytest
from judge_rows import packet_rows, span, suite_of, transcript

from fixtures.client.metrics import Counters
from fixtures.judge.counters import CounterSpan
from fixtures.judge.finding import Outcome
from fixtures.judge.speed import Counted, measure_arm
from fixtures.judge.steps import step_speed, steps_by_prompt
from fixtures.judge.verdict import derive


def test_a_step_has_its_accepted_tokens_its_positions_and_its_time() -> None:
    steps = step_speed([span()], suite_of("candidate#1"))
    assert steps is not None
    assert (steps.steps, steps.accepted_per_step, steps.acceptance) == (100, 1.5, 0.5)
    assert steps.acceptance_by_position == (0.8, 0.5, 0.2)
    assert steps.step_ms == pytest.approx(10 * 119 * 0.01 * 1000 / 100)


@pytest.mark.parametrize(
    "change", [{"drafts": None}, {"accepted_per_position": None}, {"drafts": 0}, {"drafts": -1}]
)
def test_what_is_not_counted_is_not_shown(change: dict[str, int | None]) -> None:
    assert step_speed([span(**change)], suite_of("candidate#1")) is None


def test_answers_without_times_have_steps_and_no_step_time() -> None:
    said = [dataclasses.replace(t, receipt_ns=()) for t in suite_of("candidate#1")]
    steps = step_speed([span()], said)
    assert steps is not None
    assert (steps.steps, steps.step_ms) == (100, None)


def test_an_answer_has_the_steps_that_were_counted_around_it() -> None:
    said = [transcript("p0"), transcript("p1")]
    zero, one = Counters(0, 0, 0, (0, 0, 0)), Counters(40, 120, 80, (40, 30, 10))
    counted = [(("candidate#1", "suite", "p1"), CounterSpan("candidate#1", zero, one))]
    found = steps_by_prompt(counted, said)
    assert list(found) == [("candidate#1", "suite", "p1")]
    arm = measure_arm(said, counted=Counted([], counted))
    assert [p.steps.accepted_per_step if p.steps else None for p in arm.prompts] == [None, 2.0]


def test_every_number_of_an_arm_is_in_its_finding_and_target_only_stands_beside() -> None:
    rows = packet_rows()
    for row in rows["transcript"]:
        if row["arm"].startswith("target"):
            row["purpose"] = "measured"
    rows["counters"] += [span("target#1", accepted_tokens=None).to_row(), span("target#2").to_row()]
    verdict = derive(rows)
    (first, _) = [f for f in verdict.findings if f.check == "speed.arm"]
    assert set(first.details["metrics"]) >= {
        "headline_tok_s", "median_tok_s", "p10_tok_s", "mean_tok_s", "low_tok_s", "high_tok_s", "full_median_tok_s",
        "inclusive_median_tok_s", "wall_median_tok_s", "prefill_median_tok_s", "ttft_median_s", "gap_p50_s",
        "gap_p90_s", "gap_p99_s", "gap_max_s", "accepted_per_step", "acceptance", "acceptance_at_1",
        "acceptance_at_2", "acceptance_at_3", "step_ms",
    }  # fmt: skip
    assert None not in first.details["metrics"].values()
    assert "1.500 accepted a step, by position 0.800 / 0.500 / 0.200, 119.00 ms a step" in first.message
    beside = [f.arm for f in verdict.findings if f.check == "speed.reference"]
    assert beside == ["target#1", "target#2"]
    assert verdict.speed is not None
    assert {a.arm for a in verdict.speed.arms} == {"candidate#1", "candidate#2"}
    assert verdict.outcome is Outcome.ACCEPTED
