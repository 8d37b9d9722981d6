"""The verdict about an answer that diverges: what its score rows make of it, and where it is placed."""

from __future__ import annotations

from typing import Any

import pytest
from judge_rows import transcript
from verdict_rows import Rows, derived, edit, transcripts, wrong_token

from fixtures.judge.finding import Outcome


def score(gap_nats: float) -> dict[str, Any]:
    target = transcript("p3").token_ids[50]
    tail = {str(600 + i): -25.0 for i in range(18)}
    return {
        "arm": "target#1",
        "candidate_arm": "candidate#1",
        "suite": "suite",
        "prompt_id": "p3",
        "position": 50,
        "logprobs": {str(target): -0.7, "499": -0.7 - gap_nats} | tail,
    }


@pytest.mark.parametrize(
    ("gap_nats", "allow", "check", "outcome"),
    [
        (0.0625, False, "parity.near_tie", Outcome.REJECTED),
        (0.0625, True, "parity.near_tie", Outcome.ACCEPTED),
        (9.0, True, "parity.wrong_token", Outcome.REJECTED),
    ],
)
def test_a_divergence_is_classified_from_its_score_row(
    gap_nats: float, allow: bool, check: str, outcome: Outcome
) -> None:
    def change(rows: Rows) -> None:
        wrong_token(rows)
        rows["score"] = [score(gap_nats)]
        rows["lane"][0]["thresholds"]["allow_near_ties"] = allow

    verdict = derived(change)
    found = next(f for f in verdict.findings if f.check == check)
    assert found.outcome is outcome
    assert verdict.outcome is outcome
    assert "nats" in found.message


def test_a_divergence_is_placed_in_its_verifier_round() -> None:
    def change(rows: Rows) -> None:
        wrong_token(rows)
        rows["score"] = [score(9.0) | {"rounds": [[3, 3]] * 12 + [[3, 0]] * 2}]

    found = next(f for f in derived(change).findings if f.check == "parity.wrong_token")
    assert (
        "round 13, row 0, after a full reject: points at commit bookkeeping after a rejection"
        in found.message
    )
    assert len(found.details["common_ids"]) == 8
    assert found.details["candidate_said"][0] == 499


@pytest.mark.parametrize(
    ("chunks", "words"), [(1, "prefill state or first sampled token"), (5, "a chunk boundary")]
)
def test_a_wrong_first_token_points_at_the_chunks_of_its_prefill(chunks: int, words: str) -> None:
    def change(rows: Rows) -> None:
        ids = list(transcripts(rows, "candidate#1", "measured")[3]["token_ids"])
        first, ids[0] = ids[0], 499
        edit(rows, 3, token_ids=ids)
        logprobs = {str(first): -0.01, "499": -9.0} | {str(600 + i): -25.0 for i in range(18)}
        rows["score"] = [score(9.0) | {"position": 0, "logprobs": logprobs, "prefill_chunks": chunks}]

    found = next(f for f in derived(change).findings if f.check == "parity.wrong_token")
    assert words in str(found.details["points_at"])


def test_a_score_from_a_candidate_server_explains_nothing() -> None:
    def change(rows: Rows) -> None:
        wrong_token(rows)
        rows["score"] = [score(0.0) | {"arm": "candidate#2"}]
        rows["lane"][0]["thresholds"]["allow_near_ties"] = True

    assert derived(change).outcome is Outcome.REJECTED
