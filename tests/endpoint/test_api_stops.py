"""Stop ids and stop strings end an answer where they stand, wherever in a draft that is."""

from __future__ import annotations

import pytest

from fixtures.workload.caller import Caller, first_occurrences

pytestmark = pytest.mark.endpoint


def test_a_stop_id_ends_the_answer_wherever_in_a_draft_it_falls(caller: Caller) -> None:
    """Each id of an answer in turn: the answer ends with its first occurrence, the text without it."""
    prompt = caller.canary("json")
    assert prompt.answer_ids is not None
    before = caller.accepted()
    for place, token_id in first_occurrences(prompt.answer_ids[:-1]):
        said = caller.chat(prompt, stop_token_ids=[token_id])
        caller.expect.answer(
            f"for {prompt.id} with the stop id at {place}",
            said,
            ids=prompt.answer_ids[: place + 1],
            finish_reason="stop",
            completion_tokens=place + 1,
            text=caller.text_of(prompt.answer_ids[:place]),
        )
    drafted = caller.accepted() > before
    caller.expect.engaged(f"for {prompt.id} with stop ids", drafted, speculates=caller.speculates)


def shortest_with(caller: Caller, ids: tuple[int, ...], stop: str) -> int:
    """How many ids it takes until the text has the stop string in it."""
    return next(n for n in range(1, len(ids) + 1) if stop in caller.text_of(ids[:n]))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_stop_string_ends_the_answer_wherever_in_a_draft_it_falls(caller: Caller, stream: bool) -> None:
    """Three characters at every second place of an answer: text up to them, and the ids that it took to say them.

    A stop string is found after a whole step was decoded; ids of drafts behind it were never said.
    """
    prompt = caller.canary("sort")
    assert prompt.expect is not None
    assert prompt.answer_ids is not None
    before = caller.accepted()
    for start in range(1, len(prompt.expect) - 3, 2):
        stop = prompt.expect[start : start + 3]
        said = caller.chat(prompt, stream=stream, stop=[stop])
        needed = shortest_with(caller, prompt.answer_ids, stop)
        caller.expect.answer(
            f"for {prompt.id} with stop {stop!r}{'' if stream else ', not streamed'}",
            said,
            text=prompt.expect[: prompt.expect.index(stop)],
            finish_reason="stop",
            ids=prompt.answer_ids[:needed],
            completion_tokens=needed,
        )
    drafted = caller.accepted() > before
    caller.expect.engaged(f"for {prompt.id} with stop strings", drafted, speculates=caller.speculates)


def test_a_stop_string_is_part_of_the_text_where_that_is_asked_for(caller: Caller) -> None:
    """`include_stop_str_in_output`: the text ends with the stop string, not with the step that it was found in."""
    prompt = caller.canary("copy")
    assert prompt.expect is not None
    for start in range(0, 40, 5):
        stop = prompt.expect[start : start + 4]
        said = caller.chat(prompt, stop=[stop], include_stop_str_in_output=True)
        end = prompt.expect.index(stop) + len(stop)
        asked = f"for {prompt.id} up to and with stop {stop!r}"
        caller.expect.answer(asked, said, text=prompt.expect[:end], finish_reason="stop")


def test_of_two_stop_strings_in_one_draft_the_earlier_one_wins(caller: Caller) -> None:
    """Both are there after one step; one id at a time the first would have ended the answer alone."""
    prompt = caller.canary("sort")
    assert prompt.expect is not None
    for start in range(2, len(prompt.expect) - 6, 3):
        first, second = prompt.expect[start : start + 2], prompt.expect[start + 3 : start + 5]
        said = caller.chat(prompt, stop=[second, first])
        end = min(prompt.expect.index(first), prompt.expect.index(second))
        caller.expect.answer(
            f"for {prompt.id} with stops {second!r}, {first!r}", said, text=prompt.expect[:end]
        )


def test_a_stop_string_that_never_comes_changes_nothing(caller: Caller) -> None:
    """Text that is held back in case a stop string begins is delivered in the end, all of it."""
    prompt = caller.canary("copy")
    said = caller.chat(prompt, stop=["never says this", "~~~~~~~~~~"])
    asked = f"for {prompt.id} with stop strings that never come"
    caller.expect.answer(asked, said, ids=prompt.answer_ids, text=prompt.expect, finish_reason="stop")
