"""A contract that a subject has no operation for: neither passed nor missing, also where everything is required."""

from __future__ import annotations

import pytest

from fixtures.judge.finding import Outcome
from fixtures.judge.verdict import derive


def row(outcome: str) -> dict[str, object]:
    return {
        "nodeid": f"test_{outcome}",
        "stage": "contracts",
        "outcome": outcome,
        "required": True,
        "message": "",
    }


def test_not_offered_beside_a_pass_is_accepted() -> None:
    assert derive({"test": [row("passed"), row("not offered")]}).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize("outcome", ["not offered", "skipped"])
def test_nothing_but_not_offered_or_skipped_is_pending(outcome: str) -> None:
    assert derive({"test": [row(outcome)]}).outcome is Outcome.PENDING


def test_a_required_skip_is_pending_beside_a_pass() -> None:
    assert derive({"test": [row("passed"), row("skipped")]}).outcome is Outcome.PENDING
