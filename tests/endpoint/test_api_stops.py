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
        assert (said.error, said.token_ids) == (None, prompt.answer_ids[: place + 1]), f"stop id at {place}"
        assert said.finish_reason == "stop"
        assert said.usage.completion_tokens == place + 1
        assert said.content == caller.text_of(prompt.answer_ids[:place]), f"stop id at {place}"
    assert (caller.accepted() > before) == caller.speculates, (
        "drafts have to be accepted for this to say anything"
    )


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
        assert (said.error, said.content) == (None, prompt.expect[: prompt.expect.index(stop)]), repr(stop)
        assert said.finish_reason == "stop"
        needed = shortest_with(caller, prompt.answer_ids, stop)
        assert said.token_ids == prompt.answer_ids[:needed], f"stop {stop!r}"
        assert said.usage.completion_tokens == needed, f"stop {stop!r}"
    assert (caller.accepted() > before) == caller.speculates, (
        "drafts have to be accepted for this to say anything"
    )


def test_a_stop_string_is_part_of_the_text_where_that_is_asked_for(caller: Caller) -> None:
    """`include_stop_str_in_output`: the text ends with the stop string, not with the step that it was found in."""
    prompt = caller.canary("copy")
    assert prompt.expect is not None
    for start in range(0, 40, 5):
        stop = prompt.expect[start : start + 4]
        said = caller.chat(prompt, stop=[stop], include_stop_str_in_output=True)
        end = prompt.expect.index(stop) + len(stop)
        assert (said.error, said.content, said.finish_reason) == (None, prompt.expect[:end], "stop"), repr(
            stop
        )


def test_of_two_stop_strings_in_one_draft_the_earlier_one_wins(caller: Caller) -> None:
    """Both are there after one step; one id at a time the first would have ended the answer alone."""
    prompt = caller.canary("sort")
    assert prompt.expect is not None
    for start in range(2, len(prompt.expect) - 6, 3):
        first, second = prompt.expect[start : start + 2], prompt.expect[start + 3 : start + 5]
        said = caller.chat(prompt, stop=[second, first])
        end = min(prompt.expect.index(first), prompt.expect.index(second))
        assert (said.error, said.content) == (None, prompt.expect[:end]), (first, second)


def test_a_stop_string_that_never_comes_changes_nothing(caller: Caller) -> None:
    """Text that is held back in case a stop string begins is delivered in the end, all of it."""
    prompt = caller.canary("copy")
    said = caller.chat(prompt, stop=["never says this", "~~~~~~~~~~"])
    assert (said.error, said.token_ids, said.content) == (None, prompt.answer_ids, prompt.expect)
    assert said.finish_reason == "stop"
