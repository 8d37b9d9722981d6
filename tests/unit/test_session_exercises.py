"""Each fault gets the exercises that can show what its manifest names, and meets what it needs."""

from __future__ import annotations

import pytest

from fixtures.engine.stack import NEEDS, known_faults, load_fault
from fixtures.lanes.lane import load_lane
from fixtures.seeding.exercises import BY_KIND, choose, exercises
from fixtures.seeding.places import LANE, PLACES, faults_in_order, place_of
from fixtures.seeding.plugin import SMOKE

EXERCISES = exercises(load_lane(LANE))
MET_BY_ALL = {
    "partial-acceptance",
    "full-acceptance",
    "ragged-drafts",
    "long-answers",
    "long-prompts",
    "slot-reuse",
    "end-of-turn",
    "no-speculation",
}
"""Needs that the lane, the drafts or the place meet, whatever is asked."""


@pytest.mark.parametrize("name", known_faults())
def test_every_named_check_and_every_need_has_an_exercise(name: str) -> None:
    fault = load_fault(name)
    chosen = choose(EXERCISES, needs=fault.needs, kills=fault.kills, quiet=fault.quiet)
    shown = {kind for n in chosen for kind in EXERCISES[n].shows}
    named = {check.partition(".")[0] for check in (*fault.kills, *fault.quiet)}
    assert named <= shown | {"server"}, f"{named - shown} is shown by none of {chosen}"
    offered = {need for n in chosen for need in EXERCISES[n].offers}
    assert set(fault.needs) - MET_BY_ALL <= offered


def test_needs_are_met_by_an_exercise_or_by_all() -> None:
    offered = {need for e in EXERCISES.values() for need in e.offers}
    assert set(NEEDS) == offered | MET_BY_ALL


def test_faults_that_share_a_server_come_together() -> None:
    places = [place_of(load_fault(name)).name for name in faults_in_order()]
    assert len(set(faults_in_order())) == len(places) >= 20
    assert places == sorted(places, key=list(PLACES).index)


def test_every_fault_is_tried_on_the_lane_of_its_engine() -> None:
    lanes = (LANE, "canary-cuda-faults")
    assert sorted(n for lane in lanes for n in faults_in_order(load_lane(lane))) == sorted(known_faults())


def test_the_smoke_set_is_four_faults_of_different_kinds() -> None:
    loaded = [load_fault(name) for name in SMOKE]
    assert len({fault.kills[0] for fault in loaded}) >= 3
    assert {place_of(fault).name for fault in loaded} == {"drafting"}


def test_exercises_do_not_share_prompts_with_the_measured_one() -> None:
    """What is measured has to be new to the server, whatever came before it."""
    cold = {p.user for p in EXERCISES["cold"].suite.prompts}
    assert not any(cold & {p.user for p in e.suite.prompts} for n, e in EXERCISES.items() if n != "cold")
    assert set(BY_KIND.values()) <= set(EXERCISES)
