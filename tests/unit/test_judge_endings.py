"""Caps, stop strings and the reason that is given: each wrong ending rejects, and right ones are quiet."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.client.metrics import Counters
from fixtures.client.transcript import Transcript
from fixtures.judge.counters import CounterSpan
from fixtures.judge.endings import CHECKS, judge_endings
from fixtures.judge.finding import Outcome
from fixtures.judge.generation import judge_generation

WHOLE = Transcript(
    "s",
    "p",
    "copy",
    "target",
    {"messages": [], "max_tokens": 99},
    token_ids=(5, 6, 7, 8, 2),
    content="one two three",
    finish_reason="stop",
)


def said(**given: Any) -> Transcript:
    request = {"messages": [], "max_tokens": given.pop("cap", 99)} | given.pop("extra", {})
    return Transcript("s", "p", "copy", "candidate", request, **given)


def outcomes(*answers: Transcript) -> dict[str, Outcome]:
    return {f.check: f.outcome for f in judge_endings(answers, {("s", "p"): WHOLE})}


def test_right_endings_are_quiet() -> None:
    found = outcomes(
        said(cap=3, token_ids=(5, 6, 7), content="one", finish_reason="length"),
        said(cap=5, token_ids=(5, 6, 7, 8, 2), content="one two three", finish_reason="stop"),
        said(extra={"stop": [" t"]}, token_ids=(5, 6), content="one", finish_reason="stop"),
        said(extra={"stop": "hree"}, token_ids=(5, 6), content="one two t", finish_reason="stop"),
    )
    assert found == dict.fromkeys(CHECKS, Outcome.ACCEPTED)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        ("endpoint.max_tokens", {"cap": 3, "token_ids": (5, 6, 7, 8), "finish_reason": "length"}),
        ("endpoint.max_tokens", {"cap": 3, "token_ids": (5, 6), "finish_reason": "length"}),
        ("endpoint.finish_reason", {"cap": 5, "token_ids": (5, 6, 7, 8, 2), "finish_reason": "length"}),
        ("endpoint.finish_reason", {"cap": 3, "token_ids": (5, 6, 7), "finish_reason": "stop"}),
        (
            "endpoint.stop_string",
            {
                "extra": {"stop": [" t"]},
                "token_ids": (5, 6, 7),
                "content": "one two",
                "finish_reason": "stop",
            },
        ),
        (
            "endpoint.finish_reason",
            {"extra": {"stop": [" t"]}, "token_ids": (5, 6), "content": "one", "finish_reason": "length"},
        ),
    ],
    ids=["too many", "too few", "called cut", "called complete", "goes on", "reason at a stop"],
)
def test_each_wrong_ending_rejects_under_its_own_name(check: str, wrong: dict[str, Any]) -> None:
    found = outcomes(said(**wrong))
    assert found.pop(check) is Outcome.REJECTED
    assert set(found.values()) == {Outcome.ACCEPTED}


def test_without_the_targets_whole_answer_nothing_is_shown() -> None:
    found = judge_endings([said(cap=3, token_ids=(5, 6, 7), finish_reason="length")], {})
    assert {f.outcome for f in found} == {Outcome.PENDING}


def test_a_request_that_failed_is_inconclusive() -> None:
    found = outcomes(said(cap=3, error="connection: reset"))
    assert set(found.values()) == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("counted", "outcome"), [(5, Outcome.ACCEPTED), (9, Outcome.ACCEPTED), (4, Outcome.REJECTED)]
)
def test_more_ids_than_the_engine_generated_are_a_replay(counted: int, outcome: Outcome) -> None:
    span = CounterSpan(
        "target", Counters(generation_tokens=10), Counters(generation_tokens=10 + counted), "parity"
    )
    (finding,) = judge_generation([span], [("parity", WHOLE), ("canary", WHOLE)])
    assert (finding.check, finding.outcome) == ("counters.generated", outcome)


def test_a_server_without_the_counter_is_not_judged_by_it() -> None:
    assert not judge_generation(
        [CounterSpan("target", Counters(), Counters(), "parity")], [("parity", WHOLE)]
    )
