"""Every seeded engine fault is killed by a check that its manifest names, and by none that has to stay quiet.

On the real engine, judged from rows as any packet is. `python -m fixtures.docs keep PACKET` takes what was seen into
the page `docs/measurements/detection-engine.md`.
"""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arms
from fixtures.engine.patch_sets import load_fault
from fixtures.fault_injection.injector import FaultInjector
from fixtures.fault_injection.observer import expectation_of
from fixtures.fault_injection.plugin import SMOKE, lane_of_faults, matrix_of
from fixtures.fault_injection.variants import faults_in_order
from fixtures.judge.detection import Detection, detect


def detection(injector: FaultInjector, name: str) -> Detection:
    """Plant one fault and hold what was seen against its manifest."""
    injector.inject(name)
    return detect(expectation_of(load_fault(name, injector.lane.engine)), injector.observations)


def check(found: Detection) -> None:
    """At least one named check fired, no check that has to stay quiet did, and each of those had rows to judge."""
    assert not found.survived, (
        f"{found.expectation.name} survives {', '.join(found.workloads)}: "
        f"{', '.join(found.expectation.kills)} did not fire; what did: {dict(found.fired) or 'nothing'}"
    )
    alarms = {name: found.messages[name] for name in found.false_alarms}
    assert not alarms, f"{found.expectation.name}: had to stay quiet: {alarms}"
    assert not found.unasked, f"{found.expectation.name}: quiet because nothing was asked: {found.unasked}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a fault of the engine of the lane."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", faults_in_order(lane_of_faults(metafunc.config)))


@pytest.mark.faults
def test_the_engine_fault_is_killed_by_its_detector(injector: FaultInjector, name: str) -> None:
    """A fault that no named check sees is a hole; a quiet check that fires would cry wolf on sound engines."""
    check(detection(injector, name))


@pytest.mark.faults
def test_the_sound_engine_is_rejected_by_no_check(injector: FaultInjector) -> None:
    """The same workloads on the same servers without a fault, before the faults and wherever a stack is the base."""
    matrix = matrix_of(injector.observations, {}, injector.lane)
    assert not matrix.alarms_on_sound


@pytest.mark.faults_smoke
@pytest.mark.xdist_group("lane:canary-cpu")
def test_a_weakened_suite_would_show(injector: FaultInjector, arms: Arms) -> None:
    """Four faults of different kinds on one server: state, sampling, limits, accounting."""
    arms.close()  # one slot: servers of other tests make room
    injector.recorded_oracle = not injector.oracles.answers
    needed = {n for name in SMOKE for n in injector.names_for(load_fault(name, injector.lane.engine))}
    injector.wanted = frozenset(needed | {"concurrent"}) if injector.recorded_oracle else injector.wanted
    try:
        for name in SMOKE:
            check(detection(injector, name))
    finally:
        injector.close()
