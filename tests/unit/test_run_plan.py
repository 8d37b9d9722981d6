"""The plan follows from the request and the selected tests; the executor runs each group once, when it is asked for."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.arms.arm import Arm
from fixtures.arms.roles import candidate_arms, claim_of, control_arms, target_arm
from fixtures.arms.servers import Arms
from fixtures.engine.pool import Slot, parse_pool
from fixtures.judge.rows import Purpose, RowList
from fixtures.lanes.lane import REPOSITORY
from fixtures.request import RunRequest, parse
from fixtures.run.executor import PlannedArms
from fixtures.run.plan import Collected, Plan, plan_of


def request(**options: Any) -> RunRequest:
    return parse(argparse.Namespace(**({"stack": None, "device": []} | options)))


def plan(*marks: str, fixtures: tuple[str, ...] = (), roles: tuple[str, ...] = (), **options: Any) -> Plan:
    """The plan of a run whose selected tests carry these marks, ask for these fixtures and arms."""
    return plan_of(request(**options), Collected(frozenset(marks), frozenset(fixtures), frozenset(roles)))


def lines(made: Plan) -> list[str]:
    """A plan in words: each step's servers, then what they are sent."""
    return [
        line
        for step in made.steps
        for line in (
            "start " + " and ".join(arm.label for arm in step.arms),
            *(f"{' and '.join(a.label for a in s.arms)}: {s}" for s in step.sends),
        )
    ]


def test_quality_asks_every_arm_once_and_one_of_each_kind_in_other_shapes() -> None:
    made = lines(plan("quality", fixtures=("shapes", "target", "candidates")))
    assert [line for line in made if line.startswith("start")] == [
        "start target#1", "start candidate#1", "start candidate#2", "start target#2",
    ]  # fmt: skip
    for label, passes in (("target#1", 4), ("candidate#1", 5), ("candidate#2", 1), ("target#2", 1)):
        asked = [line for line in made if line.startswith(f"{label}: ")]
        assert len(asked) == passes, asked
        assert asked[0].startswith(f"{label}: canary-parity (parity), ")


def test_speed_is_measured_first_on_each_fresh_server() -> None:
    made = plan("quality", "perf")
    for step in made.steps[:3]:
        assert [s.purpose for s in step.sends[:3]] == [Purpose.WARMUP, Purpose.MEASURED, Purpose.PARITY]
    (restart,) = [step for step in made.steps if step.arms[0].label == "target#2"]
    assert {s.purpose for s in restart.sends} == {Purpose.PARITY}


def test_the_same_request_and_tests_give_the_same_plan() -> None:
    assert plan("quality", "perf", fixtures=("shapes",)) == plan("quality", "perf", fixtures=("shapes",))


def test_api_tests_start_the_arms_that_they_name_and_record_nothing() -> None:
    assert lines(plan("endpoint", roles=("target", "candidate"))) == ["start target#1", "start candidate#1"]
    assert lines(plan("endpoint", roles=("candidate",))) == ["start candidate#1"]


def test_a_server_that_is_not_ours_and_a_run_without_server_tests_have_no_plan() -> None:
    assert plan("quality", base_url="http://127.0.0.1:1") == Plan()
    assert plan() == Plan()


def window(pool: str, blocks: int = 2, **more: Any) -> Plan:
    return plan("perf", control="stock", blocks=blocks, gpu_pool=pool, **more)


def test_one_slot_takes_turns_so_that_neither_side_is_always_first() -> None:
    (group,) = [group for group in window("cpu:1", 4).groups if len(group) > 1]
    assert [arm.label for step in group for arm in step.arms] == [
        "candidate#1", "control#5", "control#6", "candidate#2", "candidate#3", "control#7", "control#8", "candidate#4",
    ]  # fmt: skip


def test_two_slots_are_swapped_and_nothing_else_runs_before_a_block_is_measured() -> None:
    made = window("cpu*2", 2)
    first, second = next(group for group in made.groups if len(group) > 1)
    assert [arm.label for arm in first.arms] == ["candidate#1", "control#3"]
    assert [s.purpose for s in first.sends[:3]] == [Purpose.WARMUP, Purpose.WARMUP, Purpose.MEASURED]
    assert [arm.label for arm in first.sends[2].arms] == ["candidate#1", "control#3"]
    assert first.slots == second.slots[::-1]


@pytest.mark.parametrize("blocks", [2, 4])
def test_nothing_is_started_beside_a_window(blocks: int) -> None:
    made = window("cpu:1", blocks)
    assert all(made.after(step) == () for step in made.steps)


