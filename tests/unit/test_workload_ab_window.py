"""The A/B window: starts take turns on one slot, swap slots on two, and every arm is measured on a fresh server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.arms.roles import claim_of
from fixtures.arms.servers import Arm, make_arm
from fixtures.engine.pool import Slot, parse_pool
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.workload.ab_window import Window

LANE = load_lane("canary-cpu")


def arms(role: str, first: int, count: int) -> list[Arm]:
    return [make_arm(LANE, role, replicate=first + n) for n in range(count)]


@dataclass
class Log:
    """Stands in for recordings and arms; writes down what is asked of them, in order."""

    pool_text: str
    lines: list[str] = field(default_factory=list)
    on_ready: dict[str, Callable[..., None]] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)

    @property
    def arms(self) -> Log:
        return self

    @property
    def pool(self) -> Any:
        return parse_pool(self.pool_text, kind="cuda", cores=[0, 1])

    def server(self, arm: Arm, on: Slot | None = None) -> SimpleNamespace:
        assert arm.spec.digest not in self.before, "the window would begin again"
        if arm.label not in self.up:
            self.up.add(arm.label)
            self.lines.append(f"start {arm.label} on {on.name if on else 'any'}")
            if arm.spec.digest in self.on_ready:
                self.on_ready[arm.spec.digest](None)
        return SimpleNamespace()

    def of(self, arm: Arm, suite: str, purpose: Purpose) -> None:
        self.server(arm)
        self.lines.append(f"{purpose.value} {arm.label}")

    def side_by_side(self, pair: tuple[Arm, Arm], suite: str, purpose: Purpose) -> None:
        self.lines.append(f"{purpose.value} {pair[0].label} beside {pair[1].label}")

    def record_plan(self, arm: Arm, server: object) -> None:
        self.lines.append(f"rest {arm.label}")


def recorded(pool: str, blocks: int = 2) -> list[str]:
    log = Log(pool)
    window = Window(arms("candidate", 1, blocks), arms("control", blocks + 1, blocks), "perf", "warmup")
    for arm in window.arms:
        log.before[arm.spec.digest] = lambda: None
        log.on_ready[arm.spec.digest] = lambda _, label=arm.label: log.lines.append(f"plan {label}")
    window.record(log)  # type: ignore[arg-type]
    window.record(log)  # type: ignore[arg-type]
    return log.lines


def test_one_slot_takes_turns_so_that_neither_side_is_always_first() -> None:
    assert [line for line in recorded("cpu:1", 4) if line.startswith("measured")] == [
        "measured candidate#1", "measured control#5", "measured control#6", "measured candidate#2",
        "measured candidate#3", "measured control#7", "measured control#8", "measured candidate#4",
    ]  # fmt: skip


def test_two_slots_are_swapped_and_nothing_else_runs_before_a_block_is_measured() -> None:
    assert recorded("0-1") == [
        "start candidate#1 on cuda:0", "start control#3 on cuda:1", "warmup candidate#1", "warmup control#3",
        "measured candidate#1 beside control#3", "rest candidate#1", "rest control#3",
        "start candidate#2 on cuda:1", "start control#4 on cuda:0", "warmup candidate#2", "warmup control#4",
        "measured candidate#2 beside control#4", "rest candidate#2", "rest control#4",
    ]  # fmt: skip


@pytest.mark.parametrize("pool", ["cpu*2", "0*2", "0-3:2"])
def test_seats_and_pairs_of_devices_serve_both_sides_at_once(pool: str) -> None:
    assert sum("beside" in line for line in recorded(pool)) == 2


def test_a_stack_against_itself_runs_on_servers_of_its_own() -> None:
    """A launch is known by its digest, in which the role is not: two sides must not share a server."""
    sides = [*arms("candidate", 1, 2), *arms("control", 3, 2)]
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
