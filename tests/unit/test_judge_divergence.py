"""A first divergence is a near tie, a wrong token or corruption; the bound between them is derived, not
chosen."""

from __future__ import annotations

import pytest

from fixtures.judge.divergence import Kind, classify, degeneration
from fixtures.judge.rounds import (
    STATE_PROMOTION,
    After,
    Round,
    locate,
    read_stream,
    read_trace,
    rounds_match,
)

TAIL = {100 + i: -25.0 for i in range(18)}
"""Eighteen tokens far down, so that twenty are known."""


@pytest.mark.parametrize("gap", [0.0, 0.0625, 0.25])
def test_gaps_that_rounding_can_turn_over_are_near_ties(gap: float) -> None:
    found = classify({1: -0.7, 2: -0.7 - gap} | TAIL, 1, 2)
    assert (found.kind, found.gap_nats) == (Kind.NEAR_TIE, pytest.approx(gap))
    assert "2 ulp of bfloat16 logits" in found.reason
    assert "model of unknown depth" in found.reason


def test_the_same_gap_is_a_wrong_token_for_float32_logits() -> None:
    assert classify({1: -0.7, 2: -0.7625} | TAIL, 1, 2, dtype="float32").kind is Kind.WRONG_TOKEN


def test_a_clear_preference_is_a_wrong_token() -> None:
    found = classify({1: -0.001, 2: -9.0} | TAIL, 1, 2)
    assert (found.kind, found.rank) == (Kind.WRONG_TOKEN, 2)


def test_a_token_outside_the_first_twenty_is_corruption() -> None:
    assert classify({1: -0.001, 3: -9.0} | TAIL, 1, 2).kind is Kind.CORRUPTION
    ranked = {1: -0.1} | {10 + i: -5.0 - i / 10 for i in range(24)}
    assert classify(ranked, 1, 33).kind is Kind.CORRUPTION


def test_degenerate_text_is_corruption_even_at_a_tie() -> None:
    assert classify({1: -0.7, 2: -0.7} | TAIL, 1, 2, degenerate="loop").kind is Kind.CORRUPTION


def test_an_answer_that_is_cut_off_against_a_clear_preference_is_corruption() -> None:
    assert classify({1: -0.01, 2: -8.0} | TAIL, 1, 2, ended_early=True).kind is Kind.CORRUPTION
    assert classify({1: -0.7, 2: -0.7} | TAIL, 1, 2, ended_early=True).kind is Kind.NEAR_TIE


@pytest.mark.parametrize(
    "logprobs",
    [{1: -0.1, 3: -2.0}, {2: -0.1} | TAIL, {1: -9.0, 2: -0.1} | TAIL],
    ids=["too few to say", "target's token unknown", "scored anew, the target agrees with the candidate"],
)
def test_what_the_scores_cannot_say_stays_unscored(logprobs: dict[int, float]) -> None:
    assert classify(logprobs, 1, 2).kind is Kind.UNSCORED


def test_the_size_of_the_logits_and_the_depth_of_the_model_widen_the_bound() -> None:
    logprobs = {1: -0.7, 2: -1.9} | TAIL
    assert classify(logprobs, 1, 2).kind is Kind.WRONG_TOKEN
    assert classify(logprobs, 1, 2, logit_magnitude=40.0).kind is Kind.NEAR_TIE
    assert classify(logprobs, 1, 2, logit_magnitude=20.0).kind is Kind.WRONG_TOKEN
    found = classify(logprobs, 1, 2, logit_magnitude=20.0, layers=24)
    assert found.kind is Kind.NEAR_TIE
    assert (found.logit_magnitude, found.magnitude_from) == (20.0, "as the lane says")


@pytest.mark.parametrize("bad", [{1: float("nan"), 2: -1.0}, {1: 0.5, 2: -1.0}])
def test_numbers_that_are_no_log_probabilities_are_refused(bad: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="not a log-probability"):
        classify(bad, 1, 2)


def test_a_loop_is_degenerate_unless_the_target_loops_too() -> None:
    start = list(range(30, 70))
    assert degeneration([*start, *[0] * 40], "", start, "") == "a block of 1 id(s) repeats at the end"
    assert (
        degeneration([*start, *[5, 6, 7] * 10, 2], "", start, "") == "a block of 3 id(s) repeats at the end"
    )
    assert degeneration([*start, *[5, 6, 7] * 10, 2], "", [*start, *[5, 6, 7] * 12, 2], "") is None
    assert degeneration([*start, *[6, 7, 5] * 9, 2], "", [*start, *[5, 6, 7] * 8, 2], "") is None
    assert degeneration([*start, *[5, 6, 7] * 10], "", [*start, *[8, 9] * 12], "") is None
    assert degeneration([*start, *[5, 6, 7] * 10], "", [*start, *[8, 9] * 12, *start], "") is not None
    looping = [*start, *[5, 6, 7] * 10]
    assert degeneration(looping, "", start, "", continued=[40, *[6, 7, 5] * 9]) is None
    assert degeneration(looping, "", start, "", continued=[40, 41, 42]) is not None
    assert degeneration(start, "fine\n\ttext", start, "fine") is None


def test_control_characters_are_degenerate() -> None:
    assert degeneration([1], "B\x00", [1], "B") == "character U+0000 at 1"
    assert degeneration([1], "B\ufffd", [1], "B") == "character U+FFFD at 1"
    assert degeneration([1], "\ufffd", [1], "\ufffd") is None


