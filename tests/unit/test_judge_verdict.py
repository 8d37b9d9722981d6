"""The verdict comes from raw rows alone: each defect planted in a sound packet decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judge_rows import packet_rows, span, suite_of
from verdict_rows import Rows, derived, edit, transcripts, wrong_token

from fixtures.judge.contracts import ContractRow, judge_contract
from fixtures.judge.described import LaneRow
from fixtures.judge.finding import Outcome
from fixtures.judge.statistics import excluded_rate
from fixtures.judge.verdict import derive
from fixtures.report.summary import sentence


def test_a_sound_run_is_accepted_with_its_headline() -> None:
    verdict = derived()
    assert [f.message for f in verdict.findings if f.outcome is not Outcome.ACCEPTED] == []
    assert verdict.outcome is Outcome.ACCEPTED
    assert verdict.headline_tok_s == pytest.approx(100.0)
    assert verdict.exit_code == 0


def test_how_rare_a_fault_may_be_is_said_where_all_answers_are_right_and_only_there() -> None:
    """Twenty right answers exclude a fault that spoils one in seven at 95 %: 0.861**20 is 0.05."""
    sound, wrong = derived(), derived(wrong_token)
    (said,) = [f for f in sound.findings if f.check == "parity.missed"]
    assert said.details["right"] == 20
    assert said.details["share"] == pytest.approx(0.1391, abs=1e-4)
    assert sentence(sound).endswith("A fault that spoils fewer than 13.9% of answers may be missed.")
    assert not [f for f in wrong.findings if f.check == "parity.missed"]
    with pytest.raises(ValueError, match="no answers"):
        excluded_rate(0)


def test_nothing_checked_is_pending() -> None:
    assert derive({}).outcome is Outcome.PENDING
    assert derive({"lane": packet_rows()["lane"]}).outcome is Outcome.PENDING


def test_contracts_alone_can_be_accepted() -> None:
    assert derive({"contract": packet_rows()["contract"]}).outcome is Outcome.ACCEPTED


DEFECTS: dict[str, tuple[Callable[[Rows], object], Outcome, str]] = {
    "wrong token": (wrong_token, Outcome.REJECTED, "parity.diverged"),
    "warm cache": (
        lambda r: edit(r, 0, usage={"prompt_tokens": 40, "completion_tokens": 120, "cached_tokens": 16}),
        Outcome.REJECTED,
        "freshness.cached_tokens",
    ),
    "cached tokens null": (
        lambda r: edit(r, 0, usage={"prompt_tokens": 40, "completion_tokens": 120, "cached_tokens": None}),
        Outcome.PENDING,
        "freshness.cached_tokens",
    ),
    "wrong canary": (
        lambda r: edit(r, 1, purpose="canary", content="blue, green"),
        Outcome.REJECTED,
        "canary.answer",
    ),
    "canary not repeated": (
        lambda r: r["transcript"].remove(transcripts(r, "candidate#1", "canary")[0]),
        Outcome.PENDING,
        "canary.answer",
    ),
    "prefix cache hits": (
        lambda r: r["counters"][0]["after"].update(prefix_cache_hits=64),
        Outcome.REJECTED,
        "freshness.prefix_cache_counters",
    ),
    "counters not read": (
        lambda r: r["counters"].clear(),
        Outcome.PENDING,
        "freshness.prefix_cache_counters",
    ),
    "nothing accepted": (
        lambda r: r["counters"][0]["after"].update(accepted_tokens=0, accepted_per_position=[0, 0, 0]),
        Outcome.REJECTED,
        "acceptance.rate",
    ),
    "contract broken": (
        lambda r: r["contract"][0].update(mismatches=3, max_abs_error=0.004),
        Outcome.REJECTED,
        "contract",
    ),
    "contract compared nothing": (lambda r: r["contract"][0].update(compared=0), Outcome.PENDING, "contract"),
    "test failed": (lambda r: r["test"][0].update(outcome="failed"), Outcome.REJECTED, "test.failed"),
    "test errored": (lambda r: r["test"][0].update(outcome="error"), Outcome.INCONCLUSIVE, "test.error"),
    "test skipped though required": (
        lambda r: r["test"].append(
            {"nodeid": "t::x", "stage": "quality", "outcome": "skipped", "required": True}
        ),
        Outcome.PENDING,
        "test.skipped",
    ),
    "every test of a stage skipped": (
        lambda r: r["test"][0].update(outcome="skipped", required=False),
        Outcome.PENDING,
        "test.stage",
    ),
    "stage not reached": (
        lambda r: r["stage"][4].update(state="not reached", reason="parity was rejected"),
        Outcome.PENDING,
        "stage",
    ),
    "stage reached without rows": (lambda r: r["contract"].clear(), Outcome.PENDING, "stage"),
    "one target start": (
        lambda r: r["arm"].remove({"arm": "target#2", "role": "target", "speculation": None}),
        Outcome.PENDING,
        "parity.target_repeats",
    ),
    "prompt left out": (
        lambda r: r["transcript"].remove(transcripts(r, "candidate#1", "measured")[2]),
        Outcome.PENDING,
        "freshness.full_suite",
    ),
    "a room saw something": (
        lambda r: r.update(
            finding=[{"check": "server.audit", "outcome": "rejected", "message": "prefix caching is on"}]
        ),
        Outcome.REJECTED,
        "server.audit",
    ),
    "an arm that nobody declared": (
        lambda r: r["arm"].pop(),
        Outcome.PENDING,
        "arm.unknown",
    ),
    "two launches under one name": (
        lambda r: r["arm"].append(r["arm"][2] | {"launch_digest": "another"}),
        Outcome.INVALID,
        "arm.ambiguous",
    ),
    "measured prompt asked before": (
        lambda r: r["transcript"].append(
            transcripts(r, "candidate#1", "measured")[0] | {"purpose": "warmup", "sent_ns": 1}
        ),
        Outcome.REJECTED,
        "freshness.repeated_prompt",
    ),
    "unreadable row": (lambda r: r["arm"][0].update(role="onlooker"), Outcome.INVALID, "evidence.row"),
    "row does not match its hash": (
        lambda r: transcripts(r, "target#1", "parity")[0].update(content="edited"),
        Outcome.INVALID,
        "evidence.row",
    ),
    "unknown test outcome": (lambda r: r["test"][0].update(outcome="fine"), Outcome.INVALID, "evidence.row"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_decides_the_verdict(defect: str) -> None:
    change, outcome, check = DEFECTS[defect]
    verdict = derived(change)
    assert verdict.outcome is outcome, [f.message for f in verdict.findings if f.outcome is verdict.outcome]
    assert check in {f.check for f in verdict.findings if f.outcome is outcome}


@pytest.mark.parametrize("defect", ["wrong token", "warm cache", "counters not read", "prompt left out"])
def test_a_speed_without_parity_and_coldness_is_not_a_result(defect: str) -> None:
    verdict = derived(DEFECTS[defect][0])
    assert verdict.headline_tok_s is None
    assert verdict.headline_reason != ""


def test_stored_booleans_and_accepted_findings_are_not_evidence() -> None:
    def flatter(rows: Rows) -> None:
        rows["contract"][0] |= {"mismatches": 3, "max_abs_error": 0.1, "passed": True, "equal": True}
        rows["finding"] = [{"check": "stage", "outcome": "accepted", "message": "passed"}]
        rows["verdict"] = [{"outcome": "accepted", "passed": True}]

    assert derived(flatter).outcome is Outcome.REJECTED
    assert (
        derive({"finding": [{"check": "stage", "outcome": "accepted", "message": ""}]}).outcome
        is Outcome.PENDING
    )


def with_control(gap_s: float, claim: str | None = None) -> Callable[[Rows], None]:
    """Two control starts beside the two candidate starts, whose ids come every 10 ms."""

    def change(rows: Rows) -> None:
        for n in (1, 2):
            arm = f"control#{n}"
            rows["arm"].append({"arm": arm, "role": "control", "speculation": {"method": "mtp"}})
            rows["transcript"] += [t.to_row() | {"purpose": "measured"} for t in suite_of(arm, gap_s=gap_s)]
            rows["counters"].append(span(arm).to_row())
        rows["arm"][2]["claim"] = claim

    return change


@pytest.mark.parametrize(
    ("gap_s", "claim", "outcome"),
    [
        (0.0100, None, Outcome.INCONCLUSIVE),
        (0.0100, "not slower", Outcome.ACCEPTED),
        (0.0100, "faster", Outcome.INCONCLUSIVE),
        (0.0120, "faster", Outcome.ACCEPTED),
        (0.0080, None, Outcome.REJECTED),
        (0.0080, "faster", Outcome.REJECTED),
    ],
    ids=[
        "as fast",
        "as fast, claims no more",
        "as fast, claims more",
        "faster",
        "slower",
        "slower, claims more",
    ],
)
def test_a_control_in_the_same_window_decides_about_speed(
    gap_s: float, claim: str | None, outcome: Outcome
) -> None:
    verdict = derived(with_control(gap_s, claim))
    assert next(f.outcome for f in verdict.findings if f.check == "speed.control") is outcome
    assert verdict.outcome is outcome


def test_a_seat_on_a_shared_device_gives_no_headline() -> None:
    verdict = derived(lambda rows: rows["arm"][2].update(slot="cuda:0*1"))
    assert verdict.headline_tok_s is None
    assert "candidate#1: cuda:0*1 is a seat on a device that servers share" in verdict.headline_reason


def test_a_record_row_decides_whether_the_headline_holds() -> None:
    row = {"lane": "canary-cpu", "entry": "old", "interval_tok_s": 100.0, "band": 0.044}
    for record, outcome in ((100.0, Outcome.ACCEPTED), (110.0, Outcome.REJECTED), (None, Outcome.PENDING)):
        verdict = derived(lambda rows, r=record: rows.update(record=[row | {"interval_tok_s": r}]))
        assert verdict.outcome is outcome


CONTRACT = {"subject": "vllm-cpu", "contract": "prefix", "case": "k3", "compared": 64, "bound": None}
KNOWN = {"deviation": {"id": "cpu-prefix", "bound": 0.004}}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"mismatches": 0, "max_abs_error": 0.0}, Outcome.ACCEPTED),
        ({"mismatches": 1, "max_abs_error": 1e-9}, Outcome.REJECTED),
        ({"mismatches": 9, "max_abs_error": 0.003} | KNOWN, Outcome.ACCEPTED),
        ({"mismatches": 9, "max_abs_error": 0.005} | KNOWN, Outcome.REJECTED),
        ({"mismatches": 0, "max_abs_error": 0.0} | KNOWN, Outcome.REJECTED),
        ({"mismatches": 9, "max_abs_error": 0.01, "bound": 0.02}, Outcome.ACCEPTED),
        ({"mismatches": 9, "max_abs_error": 0.03, "bound": 0.02}, Outcome.REJECTED),
        ({"mismatches": 9, "max_abs_error": "nan", "bound": 0.02}, Outcome.REJECTED),
        ({"mismatches": 9, "max_abs_error": "nan"} | KNOWN, Outcome.REJECTED),
    ],
)
def test_a_contract_is_judged_by_its_numbers(fields: dict[str, Any], outcome: Outcome) -> None:
    assert judge_contract(ContractRow.from_row(CONTRACT | fields)).outcome is outcome


def test_a_contract_row_without_its_numbers_is_invalid() -> None:
    row = {k: v for k, v in CONTRACT.items() if k != "compared"} | {"passed": True}
    assert derive({"contract": [row]}).outcome is Outcome.INVALID


@pytest.mark.parametrize(
    ("role", "outcome"),
    [("spare", Outcome.ACCEPTED), ("candidate", Outcome.PENDING)],
    ids=["spare", "candidate"],
)
def test_only_a_candidate_has_to_be_compared_with_the_target(role: str, outcome: Outcome) -> None:
    """A server for a question of its own says nothing of the suites; a candidate that says nothing is not shown."""
    row = {"arm": "other#1", "role": role, "speculation": {"method": "mtp"}}
    assert derived(lambda rows: rows["arm"].append(row)).outcome is outcome


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda rows: rows["lane"].append({"name": "canary-cuda"}),
            "rows of 2 lanes in one run: canary-cpu, canary-cuda",
        ),
        (
            lambda rows: rows["lane"].append(rows["lane"][0] | {"thresholds": {"allow_near_ties": True}}),
            "lane canary-cpu is described in two ways",
        ),
        (lambda rows: rows["arm"][2].update(lane="canary-cuda"), "candidate#1 is an arm of lane canary-cuda"),
    ],
    ids=["two lanes", "two thresholds", "an arm of another"],
)
def test_rows_of_two_lanes_are_invalid_evidence(change: Callable[[Rows], object], says: str) -> None:
    """Thresholds of two lanes cannot both hold."""
    verdict = derived(change)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.cause is not None
    assert (verdict.cause.check, says in verdict.cause.message) == ("evidence.lanes", True), (
        verdict.cause.message
    )


@pytest.mark.parametrize(
    ("kind", "check"), [("lane", "evidence.lane"), ("suite", "evidence.suite"), ("arm", "arm.unknown")]
)
def test_what_describes_the_answers_has_to_be_there(kind: str, check: str) -> None:
    """Without the lane nobody knows what had to be reached, without the suite what was asked."""
    verdict = derived(lambda rows: rows[kind].clear())
    assert verdict.outcome is Outcome.PENDING
    assert check in {f.check for f in verdict.findings if f.outcome is Outcome.PENDING}


def test_a_lane_that_asks_for_nothing_is_held_to_everything() -> None:
    limits = LaneRow.from_row({"name": "x"}).thresholds
    assert (limits.candidate_arms, limits.canary_repeats, limits.perf_attempts, limits.perf_min_ids) == (
        2,
        8,
        2,
        128,
    )
    assert not limits.allow_near_ties
    assert limits.acceptance_ceiling is None
    assert LaneRow.from_row({"name": "x", "thresholds": {"of a later version": 1}}).thresholds == limits
    assert (
        derived(lambda rows: rows["lane"][0].update(thresholds={"perf_cap": "many"})).outcome
        is Outcome.INVALID
    )


@pytest.mark.parametrize(("cap", "outcome"), [(512, Outcome.PENDING), (256, Outcome.ACCEPTED)])
def test_the_lanes_cap_is_the_one_that_counts(cap: int, outcome: Outcome) -> None:
    """Answers that were cut at 256 ids are whole on a lane whose cap that is, and on no other."""

    def change(rows: Rows) -> None:
        rows["lane"][0]["thresholds"]["perf_cap"] = cap
        for row in rows["transcript"]:
            if row["purpose"] != "canary":
                row["finish_reason"], row["request"] = "length", row["request"] | {"max_tokens": 256}
                row.pop("output_sha256"), row.pop("prompt_sha256")

    assert {f.outcome for f in derived(change).findings if f.check == "freshness.cap"} == {outcome}


def test_a_speed_that_no_engine_reaches_is_not_shown() -> None:
    """991,308 tok/s of target-only once stood in an accepted finding."""

    def change(rows: Rows) -> None:
        for row in rows["transcript"]:
            if row["arm"] == "target#1":
                times = row["receipt_ns"]
                row["receipt_ns"], row["purpose"] = (
                    [times[0] + 1000 * n for n in range(len(times))],
                    "measured",
                )

    verdict = derived(change)
    (found,) = [f for f in verdict.findings if f.check == "speed.reference"]
    assert "not shown" in found.message
    assert "no engine is faster" in found.message
    (arm,) = verdict.speed.references if verdict.speed else ()
    assert {
        name: v for name, v in arm.metrics.items() if v is not None and name.endswith("tok_s")
    }.keys() <= {"prefill_median_tok_s"}
    assert not arm.class_median_tok_s
