"""Other proposers that the engine has: drafts looked up in the text, and drafts of a model of their own."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.lanes.lane import Lane, Speculation
from fixtures.request import request_of
from fixtures.workload.caller import Caller

pytestmark = [pytest.mark.demonstration, pytest.mark.stress]

KINDS = ("copy", "sort", "json", "add", "phrase", "code")


def proposing(arms: Arms, lane: Lane, config: pytest.Config, method: Any, **extra: Any) -> Caller:
    """A caller of a server whose drafts come from another proposer."""
    speculation = Speculation(method=method, num_speculative_tokens=3, extra=extra)
    arm = make_arm(
        lane.model_copy(update={"speculation": speculation}), "dedicated", stack=request_of(config).stack
    )
    return Caller(arms.server(arm).endpoint, arm)


def ask_for_everything(caller: Caller) -> None:
    """Short answers and long ones, all greedy: each is target-only's, and drafts were accepted on the way."""
    before = caller.accepted()
    prompts = [caller.canary(kind) for kind in KINDS]
    prompts += [p for kind in ("repeat", "count", "sum") for p in caller.parity_prompts(kind)[:2]]
    for prompt in prompts:
        said = caller.chat(prompt)
        assert said.error is None, f"{prompt.id}: {said.error}"
        assert said.token_ids == prompt.answer_ids, f"{prompt.id}: {said.content[:60]!r}"
    accepted = caller.accepted() - before
    print(f"{caller.arm.label}: {accepted} drafts accepted")
    assert accepted > 50, "drafts have to be accepted for this to say anything"


def test_drafts_looked_up_in_the_text_change_nothing(
    arms: Arms, lane: Lane, pytestconfig: pytest.Config
) -> None:
    """N-gram: drafts of every length, and rounds without any, which is where recurrent states go wrong."""
    ask_for_everything(proposing(arms, lane, pytestconfig, "ngram", prompt_lookup_max=4, prompt_lookup_min=2))
