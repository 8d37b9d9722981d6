"""Words and ids that are forbidden: not said in drafted rows either."""

from __future__ import annotations

import pytest

from fixtures.session.caller import Caller

pytestmark = pytest.mark.endpoint


def test_bad_words_are_not_said(caller: Caller) -> None:
    """A word of the right answer is forbidden: the answer goes another way exactly there, also inside a draft."""
    for kind, word in (("sort", "purple"), ("copy", "concert")):
        prompt = caller.canary(kind)
        assert prompt.expect is not None
        assert word in prompt.expect
        said = caller.chat(prompt, bad_words=[word])
        assert said.error is None
        assert word not in said.content
        common = prompt.expect.index(word)
        assert said.content[: common - 1] == prompt.expect[: common - 1]


def test_only_allowed_ids_are_said(caller: Caller) -> None:
    """All ids of the answer allowed: the answer. All but one: the same up to there, and never that one."""
    prompt = caller.canary("sort")
    assert prompt.answer_ids is not None
    answer = prompt.answer_ids
    same = caller.chat(prompt, allowed_token_ids=sorted(set(answer)))
    assert (same.error, same.token_ids) == (None, answer)
    for place in range(1, caller.depth + 4):
        without = sorted(set(answer) - {answer[place]})
        said = caller.chat(prompt, allowed_token_ids=without)
        first = answer.index(answer[place])
        assert said.error is None
        assert said.token_ids[:first] == answer[:first]
        assert set(said.token_ids) <= set(without)
