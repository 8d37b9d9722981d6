"""Structured output: the constraint is obeyed, and changes nothing where the answer fits it.

With drafts: `tests/demonstration/test_engine_survival.py`, on a server of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fixtures.client.transcript import Transcript
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.endpoint


def answer_schema(units: list[str] | None = None) -> dict[str, Any]:
    """What the JSON canary answers, with any unit or one of `units`."""
    unit: dict[str, Any] = {"type": "string"} | ({"enum": units} if units else {})
    return {
        "type": "object",
        "properties": {"answer": {"type": "integer"}, "unit": unit},
        "required": ["answer", "unit"],
        "additionalProperties": False,
    }


def ask_in_json(caller: Caller, schema: dict[str, Any], **extra: Any) -> Transcript:
    """The JSON canary under a schema."""
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    return caller.chat(caller.canary("json"), response_format=form, **extra)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_schema_that_the_answer_fits_changes_nothing(caller: Caller, stream: bool) -> None:
    """The same ids as without a schema."""
    prompt = caller.canary("json")
    said = ask_in_json(caller, answer_schema(), stream=stream)
    assert (said.error, said.content, said.token_ids) == (None, prompt.expect, prompt.answer_ids)
    assert (said.finish_reason, said.usage.completion_tokens) == ("stop", len(said.token_ids))


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_schema_that_the_answer_does_not_fit_is_obeyed(caller: Caller) -> None:
    """The model would say `widgets`; the schema allows other units only."""
    for units in (["bricks"], ["bottles", "coins"]):
        said = ask_in_json(caller, answer_schema(units))
        assert said.error is None
        answer = json.loads(said.content)
        assert set(answer) == {"answer", "unit"}
        assert answer["unit"] in units
        assert answer["answer"] == 26, "what the schema leaves free is still the model's answer"
        assert said.finish_reason == "stop"


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_any_json_object_is_json(caller: Caller) -> None:
    """`json_object` on a prompt whose free answer is JSON: that answer."""
    prompt = caller.canary("json")
    said = caller.chat(prompt, response_format={"type": "json_object"})
    assert (said.error, said.content, said.token_ids) == (None, prompt.expect, prompt.answer_ids)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_an_expression_and_a_choice_are_obeyed(caller: Caller) -> None:
    """A regular expression that the answer fits, one that it does not, and one of several fixed texts."""
    add, sort = caller.canary("add"), caller.canary("sort")
    fits = caller.chat(add, structured_outputs={"regex": "[0-9]{2}"})
    assert (fits.error, fits.content, fits.token_ids) == (None, add.expect, add.answer_ids)
    other = caller.chat(add, structured_outputs={"regex": "<[a-f]{9}>"})
    assert other.error is None
    assert re.fullmatch("<[a-f]{9}>", other.content), other.content
    choices = ["purple, white, green, blue", "red and nothing else but red"]
    chosen = caller.chat(sort, structured_outputs={"choice": choices})
    assert chosen.error is None
    assert chosen.content in choices


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_cap_cuts_a_structured_answer_exactly(caller: Caller) -> None:
    """Under a grammar too, each cap gives the target's first ids and no more."""
    prompt = caller.canary("json")
    assert prompt.answer_ids is not None
    for cap in range(1, 2 * caller.depth + 2):
        said = ask_in_json(caller, answer_schema(), max_tokens=cap)
        assert (said.error, said.token_ids, said.finish_reason) == (None, prompt.answer_ids[:cap], "length")
