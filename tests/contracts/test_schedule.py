"""The scheduler: whatever is drafted, accepted, capped or preempted, each request's answer is the target's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.gdn.comparison import require_value
from fixtures.runner.operations import Limits
from fixtures.runner.serving import Asked, serve
from fixtures.runner.vllm_runner import CONTEXT

K, END, STOP = 3, 999, 998
BUDGET = 24
"""Tokens a step: long prompts are cut in chunks."""
ROOMY, TIGHT = 60, 13
"""Blocks: enough for everybody, or so few that two requests push each other out."""


def answer(*ends, length=CONTEXT + K + 1):
    """Tokens of an answer, with `ends` (position, token) put in."""
    tokens = [100 + 3 * i for i in range(length)]
    for at, token in ends:
        tokens[at] = token
    return tuple(tokens)


def prompt(length, first=1):
    return tuple(range(first, first + length))


def check(runner, asked, drafter, blocks=ROOMY, requests=4):
    return serve(
        lambda: runner.subject.serving(drafts=K, blocks=blocks, requests=requests, budget=BUDGET),
        asked,
        drafter,
        K,
        CONTEXT,
    )


@pytest.mark.parametrize("right", range(K + 1))
def test_accepted_drafts_and_the_token_behind_them_are_passed_on(runner, right):
    """Every accepted count, to a cap that no round ends on."""
    check(runner, [Asked(prompt(5), answer(), Limits(14))], lambda *_: (K, right))


@pytest.mark.parametrize("cap", range(1, 10))
def test_a_cap_inside_accepted_drafts_cuts_there(runner, cap):
    """Not one token more, wherever in a round the cap falls."""
    check(runner, [Asked(prompt(5), answer(), Limits(cap))], lambda *_: (K, K))


@pytest.mark.parametrize("at", range(9))
@pytest.mark.parametrize("token", [END, STOP], ids=["end of turn", "stop token"])
def test_an_end_inside_accepted_drafts_ends_there(runner, at, token):
    """What was accepted behind it is not passed on."""
    limits = Limits(30, END, (STOP,))
    check(runner, [Asked(prompt(4), answer((at, token)), limits)], lambda *_: (K, K))


@pytest.mark.parametrize("at", range(6))
def test_an_end_on_the_cap_is_an_end(runner, at):
    """The last token that the cap allows is the end of the turn: the reason is the end, not the cap."""
    check(runner, [Asked(prompt(4), answer((at, END)), Limits(at + 1, END))], lambda *_: (K, K))


def test_a_context_that_is_full_ends_the_answer(runner):
    """The drafts of the last rounds are fewer, and the last token is the last that fits."""
    check(runner, [Asked(prompt(40), answer(), Limits(100))], lambda *_: (K, K))


def test_rounds_with_fewer_drafts_and_with_none(runner):
    """Any length of drafts goes with any other request beside it."""
    asked = [Asked(prompt(3 + 9 * i), answer(), Limits(12 + i)) for i in range(3)]
    check(runner, asked, lambda name, said: ((said + int(name[-1])) % (K + 1), 2))


def test_a_preempted_request_is_computed_again_from_its_first_token(runner):
    """With room for one and a half requests they push each other out, and both answers are whole."""
    asked = [Asked(prompt(14), answer(), Limits(30)), Asked(prompt(15, 50), answer(), Limits(28))]
    preempted = check(runner, asked, lambda *_: (K, 2), blocks=TIGHT, requests=2)
    require_value("preemptions of a cache that is too small, at least one", preempted > 0, True)


@settings(deadline=None)
@given(data=st.data())
def test_any_schedule_passes_on_the_targets_answers(runner, data):
    """Any prompts, limits, ends, drafts and agreements, in a cache with room for all or for hardly two."""
    count = data.draw(st.integers(1, 4), label="requests")
    asked = []
    for i in range(count):
        ends = (
            [(data.draw(st.integers(0, 25), label="at"), END)]
            if data.draw(st.booleans(), label="ends")
            else []
        )
        length = data.draw(st.integers(1, 28), label="prompt")
        cap = data.draw(st.integers(1, 28), label="cap")
        asked.append(Asked(prompt(length, 1 + 40 * i), answer(*ends), Limits(cap, END)))
    programme = data.draw(
        st.lists(st.tuples(st.integers(0, K), st.integers(0, K)), min_size=1, max_size=6),
        label="drafts, right",
    )
    tight = data.draw(st.booleans(), label="tight")
    check(
        runner,
        asked,
        lambda name, said: programme[(said + int(name[-1])) % len(programme)],
        blocks=TIGHT if tight else ROOMY,
    )
