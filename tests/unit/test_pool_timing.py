"""Four arms on a pool of four slots: how much of the serial time they take, with a start that takes a fixed time."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from tests.unit.standin.launching import slots, start

pytestmark = pytest.mark.timed

START_S = 4.0
"""Of waiting, not of computing: what is measured is the pool, on any number of cores."""
ARMS = 4
MOST_OF_SERIAL = 0.35


def live(folder: Path, leases: Path, count: int) -> None:
    """One arm's life on a pool of `count` slots: lease, start, stop. Runs in a process of its own, as a worker does."""
    from fixtures.engine import starting as life

    life.GRACE_S = 0.1
    lease = slots(count).acquire(timeout_s=120, folder=leases)
    server = start(lease, folder, start_s=START_S)
    left = server.stop()
    assert not left, left


def run_on(count: int, folder: Path) -> float:
    """Seconds that four arms take on a pool of `count` slots, all asked for at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.standin.launching"])
    leases = folder / "leases"
    leases.mkdir(parents=True)
    workers = [context.Process(target=live, args=(folder / str(n), leases, count)) for n in range(ARMS)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0] * ARMS
    return time.monotonic() - began


def test_four_arms_on_four_slots_take_a_third_of_the_serial_time(tmp_path: Path) -> None:
    """And with one slot they take turns: four starts one after the other."""
    run_on(ARMS, tmp_path / "warm")  # the forkserver imports the launcher once
    together, serial = run_on(ARMS, tmp_path / "together"), run_on(1, tmp_path / "serial")
    print(f"four slots {together:.2f} s, one slot {serial:.2f} s, ratio {together / serial:.3f}")
    assert serial >= ARMS * START_S, "one slot holds one server"
    assert together / serial <= MOST_OF_SERIAL
