"""Rows of a sound run, with a change, and the verdict that they come to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from judge_rows import packet_rows

from fixtures.judge.verdict import Verdict, derive

Rows = dict[str, list[dict[str, Any]]]


def transcripts(rows: Rows, arm: str, purpose: str) -> list[dict[str, Any]]:
    return [r for r in rows["transcript"] if r["arm"] == arm and r["purpose"] == purpose]


def edit(rows: Rows, number: int, arm: str = "candidate#1", purpose: str = "measured", **fields: Any) -> None:
    """Change a transcript row as a fault in the server would have (hashes included)."""
    row = transcripts(rows, arm, purpose)[number]
    row |= fields
    row.pop("output_sha256"), row.pop("prompt_sha256")


def wrong_token(rows: Rows, arm: str = "candidate#1", purpose: str = "measured") -> None:
    ids = list(transcripts(rows, arm, purpose)[3]["token_ids"])
    ids[50] = 499
    edit(rows, 3, arm, purpose, token_ids=ids)


def derived(change: Callable[[Rows], object] = lambda rows: None) -> Verdict:
    rows = copy.deepcopy(packet_rows())
    change(rows)
    return derive(rows)
