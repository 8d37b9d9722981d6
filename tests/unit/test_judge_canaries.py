"""A canary's failure has a signature, and one right answer says nothing about the others."""

from __future__ import annotations

import dataclasses

import pytest
from judge_rows import transcript

from fixtures.client.transcript import Transcript
from fixtures.judge.canaries import Signature, classify_answer, judge_canaries
from fixtures.judge.finding import Outcome

COLOURS = "blue, green, red, yellow"
SUM = '{"answer": 42, "unit": "widgets"}'
EXPECTED = {("canaries", "colours"): COLOURS}


@pytest.mark.parametrize(
    ("expected", "answer", "signature"),
    [
        (COLOURS, COLOURS, Signature.RIGHT),
        (COLOURS, f" {COLOURS}\n", Signature.RIGHT),
        (COLOURS, "", Signature.EMPTY),
        (COLOURS, "blue, green, red", Signature.TRUNCATED),
        (COLOURS, "blue", Signature.TRUNCATED),
        (COLOURS, f"{COLOURS}, blue, green, red, yellow", Signature.DOUBLED),
        (COLOURS, "blue, green, green, red, yellow", Signature.DOUBLED),
        (COLOURS, "blue, green, blue, green, red, yellow", Signature.DOUBLED),
        (COLOURS, "B!!!!!!!!!!!!!!!!!", Signature.GARBAGE),
        (COLOURS, "blue, gr\x00en, red, yellow", Signature.GARBAGE),
        (COLOURS, "0 0 0 0 1 9 9 0 0 0", Signature.GARBAGE),
        (COLOURS, "blue, green, yellow, red", Signature.WRONG),
        (SUM, '{"answer": 41, "unit": "widgets"}', Signature.WRONG_FIELD),
        (SUM, '{"unit": "widgets"}', Signature.WRONG_FIELD),
        (SUM, '{"answer": 42', Signature.TRUNCATED),
    ],
)
def test_the_failure_signature_is_named(expected: str, answer: str, signature: Signature) -> None:
    assert classify_answer(expected, answer) is signature


def test_the_right_text_in_the_other_channel_is_not_right() -> None:
    assert classify_answer(COLOURS, "", COLOURS) is Signature.WRONG_CHANNEL


def repeats(*texts: str) -> list[Transcript]:
    return [transcript("colours", suite="canaries", content=text, order=n) for n, text in enumerate(texts)]


def test_all_repeats_right_is_accepted_with_the_count_and_the_hashes() -> None:
    [found] = judge_canaries(repeats(*[COLOURS] * 64), EXPECTED, repeats=64)
    assert found.outcome is Outcome.ACCEPTED
    assert "64 of 64 right" in found.message
    assert list(found.details["output_sha256"].values()) == [64]


def test_nine_truncations_of_sixty_four_are_rejected() -> None:
    [found] = judge_canaries(repeats(*[COLOURS] * 55, *["blue, green, red"] * 9), EXPECTED, repeats=64)
    assert found.outcome is Outcome.REJECTED
    assert "55 of 64 right; 9 truncated" in found.message
    assert sorted(found.details["output_sha256"].values()) == [9, 55]


def test_too_few_repeats_are_pending() -> None:
    [found] = judge_canaries(repeats(COLOURS), EXPECTED, repeats=32)
    assert found.outcome is Outcome.PENDING


def test_a_request_that_failed_is_infrastructure() -> None:
    rows = [dataclasses.replace(t, error="connection refused", content="") for t in repeats(COLOURS)]
    [found] = judge_canaries(rows, EXPECTED)
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_canary_without_an_expected_answer_is_pending_by_name() -> None:
    [found] = judge_canaries([transcript("unknown", suite="canaries")], EXPECTED)
    assert (found.outcome, found.prompt_id) == (Outcome.PENDING, "unknown")


def test_no_canary_is_pending() -> None:
    assert [f.outcome for f in judge_canaries([], EXPECTED)] == [Outcome.PENDING]


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="known: content, reasoning"):
        judge_canaries(repeats(COLOURS), EXPECTED, channel="thoughts")
