"""The README's tables are those that the data makes, and its options and commands exist."""

from __future__ import annotations

import re

import pytest

from fixtures.judge.finding import EXIT_CODES
from fixtures.session.readme import README, render

TEXT = README.read_text(encoding="utf-8")


def test_the_generated_tables_are_up_to_date() -> None:
    """`python -m fixtures.session.readme` would change nothing."""
    assert render(TEXT) == TEXT


def test_a_readme_without_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="generated: lanes"):
        render(TEXT.replace("generated: lanes", "lanes"))


def test_every_option_in_the_readme_exists(pytestconfig: pytest.Config) -> None:
    ours = "\n".join(line for line in TEXT.splitlines() if "pytest " in line or line.startswith("| `--"))
    named = set(re.findall(r"--[a-z][a-z-]+", ours))
    known = set(re.findall(r"--[a-z][a-z-]+", pytestconfig._parser.optparser.format_help()))
    assert named
    assert named <= known, sorted(named - known)


def test_every_exit_code_is_in_the_readme() -> None:
    for outcome, code in EXIT_CODES.items():
        assert f"| {outcome.value} | {code} |" in TEXT
