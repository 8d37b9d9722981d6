"""docs/speed.md names options and marks that exist."""

from __future__ import annotations

import re

import pytest

from fixtures.lanes.lane import REPOSITORY

PAGE = (REPOSITORY / "docs" / "speed.md").read_text(encoding="utf-8")


def test_every_option_of_the_page_exists(pytestconfig: pytest.Config) -> None:
    commands = "\n".join(
        line for line in PAGE.splitlines() if line.startswith("    pytest ") or "`--" in line
    )
    named = set(re.findall(r"--[a-z][a-z-]+", commands))
    known = set(re.findall(r"--[a-z][a-z-]+", pytestconfig._parser.optparser.format_help()))
    assert {"--control", "--blocks", "--record", "--soak-minutes"} <= named <= known, sorted(named - known)


def test_every_mark_of_the_page_exists(pytestconfig: pytest.Config) -> None:
    marks = {line.split(":")[0].split("(")[0] for line in pytestconfig.getini("markers")}
    assert set(re.findall(r"pytest -m (\w+)", PAGE)) <= marks
