"""The runner's oracles against values worked out by hand, and what the scheduler's and the batch's checks see."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn.operations import ContractViolation
from fixtures.runner import oracle
from fixtures.runner.operations import Delivered, Limits, Sampling, Scheduled, Verified
from fixtures.runner.serving import Asked, serve

INF = float("inf")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Sampling(), [2.0, -1.0, 4.0, 0.5]),
        (Sampling(presence=0.5), [2.0, -1.5, 3.5, 0.5]),
        (Sampling(frequency=0.5), [2.0, -1.5, 3.0, 0.5]),
        (Sampling(repetition=2.0), [1.0, -2.0, 2.0, 0.5]),
        (Sampling(allowed=(0, 3)), [2.0, -INF, -INF, 0.5]),
        (Sampling(bad=(2,)), [2.0, -1.0, -INF, 0.5]),
    ],
)
def test_penalties_and_masks_are_those_of_the_definition(how, expected):
    """Prompt [0], output [1, 2, 2]: presence once, frequency by count, repetition for prompt and output."""
    got = oracle.processed(torch.tensor([2.0, -1.0, 4.0, 0.5]), [0], [1, 2, 2], how)
    assert got.tolist() == expected


def test_a_round_emits_agreeing_drafts_and_one_token():
    logits = torch.eye(4)[[1, 2, 3, 0]]
    assert oracle.emitted(Verified((0,), (), (1, 2, 3)), logits) == [1, 2, 3, 0]
    assert oracle.emitted(Verified((0,), (), (1, 0, 3)), logits) == [1, 2]
    assert oracle.emitted(Verified((0,), (), ()), logits[:1]) == [1]


def test_a_draft_that_was_said_before_is_penalised_in_the_next_row():
    logits = torch.tensor([[0.0, 3.0, 2.5], [0.0, 3.0, 2.5]])
    assert oracle.emitted(Verified((0,), (), (1,), Sampling(presence=1.0)), logits) == [1, 2]


@pytest.mark.parametrize(
    ("new", "limits", "room", "expected"),
    [
        ([5, 6, 7], Limits(9), 99, Delivered((5, 6, 7), None)),
        ([5, 6, 7], Limits(4), 99, Delivered((5, 6), "length")),
        ([5, 6, 7], Limits(9), 3, Delivered((5,), "length")),
        ([5, 9, 7], Limits(9, 9), 99, Delivered((5, 9), "stop")),
        ([5, 9, 7], Limits(4, 9), 99, Delivered((5, 9), "stop")),
        ([5, 8, 7], Limits(9, 9, (8,)), 99, Delivered((5, 8), "stop")),
    ],
)
def test_an_answer_is_cut_at_its_first_end(new, limits, room, expected):
    """Two tokens have been said before."""
    assert oracle.delivered([1, 2], new, limits, room) == expected


class OneRequest:
    """A right scheduler of a single request, to be made wrong by parts."""

    def __init__(self, wrong=""):
        self.wrong, self.said, self.computed, self.drafts = wrong, [], 0, ()
        self.free_blocks = 9

    def add(self, name, prompt, limits):
        self.name, self.prompt, self.limits, self.over = name, list(prompt), limits, False

    def schedule(self):
        if self.over:
            self.free_blocks = 9 if self.wrong != "keeps a block" else 8
            return []
        self.free_blocks = 5
        behind = len(self.prompt) + len(self.said) - self.computed
        computed = self.computed + (self.wrong == "computed" and bool(self.said))
        slots = (1, 2, 3, 4) if self.wrong != "null slot" else (0, 2, 3, 4)
        return [Scheduled(self.name, computed, behind + len(self.drafts), self.drafts, slots, False)]

    def deliver(self, sampled):
        new = sampled[self.name]
        done = oracle.delivered(self.said, new, self.limits, 64 - len(self.prompt))
        if self.wrong == "bonus dropped" and len(new) == 4:
            done = Delivered(done.tokens[:3], None)
        if self.wrong == "overshoot" and done.reason == "length":
            done = Delivered(tuple(new), "length")
        if self.wrong == "reason" and done.reason:
            done = Delivered(done.tokens, "abort")
        self.said += done.tokens
        self.over = done.reason is not None
        self.computed = len(self.prompt) + len(self.said) - 1
        return {self.name: done}

    def propose(self, drafts):
        self.drafts = tuple(drafts.get(self.name, ()))


def served(wrong):
    asked = [Asked((1, 2, 3), tuple(range(100, 180)), Limits(7))]
    return serve(lambda: OneRequest(wrong), asked, lambda *_: (3, 3), 3, 64)


def test_a_right_scheduler_is_quiet():
    assert served("") == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("computed", "tokens that count as computed: expected 3, got 4"),
        ("null slot", r"null slots in its table \(0, 2, 3, 4\): expected 0, got 1"),
        ("bonus dropped", "passed on of"),
        ("overshoot", "passed on of"),
        ("reason", "end of the answer at"),
        ("keeps a block", "free blocks after all answers have ended: expected 9, got 8"),
    ],
)
def test_what_a_scheduler_gets_wrong_is_named(wrong, says):
    with pytest.raises(ContractViolation, match=says):
        served(wrong)
