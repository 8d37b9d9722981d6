"""Curves: what was said decides, what it cost is shown, and none of it reaches the headline."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from judge_rows import packet_rows, suite_of, transcript

from fixtures.client.transcript import Transcript, Usage
from fixtures.judge.curves import Level, concurrency_levels, judge_curves, ladder_steps, soak_of
from fixtures.judge.finding import Outcome
from fixtures.judge.verdict import derive

MINUTE_NS = 60_000_000_000


def needle(tokens: int, n: int, *, content: str | None = None, ttft_s: float = 0.05) -> Transcript:
    said = transcript(
        f"n{tokens}-{n}", ids=range(1, 11), order=n, suite="ladder", content=content or f"CODE-{tokens}-{n}"
    )
    later_ns = int((ttft_s - 0.05) * 1e9)
    times = tuple(t + later_ns for t in said.receipt_ns)
    return dataclasses.replace(
        said, usage=Usage(tokens, 10, 0), receipt_ns=times, done_ns=said.done_ns + later_ns
    )


def right(said: list[Transcript]) -> dict[tuple[str, str], str]:
    return {(t.suite, t.prompt_id): t.content for t in said}


def test_steps_are_powers_of_two_of_the_tokens_that_the_server_counted() -> None:
    said = [needle(tokens, n, ttft_s=tokens / 1000) for tokens in (130, 255, 256, 1040) for n in range(2)]
    steps = ladder_steps(said, right(said))
    assert [(s.tokens, s.prompts, s.right) for s in steps] == [(128, 4, 4), (256, 2, 2), (1024, 2, 2)]
    assert [s.prefill_tok_s for s in steps] == pytest.approx([1000, 1000, 1000])
    assert steps[1].ttft_s == pytest.approx(0.256)
    assert steps[1].decode_tok_s == pytest.approx(100)
    assert steps[1].decode_ids == 10


def test_a_needle_that_is_lost_at_one_length_rejects_and_names_it() -> None:
    said = [needle(tokens, n) for tokens in (256, 1024) for n in range(3)]
    expected = right(said)
    said[4] = needle(1024, 1, content="B!!!!")
    (found,) = judge_curves(said, [], [], [], expected, 0.015)
    assert (found.check, found.outcome, found.prompt_id) == ("curve.ladder", Outcome.REJECTED, "n1024-1")
    assert "1024: TTFT 50.0 ms" in found.message
    assert [s["right"] for s in found.details["steps"]] == [3, 2]


def at_once_level(at_once: int, first: int, gap_s: float) -> tuple[list[Transcript], dict[str, Any]]:
    """`at_once` answers that overlap completely."""
    said = [
        dataclasses.replace(transcript(f"p{n}", gap_s=gap_s, order=0, content=f"answer {n}"), order=first + n)
        for n in range(at_once)
    ]
    row = {"arm": "candidate#1", "suite": "suite", "at_once": at_once, "first_order": first, "count": at_once}
    return said, row


def test_a_level_says_what_all_get_and_what_one_gets() -> None:
    one, four = at_once_level(1, 0, 0.01), at_once_level(4, 1, 0.02)
    levels = [Level.from_row(one[1]), Level.from_row(four[1])]
    made = concurrency_levels([*one[0], *four[0]], levels, right([*one[0], *four[0]]))
    assert [(c.at_once, c.requests, c.right) for c in made] == [(1, 1, 1), (4, 4, 4)]
    assert [c.user_tok_s for c in made] == pytest.approx([100, 50])
    assert made[1].aggregate_tok_s == pytest.approx(4 * 120 / (0.05 + 119 * 0.02 + 0.001))


def test_an_answer_that_belongs_to_another_user_is_named() -> None:
    said, row = at_once_level(4, 0, 0.02)
    expected = right(said)
    said[2] = dataclasses.replace(said[2], content="answer 3")
    (found,) = judge_curves([], said, [], [Level.from_row(row)], expected, 0.015)
    assert (found.check, found.outcome) == ("curve.concurrency", Outcome.REJECTED)
    assert "first p2: it is the answer to p3" in found.message


def test_answers_outside_every_level_are_pending() -> None:
    said, row = at_once_level(4, 0, 0.02)
    (found,) = judge_curves([], said, [], [Level.from_row(row | {"count": 3})], right(said), 0.015)
    assert found.outcome is Outcome.PENDING
    assert "4 answers, but the levels hold 3" in found.message


def soak(minutes: int, loss: float = 0.0) -> list[Transcript]:
    """One round of five unequal prompts a minute; the rate falls by `loss` over the whole time."""
    rows = []
    for minute in range(minutes):
        slower = 1 - loss * minute / (minutes - 1)
        for n, t in enumerate(suite_of("candidate#1", prompts=5)):
            gap_ns = int(10_000_000 * (1 + n / 10) / slower)
            sent_ns = minute * MINUTE_NS + n * 5_000_000_000
            times = tuple(sent_ns + i * gap_ns for i in range(120))
            said = dataclasses.replace(
                t, sent_ns=sent_ns, receipt_ns=times, done_ns=times[-1], order=minute * 5 + n
            )
            rows.append(said)
    return rows


def test_a_steady_rate_does_not_drift_although_prompts_differ() -> None:
    found = soak_of(soak(12), {})
    assert found.drift == pytest.approx(0, abs=1e-6)
    assert found.minutes == pytest.approx(11.36, abs=0.1)


@pytest.mark.parametrize(
    ("loss", "outcome"), [(0.0, Outcome.ACCEPTED), (0.02, Outcome.ACCEPTED), (0.2, Outcome.REJECTED)]
)
def test_a_rate_that_falls_by_more_than_the_band_is_rejected_with_its_size(
    loss: float, outcome: Outcome
) -> None:
    said = soak(12, loss)
    (found,) = judge_curves([], [], said, [], right(said), 0.044)
    assert found.outcome is outcome
    assert found.details["drift"] == pytest.approx(-loss, abs=0.035)


def test_a_soak_of_one_round_shows_no_drift() -> None:
    said = suite_of("candidate#1", prompts=5)
    (found,) = judge_curves([], [], said, [], right(said), 0.044)
    assert (found.outcome, found.details["drift"]) == (Outcome.PENDING, None)


def test_a_request_that_failed_is_inconclusive_and_a_prompt_without_an_answer_is_pending() -> None:
    said = [needle(256, n) for n in range(3)]
    expected = right(said)
    broken = [dataclasses.replace(said[0], error="closed-early: the connection was closed"), *said[1:]]
    assert judge_curves(broken, [], [], [], expected, 0.015)[0].outcome is Outcome.INCONCLUSIVE
    assert judge_curves(said, [], [], [], {}, 0.015)[0].outcome is Outcome.PENDING


def test_curves_never_move_the_headline() -> None:
    rows = packet_rows()
    before = derive(rows)
    said = [needle(tokens, n) for tokens in (256, 1024) for n in range(3)]
    rows["suite"].append(
        {
            "suite": "ladder",
            "prompts": [{"id": t.prompt_id, "class": "needle", "expect": t.content} for t in said],
        }
    )
    rows["transcript"] += [t.to_row() | {"purpose": "ladder"} for t in said]
    after = derive(rows)
    assert after.headline_tok_s == before.headline_tok_s
    assert [f.outcome for f in after.findings if f.check == "curve.ladder"] == [Outcome.ACCEPTED]
    assert after.outcome is before.outcome is Outcome.ACCEPTED


def test_a_malformed_level_is_invalid_with_its_line() -> None:
    rows = packet_rows() | {
        "level": [{"arm": "candidate#1", "suite": "suite", "at_once": 0, "first_order": 0, "count": 4}]
    }
    found = [f for f in derive(rows).findings if f.check == "evidence.row"]
    assert found[0].message.startswith("rows/level.jsonl:1: ValueError: level of candidate#1")
