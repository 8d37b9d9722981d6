"""Every way in which a measurement was once not cold, not counted or not complete is found, and named."""

from __future__ import annotations

import dataclasses

import pytest
from judge_rows import span, suite_of, transcript

from fixtures.client.metrics import Counters
from fixtures.client.transcript import Transcript, Usage
from fixtures.judge.counters import CounterSpan
from fixtures.judge.finding import Outcome
from fixtures.judge.freshness import judge_freshness

ARM = "candidate#1"
SUITES = {"suite": [f"p{n}" for n in range(10)]}


def outcomes(rows: list[Transcript], spans: list[CounterSpan] | None = None) -> dict[str, Outcome]:
    found = judge_freshness(rows, [span(ARM)] if spans is None else spans, SUITES)
    return {f.check.removeprefix("freshness."): f.outcome for f in found if f.outcome is not Outcome.ACCEPTED}


def with_first(**changes: object) -> list[Transcript]:
    rows = suite_of(ARM)
    return [dataclasses.replace(rows[0], **changes), *rows[1:]]


def test_a_cold_complete_suite_is_accepted_by_every_check() -> None:
    found = judge_freshness(suite_of(ARM), [span(ARM)], SUITES)
    assert len(found) == 11
    assert {f.outcome for f in found} == {Outcome.ACCEPTED}


FAULTY = {
    "warm": (with_first(usage=Usage(40, 120, 7)), "cached_tokens", Outcome.REJECTED),
    "cached tokens unsaid": (with_first(usage=Usage(40, 120, None)), "cached_tokens", Outcome.PENDING),
    "chunks for tokens": (with_first(usage=Usage(40, 202, 0)), "ids_counted", Outcome.REJECTED),
    "usage null": (with_first(usage=Usage(40, None, 0)), "ids_counted", Outcome.PENDING),
    "no times": (with_first(receipt_ns=()), "times_recorded", Outcome.PENDING),
    "time runs back": (
        with_first(receipt_ns=(2_000_000_000, *suite_of(ARM)[0].receipt_ns[1:])),
        "times_recorded",
        Outcome.INVALID,
    ),
    "closed early": (with_first(saw_done=False), "complete", Outcome.INCONCLUSIVE),
    "device lost": (with_first(error="server closed the connection"), "complete", Outcome.INCONCLUSIVE),
    "server error": (with_first(http_status=500), "complete", Outcome.INCONCLUSIVE),
    "cut below the cap": (
        with_first(finish_reason="length", request=suite_of(ARM)[0].request | {"max_tokens": 128}),
        "cap",
        Outcome.PENDING,
    ),
    "no finish reason": (with_first(finish_reason=None), "complete", Outcome.INCONCLUSIVE),
    "ignore_eos": (
        with_first(request=suite_of(ARM)[0].request | {"ignore_eos": True}),
        "natural_end",
        Outcome.REJECTED,
    ),
    "min_tokens": (
        with_first(request=suite_of(ARM)[0].request | {"min_tokens": 100}),
        "natural_end",
        Outcome.REJECTED,
    ),
    "prompt repeated": (
        with_first(request=suite_of(ARM)[1].request),
        "repeated_prompt",
        Outcome.REJECTED,
    ),
    "answer replayed": (
        with_first(token_ids=suite_of(ARM)[1].token_ids),
        "repeated_answer",
        Outcome.PENDING,
    ),
    "two at once": (with_first(done_ns=suite_of(ARM)[1].sent_ns + 1), "one_at_a_time", Outcome.REJECTED),
    "subset": (suite_of(ARM)[1:], "full_suite", Outcome.PENDING),
    "foreign prompt": ([*suite_of(ARM), transcript("extra", order=99)], "full_suite", Outcome.REJECTED),
}


@pytest.mark.parametrize("case", FAULTY)
def test_one_faulty_request_is_found_by_the_check_meant_for_it(case: str) -> None:
    rows, check, outcome = FAULTY[case]
    assert outcomes(rows) == {check: outcome}


def test_an_answer_that_is_cut_at_the_cap_is_whole_enough() -> None:
    assert "cap" not in outcomes(with_first(finish_reason="length"))


def test_no_ids_are_pending_however_many_events_there_were() -> None:
    found = outcomes(with_first(token_ids=(), receipt_ns=(), usage=Usage(40, 512, 0), event_count=202))
    assert found == {"ids_counted": Outcome.PENDING, "times_recorded": Outcome.PENDING}


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (span(ARM, prefix_cache_hits=1280), Outcome.REJECTED),
        (span(ARM, prefix_cache_hits=None), Outcome.PENDING),
        (dataclasses.replace(span(ARM), before=Counters(prefix_cache_hits=9)), Outcome.INCONCLUSIVE),
    ],
    ids=["hits", "not counted", "another server"],
)
def test_the_servers_own_counters_have_to_say_cold_too(after: CounterSpan, outcome: Outcome) -> None:
    assert outcomes(suite_of(ARM), [after]) == {"prefix_cache_counters": outcome}


def test_counters_of_another_arm_do_not_count() -> None:
    assert outcomes(suite_of(ARM), [span("candidate#2")]) == {"prefix_cache_counters": Outcome.PENDING}


def test_nothing_measured_shows_nothing() -> None:
    """No finding, and what asks for coldness without a finding is pending."""
    assert judge_freshness([], [], {}) == []


def test_the_finding_names_the_first_prompt_of_the_worst_kind() -> None:
    rows = suite_of(ARM)
    rows[2] = dataclasses.replace(rows[2], usage=Usage(40, 120, None))
    rows[5] = dataclasses.replace(rows[5], usage=Usage(40, 120, 128))
    found = next(
        f for f in judge_freshness(rows, [span(ARM)], SUITES) if f.check == "freshness.cached_tokens"
    )
    assert (found.outcome, found.prompt_id) == (Outcome.REJECTED, "p5")
    assert "128 cached tokens" in found.message
    assert [f["prompt_id"] for f in found.details["faults"]] == ["p2", "p5"]


def test_a_prompt_that_a_warm_up_asked_before_is_warm() -> None:
    rows = [
        dataclasses.replace(t, sent_ns=t.sent_ns + 10**12, done_ns=t.done_ns + 10**12) for t in suite_of(ARM)
    ]
    rows = [dataclasses.replace(t, receipt_ns=tuple(n + 10**12 for n in t.receipt_ns)) for t in rows]
    before = dataclasses.replace(suite_of(ARM)[4], suite="warmup", prompt_id="w0")
    after = dataclasses.replace(before, sent_ns=10**15)
    elsewhere = dataclasses.replace(before, arm="candidate#2")

    def repeated(*others: Transcript) -> Outcome:
        found = judge_freshness(rows, [span(ARM)], SUITES, others)
        return next(f.outcome for f in found if f.check == "freshness.repeated_prompt")

    assert repeated(before) is Outcome.REJECTED
    assert repeated(after, elsewhere) is Outcome.ACCEPTED
