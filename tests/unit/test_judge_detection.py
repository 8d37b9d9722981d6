"""The matrix of faults and checks: survivors and false alarms show, and a check that always fires detects nothing."""

from __future__ import annotations

from typing import Any

from fixtures.judge.detection import (
    SOUND,
    Expectation,
    Sighting,
    build_matrix,
    detect,
    merge_matrices,
    render,
    sight,
    summary_lines,
)
from fixtures.judge.finding import Finding, Outcome

FAULT = Expectation(
    "some-fault", "What goes wrong.", ("parity.diverged", "server"), ("freshness.cached_tokens",)
)


def sighting(fault: str = "some-fault", exercise: str = "crowd", **checks: Outcome) -> Sighting:
    named = {name.replace("__", "."): outcome for name, outcome in checks.items()}
    failed = [n for n, o in named.items() if o is not Outcome.ACCEPTED]
    return Sighting(
        fault,
        "stock",
        exercise,
        ("parity", "freshness"),
        named,
        dict.fromkeys(failed, 2),
        {n: f"{n} says so" for n in failed},
        1.5,
    )


def test_a_named_check_that_fires_kills_the_fault() -> None:
    found = detect(FAULT, [sighting(SOUND), sighting(parity__diverged=Outcome.REJECTED)])
    assert (found.survived, found.killed_by, found.false_alarms) == (False, ("parity.diverged",), ())
    assert found.silent == ("server",)


def test_pending_is_no_pass_and_inconclusive_is_no_detection() -> None:
    assert not detect(FAULT, [sighting(SOUND), sighting(parity__diverged=Outcome.PENDING)]).survived
    assert detect(FAULT, [sighting(SOUND), sighting(parity__diverged=Outcome.INCONCLUSIVE)]).survived


def test_what_only_unnamed_checks_see_survives() -> None:
    found = detect(FAULT, [sighting(SOUND), sighting(canary__answer=Outcome.REJECTED)])
    assert found.survived
    assert dict(found.fired) == {"canary.answer": 2}


def test_a_check_that_fires_on_the_sound_engine_too_detects_nothing() -> None:
    both = Outcome.REJECTED
    assert detect(FAULT, [sighting(SOUND, parity__diverged=both), sighting(parity__diverged=both)]).survived


def test_without_a_sound_engine_under_the_same_exercise_nothing_is_credited() -> None:
    other = sighting(SOUND, exercise="cold")
    assert detect(FAULT, [other, sighting(parity__diverged=Outcome.REJECTED)]).survived
    assert detect(FAULT, [sighting(parity__diverged=Outcome.REJECTED)]).survived


def test_a_check_that_has_to_stay_quiet_and_fires_is_a_false_alarm() -> None:
    seen = sighting(parity__diverged=Outcome.REJECTED, freshness__cached_tokens=Outcome.PENDING)
    found = detect(FAULT, [sighting(SOUND), seen])
    assert found.false_alarms == ("freshness.cached_tokens",)
    matrix = build_matrix([sighting(SOUND), seen], {"some-fault": FAULT})
    assert not matrix.passed
    assert "**FALSE ALARM**" in render(matrix)


def test_silence_without_a_question_is_not_quiet() -> None:
    unasked = Expectation("some-fault", "x", ("parity.diverged",), ("endpoint.max_tokens",))
    assert detect(unasked, [sighting(SOUND), sighting()]).unasked == ("endpoint.max_tokens",)


def test_survivors_come_first_and_fail_the_matrix() -> None:
    names = {n: Expectation(n, f"{n} breaks.", ("parity.diverged",), ()) for n in ("a-killed", "b-survives")}
    seen = [sighting(SOUND), sighting("a-killed", parity__diverged=Outcome.REJECTED), sighting("b-survives")]
    matrix = build_matrix(seen, names)
    assert [d.expectation.name for d in matrix.detections] == ["b-survives", "a-killed"]
    assert matrix.survivors == ("b-survives",)
    assert not matrix.passed
    assert summary_lines(matrix)[0].startswith("SURVIVES")
    page = render(matrix)
    assert "- survivors: b-survives" in page
    assert page.index("b-survives") < page.index("`a-killed`")
    assert build_matrix(seen[:2], names).passed


def test_a_sound_engine_that_is_rejected_fails_the_matrix() -> None:
    seen = [
        sighting(SOUND, freshness__ids_counted=Outcome.REJECTED),
        sighting(parity__diverged=Outcome.REJECTED),
    ]
    matrix = build_matrix(seen, {"some-fault": FAULT})
    assert not matrix.passed
    assert "freshness.ids_counted" in matrix.alarms_on_sound


def test_asking_again_breaks_the_rule_of_fresh_prompts_by_itself() -> None:
    again = sighting(SOUND, exercise="again", freshness__repeated_prompt=Outcome.REJECTED)
    assert not build_matrix([again], {}).alarms_on_sound


def test_of_several_runs_the_last_word_on_a_fault_counts() -> None:
    """A run on another oracle has another sound engine: what is deaf there is not deaf here."""
    both = Outcome.REJECTED
    deaf = build_matrix(
        [sighting(SOUND, parity__diverged=both), sighting(parity__diverged=both)], {"some-fault": FAULT}
    )
    good = build_matrix([sighting(SOUND), sighting(parity__diverged=both)], {"some-fault": FAULT})
    assert merge_matrices([deaf, good], ["some-fault"]).survivors == ()
    assert merge_matrices([good, deaf], ["some-fault"]).survivors == ("some-fault",)
    assert merge_matrices([good], ["other"]).detections == ()


def test_no_fault_tried_is_no_pass() -> None:
    assert not build_matrix([sighting(SOUND)], {}).passed


def test_a_sighting_survives_its_row() -> None:
    findings: list[Any] = [
        Finding("parity.diverged", Outcome.REJECTED, "p1"),
        Finding("parity.diverged", Outcome.REJECTED, "p2"),
        Finding("acceptance.rate", Outcome.ACCEPTED, "fine"),
    ]
    seen = sight(findings, fault="f", stack="stock", exercise="crowd", shows=("parity",), seconds=1.0)
    assert dict(seen.counts) == {"parity.diverged": 2}
    assert Sighting.from_row(seen.to_row()) == seen
