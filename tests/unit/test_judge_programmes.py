"""What failing draft programmes have in common, on the programmes of the suite."""

from __future__ import annotations

import pytest
from judge_rows import packet_rows

from fixtures.engine.programmes import exhaustive
from fixtures.judge.finding import Outcome
from fixtures.judge.programmes import CHECK, DraftProgrammeRow, judge_programmes
from fixtures.judge.rounds import STATE_PROMOTION
from fixtures.judge.verdict import derive

K = 3
RAN = {p.name: (p.steps, p.ragged) for p in exhaustive(K)}


def judged(*failing: str, without: tuple[str, ...] = ()) -> tuple[Outcome, list[str]]:
    ran = {name: kind for name, kind in RAN.items() if name not in without}
    found = judge_programmes(ran, {name: 7 if name in failing else 0 for name in ran}, K)
    return found.outcome, list(found.details.get("points_at", []))


def test_programmes_that_all_pass_are_accepted() -> None:
    assert judged() == (Outcome.ACCEPTED, [])


def test_only_rounds_without_drafts_after_accepting_ones_point_at_state_promotion() -> None:
    assert judged("empty", "ragged-and-empty") == (Outcome.REJECTED, [STATE_PROMOTION])


def test_only_drafts_of_different_lengths_point_at_the_conv_window() -> None:
    assert judged("ragged", "ragged-and-empty") == (
        Outcome.REJECTED,
        ["conv window: drafts of different lengths"],
    )


def test_rounds_without_drafts_count_as_rounds_of_another_length() -> None:
    assert judged("ragged", "empty", "ragged-and-empty") == (
        Outcome.REJECTED,
        ["conv window: rounds of different lengths, those without drafts among them"],
    )


def test_a_programme_that_kills_the_engine_fails_without_a_wrong_answer() -> None:
    nothing_wrong = dict.fromkeys(RAN, 0)
    found = judge_programmes(
        RAN, nothing_wrong, K, unanswered={"empty": 3, "ragged-and-empty": 32, "uniform": 0}
    )
    assert found.outcome is Outcome.INCONCLUSIVE, "no answer was wrong"
    assert found.details["points_at"] == [STATE_PROMOTION]
    assert "empty, ragged-and-empty: requests without an answer" in found.message
    found = judge_programmes(
        RAN, nothing_wrong | {"ragged": 20}, K, unanswered={"empty": 3, "ragged-and-empty": 32}
    )
    assert found.outcome is Outcome.REJECTED


def test_failures_that_share_no_kind_of_round_point_nowhere() -> None:
    assert judged("accept-3", "empty") == (Outcome.REJECTED, [])


def test_a_kind_that_a_passing_programme_has_too_is_not_the_cause() -> None:
    """`empty` alone fails: `ragged-and-empty` has such rounds as well and passes."""
    assert judged("empty") == (Outcome.REJECTED, [])
    assert judged("empty", without=("ragged-and-empty",)) == (Outcome.REJECTED, [STATE_PROMOTION])


def test_a_programme_without_a_count_is_an_error_and_none_at_all_is_pending() -> None:
    with pytest.raises(KeyError):
        judge_programmes(RAN, {"empty": 0}, K)
    assert judge_programmes({}, {}, K).outcome is Outcome.PENDING


ROW = DraftProgrammeRow("candidate#1", "empty", (3, -1, 0), False, K)


def test_a_row_is_read_as_it_was_written() -> None:
    assert DraftProgrammeRow.from_row(ROW.to_row()) == ROW


@pytest.mark.parametrize(
    "change", [{"steps": []}, {"steps": "3"}, {"steps": [1.5]}, {"drafts": 0}, {"drafts": None}]
)
def test_a_row_without_steps_or_drafts_is_invalid_evidence(change: dict[str, object]) -> None:
    rows = packet_rows() | {"draft_programme": [ROW.to_row() | change]}
    assert [f.outcome for f in derive(rows).findings if f.check == "evidence.row"] == [Outcome.INVALID]


def test_a_programme_without_answers_is_pending_beside_those_that_ran() -> None:
    silent = DraftProgrammeRow("candidate#3", "ragged", (0, 1), True, K)
    rows = packet_rows() | {"draft_programme": [ROW.to_row(), silent.to_row()]}
    found = {f.arm: f.outcome for f in derive(rows).findings if f.check == CHECK}
    assert found == {"candidate#3": Outcome.PENDING, "": Outcome.ACCEPTED}