def test_a_stack_against_itself_runs_on_servers_of_its_own() -> None:
    """A launch is known by its digest, in which the role is not: two sides must not share a server."""
    asked = request(control="stock")
    sides = [*candidate_arms(asked), *control_arms(asked)]
    assert len({arm.spec.digest for arm in sides}) == 4


@pytest.mark.parametrize(
    ("stack", "control", "claim"),
    [
        ("stock", "stock", None),
        ("gdn-ragged-drafts", "gdn-ragged-drafts", None),
        ("gdn-ragged-drafts", "stock", "not slower"),
        ("spec-round-trace", "stock", "not slower"),
    ],
)
def test_what_a_stack_claims_follows_from_what_it_says_it_changes(
    stack: str, control: str, claim: str | None
) -> None:
    assert claim_of(stack, control) == claim


@dataclass
class Log:
    """Stands in for recordings and shapes; writes down what is sent, in order."""

    lines: list[str] = field(default_factory=list)

    def record(self, arm: Arm, server: object, suite: str, what: Any) -> None:
        self.lines.append(f"{arm.label}: {getattr(what, 'name', what)}")

    def record_reserve(self, arm: Arm, server: object, suite: str) -> None:
        self.lines.append(f"{arm.label}: reserve")

    def side_by_side(self, pair: tuple[Arm, Arm], suite: str, purpose: Purpose) -> None:
        self.lines.append(f"{pair[0].label} beside {pair[1].label}: {purpose.name}")


def executor(made: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PlannedArms, list[str]]:
    """An executor whose servers are nothing but a line in a list, and that list."""
    log = Log()

    def start(self: Arms, arm: Arm, *_: object, on: Slot | None = None) -> SimpleNamespace:
        if arm.spec.digest not in self._rows:
            self._rows[arm.spec.digest] = {}
            log.lines.append(f"start {arm.label}")
        return SimpleNamespace(label=arm.label)

    monkeypatch.setattr(Arms, "server", start)
    pool = parse_pool("cpu:1", cores=[0])
    arms = PlannedArms(pool, tmp_path, RowList(), lambda secret: None, plan=made)
    arms.recordings = arms.shapes = log  # type: ignore[assignment]
    return arms, log.lines


def test_asking_for_an_arm_runs_its_steps_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request()
    arms, told = executor(plan("quality", fixtures=("shapes",)), tmp_path, monkeypatch)
    for _ in range(2):
        arms.server(target_arm(asked))
    assert told == [
        "start target#1",
        "target#1: PARITY",
        "target#1: reversed",
        "target#1: 4-at-once",
        "target#1: 16-at-once",
    ]
    arms.server(candidate_arms(asked)[1])
    assert told[-2:] == ["start candidate#2", "candidate#2: PARITY"]


def test_asking_for_one_arm_of_a_window_runs_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(control="stock")
    arms, told = executor(window("cpu:1"), tmp_path, monkeypatch)
    arms.server(control_arms(asked)[1])
    starts = [line for line in told if line.startswith("start")]
    assert starts == ["start candidate#1", "start control#3", "start control#4", "start candidate#2"]
    assert sum("MEASURED" in line for line in told) == 4


def test_an_arm_that_was_not_planned_is_only_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms, told = executor(plan("endpoint", roles=("target",)), tmp_path, monkeypatch)
    arms.server(candidate_arms(request())[0])
    assert told == ["start candidate#1"]


def test_a_slot_that_is_asked_for_is_the_one_that_is_leased(tmp_path: Any) -> None:
    pool = parse_pool("0-1", kind="cuda")
    lease = pool.acquire(timeout_s=0, folder=tmp_path, slot=pool.slots[1])
    assert lease.slot.name == "cuda:1"
    with pytest.raises(TimeoutError, match="cuda:1"):
        pool.acquire(timeout_s=0, folder=tmp_path, slot=pool.slots[1])
    lease.release()


@pytest.mark.parametrize(("mark", "refused"), [("perf", True), ("null_control", False)])
def test_seats_are_refused_to_what_measures_a_headline_and_to_nothing_else(mark: str, refused: bool) -> None:
    """Only what `-m` has chosen counts, not what lies in the same folder."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/perf"]
    done = subprocess.run(
        [*command, "-m", mark, "--gpu-pool", "cpu*2"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ("several servers share" in done.stderr + done.stdout) is refused, done.stdout + done.stderr
    assert done.returncode == (pytest.ExitCode.USAGE_ERROR if refused else pytest.ExitCode.OK)
