"""The scripted drafter: what it proposes under each programme, without an engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fixtures.engine.drafters.draftproof_drafter import ScriptedDrafter
from fixtures.engine.programmes import PROGRAMMES, Programme, Script, exhaustive, programme
from fixtures.judge.described import ProgrammeRow
from fixtures.parsing import BadInput

PROMPT, ANSWER = [5, 6, 7], [20, 21, 22, 23, 24, 25, 26, 27]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setenv("DRAFTPROOF_SCRIPT", str(tmp_path / "script.json"))
    return Script(tmp_path / "script.json")


def drafter() -> ScriptedDrafter:
    return ScriptedDrafter(SimpleNamespace(speculative_config=SimpleNamespace(num_speculative_tokens=3)))


def propose(of: ScriptedDrafter, done: int) -> list[int]:
    """One row: the prompt and the first `done` tokens of the answer."""
    context = np.zeros((1, 64), dtype=np.int64)
    context[0, : 3 + done] = PROMPT + ANSWER[:done]
    return of.propose([[ANSWER[done - 1]]], np.array([3 + done]), context)[0]


def right(draft: list[int], done: int) -> int:
    """How many drafts are the target's own next tokens, from the first on."""
    wanted = ANSWER[done:]
    return next(
        (i for i, (d, w) in enumerate(zip(draft, wanted, strict=False)) if d != w),
        min(len(draft), len(wanted)),
    )


def forced(proposals: Sequence[Mapping[str, int]]) -> list[int]:
    """How many rounds have to accept the draft at each of three positions."""
    return list(ProgrammeRow.of("arm", "suite", "parity", proposals, 3).forced)


def test_each_round_takes_the_next_step_of_the_programme(script: Script) -> None:
    script.write(Programme("p", (0, 1, 2, 3)), [(PROMPT, ANSWER)])
    of = drafter()
    drafts = [propose(of, done) for done in (1, 2, 3, 4)]
    assert [len(d) for d in drafts] == [3, 3, 3, 3]
    assert [right(d, done) for d, done in zip(drafts, (1, 2, 3, 4), strict=True)] == [0, 1, 2, 3]
    assert forced(script.proposals()) == [3, 2, 1]


def test_a_ragged_draft_ends_after_its_first_wrong_token(script: Script) -> None:
    script.write(Programme("p", (0, 1, 3), ragged=True), [(PROMPT, ANSWER)])
    of = drafter()
    assert [len(propose(of, done)) for done in (1, 2, 3)] == [1, 2, 3]


def test_a_step_of_minus_one_proposes_nothing(script: Script) -> None:
    script.write(PROGRAMMES["empty"], [(PROMPT, ANSWER)])
    of = drafter()
    assert [len(propose(of, done)) for done in (1, 2, 3, 4)] == [3, 0, 3, 0]


def test_a_new_request_and_a_new_script_begin_the_programme_anew(script: Script) -> None:
    script.write(Programme("p", (3, 0)), [(PROMPT, ANSWER)])
    of = drafter()
    assert [right(propose(of, done), done) for done in (1, 4)] == [3, 0]
    assert right(propose(of, 1), 1) == 3, "the same prompt again is a new request"
    script.write(Programme("q", (1,)), [(PROMPT, ANSWER)])
    os.utime(script.path, ns=(1, 1))
    assert right(propose(of, 2), 2) == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_behind_the_only_wrong_draft_the_rest_is_right_again(script: Script, place: int) -> None:
    script.write(programme(f"fail-at-{place}"), [(PROMPT, ANSWER)])
    draft = propose(drafter(), 1)
    assert [d == w for d, w in zip(draft, ANSWER[1:4], strict=True)] == [i != place for i in range(3)]
    assert forced(script.proposals()) == [int(i < place) for i in range(3)]


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_a_programme_that_accepts_n_has_n_right_drafts_in_every_round(script: Script, accepted: int) -> None:
    script.write(programme(f"accept-{accepted}"), [(PROMPT, ANSWER)])
    of = drafter()
    assert [right(propose(of, done), done) for done in (1, 2, 3)] == [accepted] * 3


def test_the_programmes_of_k_drafts_are_distinct_and_can_be_named() -> None:
    for k in (1, 3, 5):
        programmes = exhaustive(k)
        assert len({p.name for p in programmes}) == len(programmes) == (k + 1) + k + 6
        assert all(programme(p.name) == p for p in programmes)


def test_an_unknown_prompt_gets_drafts_that_help_nobody(script: Script) -> None:
    script.write(Programme("p", (3,)), [([1, 2], [3])])
    assert len(set(propose(drafter(), 1))) == 1
    assert script.proposals() == []


def test_an_unknown_programme_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"known: .*ragged"):
        programme("nonsense")
