"""An answer beside the target's where their ids part: rounding, a wrong token, and what an option forbids."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fixtures.traffic.answer import Answer, Choice
from fixtures.traffic.comparison import compare
from fixtures.traffic.session import Request, Route

BOUND_NATS = 0.5
SAID, WANTED, LAST = 7, 8, 9


def whole(*ids: int) -> Answer:
    """A whole answer with one choice."""
    choice = Choice(token_ids=list(ids), text="x", finish_reason="length")
    return Answer(200, choices=(choice,), is_whole=True)


def words(options: dict[str, Any], said_nats: float, wanted_nats: float) -> str:
    """What is said about an answer that begins with SAID where the target says WANTED."""
    request = Request(Route.COMPLETIONS, [1, 2], {"temperature": 0, "max_tokens": 2, **options})
    rows = [{SAID: said_nats, WANTED: wanted_nats}, {LAST: -0.1}]
    found = compare(request, whole(SAID, LAST), whole(WANTED, LAST), {0: rows}, BOUND_NATS, 0, "alone")
    return "; ".join(problem.message for problem in found.problems)


@pytest.mark.parametrize("options", [{}, {"bad_words": ["x"]}, {"min_tokens": 2}, {"presence_penalty": 0.5}])
def test_what_rounding_can_turn_over_is_no_problem(options: dict[str, Any]) -> None:
    assert words(options, -0.9, -0.7) == ""
    assert words(options, -0.7, -0.9) == ""


@pytest.mark.parametrize("options", [{}, {"bad_words": ["x"]}, {"min_tokens": 2}, {"presence_penalty": 0.5}])
def test_a_token_far_below_the_targets_is_wrong(options: dict[str, Any]) -> None:
    assert "2.00 nats below (rounding: 0.50)" in words(options, -2.7, -0.7)


@pytest.mark.parametrize("name", ["bad_words", "min_tokens", "allowed_token_ids", "structured_outputs"])
def test_a_token_that_the_target_likes_better_and_passes_over_is_forbidden(name: str) -> None:
    """Plain scores favour what an option forbids: that the target does not say it shows that it may not be said."""
    said = words({name: True}, -0.1, -3.1)
    assert f"passes over {SAID}, which it likes 3.00 nats better: an option forbids" in said


def test_among_ids_that_an_option_leaves_none_of_the_best_is_left_open() -> None:
    """Scores that do not hold the two ids say nothing about them."""
    request = Request(Route.COMPLETIONS, [1, 2], {"temperature": 0, "bad_words": ["x"]})
    rows = [{SAID: -9.0}, {LAST: -0.1}]
    found = compare(request, whole(SAID, LAST), whole(WANTED, LAST), {0: rows}, BOUND_NATS, 0, "alone")
    assert (found.problems, found.unjudged_ids) == ([], 2)


DETAILS = {"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}


@pytest.mark.parametrize(
    ("mine", "its", "words"),
    [
        (DETAILS, DETAILS, ""),
        (
            {**DETAILS, "prompt_tokens_details": None},
            DETAILS,
            "usage without prompt_tokens_details.cached_tokens",
        ),
        (
            DETAILS,
            {"prompt_tokens": 2, "completion_tokens": 1},
            "usage with prompt_tokens_details.cached_tokens",
        ),
        ({"prompt_tokens": 2}, {"prompt_tokens": 2, "completion_tokens": None}, ""),
    ],
    ids=["equal", "left-out", "added", "null-is-left-out"],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_fields_of_usage_are_those_of_the_target(
    mine: dict[str, Any], its: dict[str, Any], words: str, temperature: float
) -> None:
    """A field that is left out where it is zero cannot be told from one that the server never fills."""
    request = Request(Route.COMPLETIONS, [1, 2], {"temperature": temperature, "max_tokens": 1})
    said, reference = (dataclasses.replace(whole(LAST), usage=usage) for usage in (mine, its))
    found = compare(request, said, reference, {}, BOUND_NATS, 0, "alone")
    assert [p.message.startswith(words) and p.check == "usage" for p in found.problems] == [True] * bool(
        words
    )
