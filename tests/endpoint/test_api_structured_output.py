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
    caller.expect.answer(
        f"for {prompt.id} under a schema that it fits{'' if stream else ', not streamed'}",
        said,
        text=prompt.expect,
        ids=prompt.answer_ids,
        finish_reason="stop",
        completion_tokens=len(said.token_ids),
    )


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_schema_that_the_answer_does_not_fit_is_obeyed(caller: Caller) -> None:
    """The model would say `widgets`; the schema allows other units only."""
    for units in (["bricks"], ["bottles", "coins"]):
        said = ask_in_json(caller, answer_schema(units))
        asked = f"for the JSON canary under a schema with the units {units}"
        caller.expect.answer(asked, said, finish_reason="stop")
        answer = json.loads(said.content)
        caller.expect.equal(asked, "keys", ["answer", "unit"], sorted(answer))
        caller.expect.that(answer["unit"] in units, asked, f"one of the units {units}", answer["unit"])
        caller.expect.equal(asked, "the model's own number", 26, answer["answer"])


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_any_json_object_is_json(caller: Caller) -> None:
    """`json_object` on a prompt whose free answer is JSON: that answer."""
    prompt = caller.canary("json")
    said = caller.chat(prompt, response_format={"type": "json_object"})
    asked = f"for {prompt.id} as any JSON object"
    caller.expect.answer(asked, said, text=prompt.expect, ids=prompt.answer_ids)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_an_expression_and_a_choice_are_obeyed(caller: Caller) -> None:
    """A regular expression that the answer fits, one that it does not, and one of several fixed texts."""
    add, sort = caller.canary("add"), caller.canary("sort")
    fits = caller.chat(add, structured_outputs={"regex": "[0-9]{2}"})
    asked = f"for {add.id} under an expression that it fits"
    caller.expect.answer(asked, fits, text=add.expect, ids=add.answer_ids)
    other = caller.chat(add, structured_outputs={"regex": "<[a-f]{9}>"})
    asked = f"for {add.id} under the expression <[a-f]{{9}}>"
    caller.expect.answer(asked, other)
    fitting = re.fullmatch("<[a-f]{9}>", other.content) is not None
    caller.expect.that(fitting, asked, "a text that it fits", other.content)
    choices = ["purple, white, green, blue", "red and nothing else but red"]
    chosen = caller.chat(sort, structured_outputs={"choice": choices})
    asked = f"for {sort.id} with a choice of two texts"
    caller.expect.answer(asked, chosen)
    caller.expect.that(chosen.content in choices, asked, f"one of {choices}", chosen.content)


@pytest.mark.parametrize("arm", ["target"], indirect=True)
def test_a_cap_cuts_a_structured_answer_exactly(caller: Caller) -> None:
    """Under a grammar too, each cap gives the target's first ids and no more."""
    prompt = caller.canary("json")
    assert prompt.answer_ids is not None
    for cap in range(1, 2 * caller.depth + 2):
        said = ask_in_json(caller, answer_schema(), max_tokens=cap)
        asked = f"for {prompt.id} under a schema with max_tokens {cap}"
        caller.expect.answer(asked, said, ids=prompt.answer_ids[:cap], finish_reason="length")
