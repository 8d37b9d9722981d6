"""A server that starts beside another one: taken over by its arm, thrown away for every other, never left behind."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from fixtures.arms import servers
from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.overlays import Overlays
from fixtures.engine.pool import Pool, Slot
from fixtures.engine.remains import survivors
from fixtures.engine.server import Server
from fixtures.engine.starting import Progress, StartFailed, start_server
from fixtures.engine.startup import StartFailure
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import load_lane
from fixtures.request import parse
from fixtures.run.executor import PlannedArms
from fixtures.run.plan import Collected, plan_of
from tests.unit.standin import launching

CORES = (0, 1)
LANE = load_lane("canary-cpu")
TARGET, CANDIDATE, RESTART = (
    make_arm(LANE, role, replicate=n) for role, n in (("target", 1), ("candidate", 1), ("target", 2))
)
UPCOMING = [TARGET, CANDIDATE, RESTART]


class NoOverlays(Overlays):
    """A stand-in needs no patched copy."""

    def of(self, spec: Any, engine: Any) -> Any:
        return launching.overlay()


class StandIns(servers.Arms):
    """Arms whose servers are stand-ins; `instances` keeps what was started, by label."""

    failing: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._overlays = NoOverlays(self.folder)

    def _launch(self, arm: Arm, lease: Any) -> Any:
        launch = super()._launch(arm, lease)

        def call(progress: Progress) -> Server:
            if arm.label == self.failing:
                raise StartFailed(StartFailure("killed", "planted", ()), Path("log"))
            server = start_server(
                arm.spec,
                lease=lease,
                overlay=launching.overlay(),
                folder=self.folder_of(arm),
                timeout_s=30,
                progress=progress,
            )
            self.instances[arm.label] = server.instance
            return server

        launch.call = call
        return launch

    def _audit(self, arm: Arm, server: Any, engine: Any, evidence: Any) -> None:
        self._rows[arm.spec.digest] = {"arm": arm.label}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """A whole machine of two cores, on which target, candidate and the target's restart are going to be asked."""
    monkeypatch.setattr("fixtures.engine.starting.GRACE_S", 0.3)
    monkeypatch.setenv("STANDIN_NOTES", str(tmp_path))
    monkeypatch.setenv("STANDIN_START_S", "0")
    monkeypatch.setattr("fixtures.engine.pool.lease_folder", lambda: tmp_path)
    monkeypatch.setattr(servers, "installed_engine", lambda distribution: None)
    pool = Pool((Slot("cpu", (0,), CORES, confined=False),), "cpu:1")
    made = StandIns(pool, tmp_path, RowList(), lambda secret: None)
    made.instances = {}
    return made


def test_the_next_arm_takes_over_the_slot_of_the_one_that_was_asked(running: StandIns) -> None:
    first = running.server(TARGET)
    running.begin_next(UPCOMING)
    running.begin_next(UPCOMING)  # once
    assert first.is_alive()
    second = running.server(CANDIDATE)
    assert running.instances["candidate#1"] == second.instance
    assert not first.is_alive(), "its slot has gone to the next one"
    assert second.is_alive()
    assert [start.label for start in running.starts] == ["target#1", "candidate#1"]
    with pytest.raises(TimeoutError):
        running.pool.acquire(timeout_s=0)  # the lease is held as long as the second server lives
    running.begin_next(UPCOMING)
    assert running.server(RESTART).instance == running.instances["target#2"]
    assert running.close() == []
    running.pool.acquire(timeout_s=0).release()


def test_another_arm_that_is_asked_first_gets_a_start_of_its_own(running: StandIns) -> None:
    running.server(TARGET)
    running.begin_next(UPCOMING)
    other = running.server(RESTART)
    assert other.is_alive()
    assert "candidate#1" not in [start.label for start in running.starts]
    assert not survivors(running.instances.get("candidate#1", "never started"))
    assert running.close() == []


def test_what_was_begun_ends_with_the_run(running: StandIns) -> None:
    running.server(TARGET)
    running.begin_next(UPCOMING)
    assert running.close() == []
    assert not survivors(running.instances.get("candidate#1", "never started"))
    running.pool.acquire(timeout_s=0).release()


def test_a_start_that_fails_in_the_background_fails_its_own_arm(running: StandIns) -> None:
    running.failing = "candidate#1"
    running.server(TARGET)
    running.begin_next(UPCOMING)
    with pytest.raises(StartFailed, match="planted"):
        running.server(CANDIDATE)
    checks = [row["check"] for row in running.evidence.rows["finding"]]
    assert [check for check in checks if check != "server.teardown"] == ["server.start"]
    assert running.server(RESTART).is_alive()
    assert running.close() == []


@pytest.mark.parametrize(
    "slots",
    [
        (Slot("cpu", (0,), CORES[:1], confined=False),),
        (Slot("cpu", (0,), CORES[:1]), Slot("cpu", (1,), CORES[1:])),
        (Slot("cuda", (0,)),),
    ],
    ids=["one-core", "two-slots", "gpu"],
)
def test_nothing_is_begun_where_it_would_take_from_somebody(
    running: StandIns, slots: tuple[Slot, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU holds one server, another slot is another run's, and one core has nothing to spare."""
    monkeypatch.setattr(Pool, "require", lambda pool, kind, devices: None)
    running.pool = Pool(slots, "here")
    running.server(TARGET)
    running.begin_next(UPCOMING)
    assert list(running.instances) == ["target#1"]
    assert running.close() == []


class PlannedStandIns(StandIns, PlannedArms):
    """The executor of a run on stand-ins."""


class Sends:
    """Stands in for recordings and shapes: what was sent to whom, and whether the server was up."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bool]] = []

    def record(self, arm: Arm, server: Server, *_: object) -> None:
        self.sent.append((arm.label, server.is_alive()))

    record_reserve = record_acceptance = record


def test_a_plan_is_run_on_real_starts_and_the_next_one_begins_meanwhile(running: StandIns) -> None:
    request = parse(argparse.Namespace(stack=None, device=[]))
    plan = plan_of(request, Collected(frozenset({"quality"})))
    arms = PlannedStandIns(running.pool, running.folder, RowList(), lambda secret: None, plan=plan)
    arms.instances, sends = {}, Sends()
    arms.recordings = arms.shapes = sends  # type: ignore[assignment]
    assert arms.server(TARGET).is_alive()
    assert sends.sent == [("target#1", True)]
    assert arms.server(CANDIDATE).is_alive()
    assert {label for label, _ in sends.sent} == {"target#1", "candidate#1"}
    assert all(was_up for _, was_up in sends.sent)
    assert [start.label for start in arms.starts] == ["target#1", "candidate#1"]
    assert arms.close() == []
