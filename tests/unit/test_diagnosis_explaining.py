"""The target is asked about divergences that nobody has asked about yet, and not about one arm over and over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from judge_rows import packet_rows
from test_judge_checks import CORPUS

from fixtures.diagnosis import explaining
from fixtures.diagnosis.explaining import MOST, explain_the_rest, unexplained
from fixtures.judge.run import Run
from fixtures.run.findings import Findings

TARGET, CANDIDATE = SimpleNamespace(label="target#1"), SimpleNamespace(label="candidate#1")


def rows(change: str) -> dict[str, list[dict[str, Any]]]:
    made = packet_rows()
    CORPUS[change](made)
    return made


def test_a_divergence_is_asked_about_once() -> None:
    assert [(c.arm, c.prompt_id, c.first_divergence) for c in unexplained(Run(rows("wrong id")))] == [
        ("candidate#1", "p3", 50)
    ]
    assert unexplained(Run(rows("wrong token"))) == []
    assert unexplained(Run(rows("sound"))) == []


def test_an_arm_that_was_asked_about_often_enough_is_left_alone() -> None:
    """A broken stack diverges everywhere, and every question costs a prefill."""
    made = rows("wrong token")
    score = made["score"][0]
    made["score"] = [score | {"position": 51 + n} for n in range(MOST - 1)]
    assert len(unexplained(Run(made))) == 1
    made["score"].append(score | {"position": 500})
    assert unexplained(Run(made)) == []


@pytest.mark.parametrize(("change", "asked"), [("wrong id", True), ("sound", False), ("wrong token", False)])
def test_what_no_test_came_to_is_asked_at_the_end(
    change: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate that ends at its server stage has recorded divergences: the scores that name the mechanism are taken."""
    explained = MagicMock()
    monkeypatch.setattr(explaining, "explain_divergences", explained)
    explain_the_rest(MagicMock(), Findings(rows(change)), [CANDIDATE], TARGET)  # type: ignore[list-item, arg-type]
    assert explained.called is asked


def test_divergences_of_servers_that_a_test_started_for_itself_are_its_own_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explained = MagicMock()
    monkeypatch.setattr(explaining, "explain_divergences", explained)
    other = SimpleNamespace(label="scripted#1")
    explain_the_rest(MagicMock(), Findings(rows("wrong id")), [other], TARGET)  # type: ignore[list-item, arg-type]
    assert not explained.called
