"""Lint, format and types of the whole repository, as continuous integration has to find them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "--no-cache"], ["ruff", "format", "--check", "--no-cache"], ["mypy"]],
    ids=" ".join,
)
def test_the_repository_is_clean(command: list[str], tmp_path: Path) -> None:
    """`ruff check`, `ruff format` and strict `mypy` have nothing to say."""
    cache = ["--cache-dir", str(tmp_path)] if command[0] == "mypy" else []
    done = subprocess.run(
        [sys.executable, "-m", *command, *cache], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_every_dependency_has_a_lower_bound_and_python_a_range() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert [d for d in project["dependencies"] if ">=" not in d] == []
