"""The outcome at a glance: one table, and the worst divergence with everything that somebody needs to look into it."""

from __future__ import annotations

import copy

from judge_rows import packet_rows, transcript

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import derive
from fixtures.report.terminal import show_divergence, tabulate, worst_divergence


def found(check: str, outcome: Outcome, arm: str = "candidate#1", **details: object) -> Finding:
    return Finding(check, outcome, "message", arm, "p3", details)


def test_the_table_has_a_row_for_each_arm_and_says_how_often_something_is_wrong() -> None:
    lines = tabulate(
        [
            found("parity.exact", Outcome.ACCEPTED),
            found("batch.isolation", Outcome.REJECTED),
            found("batch.isolation", Outcome.REJECTED),
            found("batch.isolation", Outcome.ACCEPTED),
            found("parity.near_tie", Outcome.ACCEPTED, "candidate#2"),
            found("acceptance.rate", Outcome.PENDING, "candidate#2"),
            found("parity.places", Outcome.ACCEPTED),
        ]
    )
    assert lines[0].split() == ["arm", "parity", "isolation", "acceptance"]
    assert lines[1].split(maxsplit=1) == ["candidate#1", "ok              REJECTED (2)  -"]
    assert "ok (near ties)" in lines[2]
    assert "pending (1)" in lines[2]


def test_corruption_is_worse_than_a_wrong_token_and_what_was_rejected_comes_first() -> None:
    tie = found("parity.near_tie", Outcome.REJECTED, first_divergence=1, **{"class": "near tie"})
    wrong = found("parity.wrong_token", Outcome.REJECTED, first_divergence=9, **{"class": "wrong token"})
    corrupt = found("batch.isolation", Outcome.REJECTED, first_divergence=70, **{"class": "corruption"})
    excused = found("parity.wrong_token", Outcome.ACCEPTED, first_divergence=0, **{"class": "wrong token"})
    assert worst_divergence([tie, wrong, corrupt, excused]) is corrupt
    assert worst_divergence([tie, excused, wrong]) is wrong
    assert worst_divergence([found("canary.answer", Outcome.REJECTED)]) is None


def test_a_divergence_is_shown_with_prompt_texts_gap_place_class_and_a_command() -> None:
    rows = copy.deepcopy(packet_rows())
    row = next(r for r in rows["transcript"] if (r["arm"], r["prompt_id"]) == ("candidate#1", "p3"))
    ids = list(row["token_ids"])
    target = ids[50]
    ids[50] = 499
    row |= {"token_ids": ids, "content": " ".join(map(str, ids))}
    row.pop("output_sha256")
    for arm in rows["arm"]:
        arm |= {"lane": "canary-cpu", "stack": "some-stack", "faults": ["some-fault"]}
    tail = {str(600 + i): -25.0 for i in range(18)}
    rows["score"] = [
        {
            "arm": "target#1",
            "candidate_arm": "candidate#1",
            "suite": "suite",
            "prompt_id": "p3",
            "position": 50,
            "logprobs": {str(target): -0.01, "499": -9.01} | tail,
            "rounds": [[3, 3]] * 12 + [[3, 0]] * 2,
            "rounds_from": "trace",
            "verifier_chose": 499,
        }
    ]
    worst = worst_divergence(derive(rows).findings)
    assert worst is not None
    shown = "\n".join(show_divergence(worst))
    for part in (
        "candidate#1, prompt p3 of suite, id 50: wrong token",
        "prompt        'p3'",
        f"target        '{target}",
        "candidate     '499",
        "9 nats; rounding explains up to 0.4296 (bfloat16, |logit| 12.49 half their spread, at least)",
        "rank 2",
        "round 13, row 0, after a full reject; the verifier row's own choice is wrong (rounds from the trace)",
        "points at     commit bookkeeping after a rejection",
        "python -m fixtures.diagnosis.replay --lane canary-cpu --stack some-stack --fault some-fault suite/p3",
    ):
        assert part in shown, (part, shown)


def test_a_verifier_that_chose_the_targets_token_points_at_the_acceptance() -> None:
    rows = copy.deepcopy(packet_rows())
    target = transcript("p3").token_ids[50]
    row = next(r for r in rows["transcript"] if (r["arm"], r["prompt_id"]) == ("candidate#1", "p3"))
    row["token_ids"] = [*row["token_ids"][:50], 499, *row["token_ids"][51:]]
    row.pop("output_sha256")
    rows["score"] = [
        {
            "arm": "target#1",
            "candidate_arm": "candidate#1",
            "suite": "suite",
            "prompt_id": "p3",
            "position": 50,
            "logprobs": {str(target): -0.01, "499": -9.01} | {str(600 + i): -25.0 for i in range(18)},
            "rounds": [[3, 3]] * 14,
            "rounds_from": "trace",
            "verifier_chose": target,
        }
    ]
    worst = worst_divergence(derive(rows).findings)
    assert worst is not None
    assert str(worst.details["points_at"]).startswith("acceptance: the verifier row chose the target's token")
