"""What any sound answer to a request holds, on answers that are written here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fixtures.traffic.answer import Answer, Heard, read_answer
from fixtures.traffic.invariants import RULES
from fixtures.traffic.session import Request, Route

PROMPT = [3, 4, 5]
ROWS: list[Any] = [None, {"4": {"logprob": -0.1}}, {"5": {"logprob": -0.2}}]


def completion(options: dict[str, Any], **fields: Any) -> tuple[Request, Answer]:
    """A request for PROMPT and a whole answer of one choice with more fields."""
    request = Request(Route.COMPLETIONS, PROMPT, options)
    choice = {"index": 0, "text": "f", "finish_reason": "length", "token_ids": [6], **fields}
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    return request, read_answer(request, Heard(200, json.dumps(body)))


def said_about_the_prompt(options: dict[str, Any], **fields: Any) -> list[str]:
    """Everything that the rules about the prompt say."""
    request, answer = completion(options, **fields)
    return [words for rule in RULES["prompt"] for words in rule(request, answer, ())]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, None),
        ({"prompt_logprobs": 1}, ROWS),
        ({"echo": True}, None),
        ({"echo": True, "logprobs": 1}, ROWS),
    ],
    ids=["not-asked", "asked", "echo", "echo-with-logprobs"],
)
def test_log_probabilities_of_the_prompt_come_where_they_are_asked_for(
    options: dict[str, Any], rows: list[Any] | None
) -> None:
    assert said_about_the_prompt(options, prompt_logprobs=rows) == []


@pytest.mark.parametrize(
    ("options", "rows", "words"),
    [
        ({}, ROWS, "prompt_logprobs that nobody asked for"),
        ({"echo": True}, ROWS, "prompt_logprobs that nobody asked for"),
        ({"logprobs": 1}, ROWS, "prompt_logprobs that nobody asked for"),
        ({"prompt_logprobs": 1}, None, "prompt_logprobs were asked for, got none"),
        ({"echo": True, "logprobs": 1}, None, "prompt_logprobs were asked for, got none"),
        ({"echo": True, "logprobs": 1}, ROWS[:2], "prompt_logprobs of 2 places, the prompt has 3"),
        ({"prompt_logprobs": 1}, [ROWS[1], *ROWS[1:]], "place 0 is there, and nothing precedes it"),
        ({"prompt_logprobs": 1}, [None, ROWS[2], ROWS[2]], "place 1 does not hold the prompt's own id 4"),
    ],
)
def test_any_other_log_probabilities_of_the_prompt_are_said(
    options: dict[str, Any], rows: list[Any] | None, words: str
) -> None:
    said = said_about_the_prompt(options, prompt_logprobs=rows, prompt_token_ids=PROMPT)
    assert any(words in one for one in said), said
