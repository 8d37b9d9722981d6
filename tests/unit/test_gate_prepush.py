"""The hooks compare with what the push goes onto, and say so when there is nothing to compare with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fixtures.gate import prepush
from fixtures.parsing import BadInput


def git(folder: Path, *command: str) -> str:
    named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *named, *command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone that is one commit ahead of its origin."""
    monkeypatch.delenv("PRE_COMMIT_FROM_REF", raising=False)
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q")
    git(origin, "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    git(clone, "commit", "-q", "--allow-empty", "-m", "two")
    return clone


def test_the_base_is_what_the_push_goes_onto(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepush.base_of_push(clone) == git(clone, "rev-parse", "HEAD~1")
    monkeypatch.setenv("PRE_COMMIT_FROM_REF", "abc123")
    assert prepush.base_of_push(clone) == "abc123"


def test_a_new_branch_is_compared_with_where_it_began(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git says the base of a branch that the other side does not have as forty zeros."""
    git(clone, "checkout", "-q", "-b", "topic")
    monkeypatch.setenv("PRE_COMMIT_FROM_REF", "0" * 40)
    assert prepush.base_of_push(clone) == git(clone, "rev-parse", "HEAD~1")


def test_without_an_origin_a_base_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRE_COMMIT_FROM_REF", raising=False)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    with pytest.raises(BadInput, match="name a base"):
        prepush.base_of_push(tmp_path)


def test_misuse_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepush.main(["nonsense"]) == 2
    assert "patches|gate" in capsys.readouterr().err
