"""The matrix of faults and checks: survivors and false alarms show, and a check that always fires detects nothing."""

from __future__ import annotations

from typing import Any

from fixtures.judge.detection import (
    SOUND,
    Expectation,
    Observation,
    build_matrix,
    detect,
    merge_matrices,
    observe,
)
from fixtures.judge.finding import Finding, Outcome
from fixtures.report.detection import engine_page, summary_lines

FAULT = Expectation(
    "some-fault", "What goes wrong.", ("parity.diverged", "server"), ("freshness.cached_tokens",)
)


def observation(fault: str = "some-fault", workload: str = "concurrent", **checks: Outcome) -> Observation:
    named = {name.replace("__", "."): outcome for name, outcome in checks.items()}
    failed = [n for n, o in named.items() if o is not Outcome.ACCEPTED]
    return Observation(
        fault,
        "stock",
        workload,
        ("parity", "freshness"),
        named,
        dict.fromkeys(failed, 2),
        {n: f"{n} says so" for n in failed},
        1.5,
    )


def test_a_named_check_that_fires_kills_the_fault() -> None:
    found = detect(FAULT, [observation(SOUND), observation(parity__diverged=Outcome.REJECTED)])
    assert (found.survived, found.killed_by, found.false_alarms) == (False, ("parity.diverged",), ())
    assert found.silent == ("server",)


def test_pending_is_no_pass_and_inconclusive_is_no_detection() -> None:
    assert not detect(FAULT, [observation(SOUND), observation(parity__diverged=Outcome.PENDING)]).survived
    assert detect(FAULT, [observation(SOUND), observation(parity__diverged=Outcome.INCONCLUSIVE)]).survived


def test_what_only_unnamed_checks_see_survives() -> None:
    found = detect(FAULT, [observation(SOUND), observation(canary__answer=Outcome.REJECTED)])
    assert found.survived
    assert dict(found.fired) == {"canary.answer": 2}


def test_a_check_that_fires_on_the_sound_engine_too_detects_nothing() -> None:
    both = Outcome.REJECTED
    assert detect(
        FAULT, [observation(SOUND, parity__diverged=both), observation(parity__diverged=both)]
    ).survived


def test_without_a_sound_engine_under_the_same_workload_nothing_is_credited() -> None:
    other = observation(SOUND, workload="sequential")
    assert detect(FAULT, [other, observation(parity__diverged=Outcome.REJECTED)]).survived
    assert detect(FAULT, [observation(parity__diverged=Outcome.REJECTED)]).survived


def test_a_check_that_has_to_stay_quiet_and_fires_is_a_false_alarm() -> None:
    seen = observation(parity__diverged=Outcome.REJECTED, freshness__cached_tokens=Outcome.PENDING)
    found = detect(FAULT, [observation(SOUND), seen])
    assert found.false_alarms == ("freshness.cached_tokens",)
    matrix = build_matrix([observation(SOUND), seen], {"some-fault": FAULT})
    assert not matrix.passed
    assert "**FALSE ALARM**" in engine_page(matrix)


def test_silence_without_a_question_is_not_quiet() -> None:
    unasked = Expectation("some-fault", "x", ("parity.diverged",), ("endpoint.max_tokens",))
    assert detect(unasked, [observation(SOUND), observation()]).unasked == ("endpoint.max_tokens",)


def test_survivors_come_first_and_fail_the_matrix() -> None:
    names = {n: Expectation(n, f"{n} breaks.", ("parity.diverged",), ()) for n in ("a-killed", "b-survives")}
    seen = [
        observation(SOUND),
        observation("a-killed", parity__diverged=Outcome.REJECTED),
        observation("b-survives"),
    ]
    matrix = build_matrix(seen, names)
    assert [d.expectation.name for d in matrix.detections] == ["b-survives", "a-killed"]
    assert matrix.survivors == ("b-survives",)
    assert not matrix.passed
    assert summary_lines(matrix)[0].startswith("SURVIVES")
    page = engine_page(matrix)
    assert "- survivors: b-survives" in page
    assert page.index("b-survives") < page.index("`a-killed`")
    assert build_matrix(seen[:2], names).passed


def test_a_sound_engine_that_is_rejected_fails_the_matrix() -> None:
    seen = [
        observation(SOUND, freshness__ids_counted=Outcome.REJECTED),
        observation(parity__diverged=Outcome.REJECTED),
    ]
    matrix = build_matrix(seen, {"some-fault": FAULT})
    assert not matrix.passed
    assert "freshness.ids_counted" in matrix.alarms_on_sound


def test_asking_again_breaks_the_rule_of_fresh_prompts_by_itself() -> None:
    repeated = observation(SOUND, workload="repeat", freshness__repeated_prompt=Outcome.REJECTED)
    assert not build_matrix([repeated], {}).alarms_on_sound


def test_of_several_runs_the_last_word_on_a_fault_counts() -> None:
    """A run on another oracle has another sound engine: what is deaf there is not deaf here."""
    both = Outcome.REJECTED
    deaf = build_matrix(
        [observation(SOUND, parity__diverged=both), observation(parity__diverged=both)], {"some-fault": FAULT}
    )
    good = build_matrix([observation(SOUND), observation(parity__diverged=both)], {"some-fault": FAULT})
    assert merge_matrices([deaf, good], ["some-fault"]).survivors == ()
    assert merge_matrices([good, deaf], ["some-fault"]).survivors == ("some-fault",)
    assert merge_matrices([good], ["other"]).detections == ()


def test_no_fault_tried_is_no_pass() -> None:
    assert not build_matrix([observation(SOUND)], {}).passed


def test_an_observation_survives_its_row() -> None:
    findings: list[Any] = [
        Finding("parity.diverged", Outcome.REJECTED, "p1"),
        Finding("parity.diverged", Outcome.REJECTED, "p2"),
        Finding("acceptance.rate", Outcome.ACCEPTED, "fine"),
    ]
    seen = observe(findings, fault="f", stack="stock", workload="concurrent", shows=("parity",), seconds=1.0)
    assert dict(seen.counts) == {"parity.diverged": 2}
    assert Observation.from_row(seen.to_row()) == seen