ROUNDS = [Round(3, 3), Round(3, 1), Round(3, 0), Round(0, 0), Round(3, 2)]
"""Token 0 from the prefill, then 4 + 2 + 1 + 1 + 3 tokens."""


@pytest.mark.parametrize(
    ("position", "place"),
    [
        (0, (-1, 0, None)),
        (1, (0, 0, After.PREFILL)),
        (4, (0, 3, After.PREFILL)),
        (5, (1, 0, After.ACCEPT_ALL)),
        (7, (2, 0, After.PARTIAL)),
        (8, (3, 0, After.REJECT)),
        (9, (4, 0, After.NO_DRAFT)),
        (11, (4, 2, After.NO_DRAFT)),
    ],
)
def test_a_token_is_placed_in_its_verifier_round(position: int, place: tuple[int, int, After | None]) -> None:
    found = locate(position, ROUNDS)
    assert found is not None
    assert (found.round_index, found.row, found.after) == place


@pytest.mark.parametrize(
    ("rounds", "position", "points_at"),
    [
        ([Round(3, 2), Round(0, 0), Round(0, 0), Round(3, 1)], 4, STATE_PROMOTION),
        ([Round(3, 2), Round(0, 0), Round(0, 0), Round(3, 1)], 5, STATE_PROMOTION),
        ([Round(3, 2), Round(0, 0), Round(0, 0), Round(3, 1)], 7, STATE_PROMOTION),
        ([Round(3, 2), Round(0, 0)], 3, "state between packed verifier rows"),
        ([Round(3, 0), Round(0, 0)], 2, "commit bookkeeping after a rejection"),
        ([Round(0, 0), Round(3, 1)], 2, "state column read by a round after one without drafts"),
        ([Round(3, 2), Round(3, 2)], 4, "commit bookkeeping after a rejection"),
    ],
)
def test_a_round_without_drafts_after_an_accepting_one_points_at_state_promotion(
    rounds: list[Round], position: int, points_at: str
) -> None:
    """Only where the accepted state had to be carried over: not after a full reject, not without such a round."""
    found = locate(position, rounds)
    assert found is not None
    assert found.points_at == points_at


def test_an_earlier_round_that_needed_promotion_stays_a_suspect() -> None:
    found = locate(6, [Round(3, 2), Round(0, 0), Round(3, 0), Round(3, 0)])
    assert found is not None
    assert found.points_at == f"commit bookkeeping after a rejection; or, since round 1, {STATE_PROMOTION}"


def test_a_token_beyond_the_recorded_rounds_is_not_placed() -> None:
    assert locate(12, ROUNDS) is None


def test_a_round_that_accepts_more_than_it_drafted_is_refused() -> None:
    with pytest.raises(ValueError, match="more drafts than"):
        locate(1, [Round(2, 3)])


ANSWER = (7, 8, 9, 10, 11, 12, 13)


def traced(request: str, *rounds: tuple[list[int], list[int], list[int]]) -> list[dict[str, object]]:
    """Lines of a round trace: per round drafts, the rows' own choices, and what was emitted."""
    lines, first = [], 0
    for drafts, argmax, emitted in rounds:
        lines.append(
            {
                "request": request,
                "first_output_token": first,
                "drafts": drafts,
                "target_argmax": argmax,
                "accepted": len(emitted) - 1,
                "emitted": emitted,
            }
        )
        first += len(emitted)
    return lines


TRACE = [
    *traced("a", ([], [1], [1])),
    *traced(
        "b",
        ([], [7], [7]),
        ([8, 9, 0], [8, 9, 10, 5], [8, 9, 10]),
        ([0, 0, 0], [11, 1, 1, 1], [11]),
        ([12, 13, 2], [12, 13, 2, 99], [12, 13, 2, 99]),
    ),
]


def test_a_trace_gives_the_rounds_of_the_request_that_said_this_and_what_its_rows_chose() -> None:
    found = read_trace(TRACE, ANSWER)
    assert found is not None
    assert found.rounds == (Round(3, 2), Round(3, 0), Round(3, 3)), (
        "the engine's own end may lie behind the answer's"
    )
    assert [found.chosen[i] for i in range(7)] == list(ANSWER)
    assert found.source == "trace"


def test_a_trace_without_this_answer_gives_nothing() -> None:
    assert read_trace(TRACE, (7, 8, 9, 10, 11, 12, 14)) is None
    assert read_trace([{"cut_after_lines": 5}], ANSWER) is None
    assert read_trace(TRACE[:-1], ANSWER) is None, "cut before the answer's end"


def test_a_stream_gives_the_rounds_where_each_event_is_a_round() -> None:
    times = (10, 20, 20, 20, 30, 40, 40)
    found = read_stream(times, drafts=3)
    assert found is not None
    assert found.rounds == (Round(3, 2), Round(3, 0), Round(3, 1))
    assert rounds_match([times, (5, 6)], counted_rounds=4)
    assert not rounds_match([times], counted_rounds=4), "two rounds that came in one read"


@pytest.mark.parametrize("times", [(), (10, 10, 20), (10, 20, 20, 20, 20, 20)])
def test_a_stream_that_cannot_be_rounds_gives_nothing(times: tuple[int, ...]) -> None:
    assert read_stream(times, drafts=3) is None
