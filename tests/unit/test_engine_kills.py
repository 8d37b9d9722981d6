"""Kills at random moments of a server's life: no orphan, no leased device, no port, no socket, no shared memory.

A stand-in takes the engine's place; everything around it is the product's own: owner (as pytest is), lease, supervisor,
launcher, client. Everybody is killed in turn, at moments drawn from a seed that the failure names.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from fixtures.engine.sockets import sweep_sockets
from fixtures.engine.starting import StartFailed
from tests.unit.standin.launching import MARK, marked, slots, start

VICTIMS = {
    "owner": "",
    "supervisor": "supervisor.py",
    "server": "vllm.entrypoints.openai.api_server",
    "child": "-S",
}
"""Who may be killed, and the word of its command line by which it is found."""
LATEST_S = 1.0
"""A stand-in is up after about half a second; every other life is ended at a moment before, every other one after."""
CLEAR_S = 20.0


def own_a_server(mark: str, folder: Path, leases: Path, temporary: str, told: Connection) -> None:
    """What a pytest process does: lease, start, wait for the end, stop. Runs in a process of its own."""
    os.environ[MARK] = mark
    tempfile.tempdir = temporary
    from fixtures.engine import starting as life

    life.GRACE_S = 0.3
    lease = slots(1).acquire(timeout_s=CLEAR_S, folder=leases)
    try:
        server = start(lease, folder)
    except StartFailed as failed:
        told.send(("failed", failed.failure.cause))
        return
    told.send(("up", ""))
    told.recv()
    server.stop()
    told.send(("stopped", ""))


@pytest.fixture(scope="module")
def nursery() -> multiprocessing.context.ForkServerContext:
    """Owners are forked from a process that has everything imported: fifty interpreters would take minutes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.standin.launching"])
    return context


def victim_of(name: str, mark: str, owner: int) -> int:
    """The process to kill; the owner where the chosen one is not there (yet)."""
    for process in marked(mark) if name != "owner" else []:
        try:
            if any(VICTIMS[name] in part for part in process.cmdline()):
                return process.pid
        except psutil.NoSuchProcess:
            continue
    return owner


def what_is_left(mark: str, folder: Path, leases: Path, temporary: Path) -> list[str]:
    """Everything of one life that is still there."""
    left = [f"process {p.pid}" for p in marked(mark)]
    for note in (folder / "notes").glob("*"):
        port, _, memory = note.read_text().partition(" ")
        with socket.socket() as probe:
            left += [f"port {port}"] if port and probe.connect_ex(("127.0.0.1", int(port))) == 0 else []
        left += [f"shared memory {memory}"] if memory and Path("/dev/shm", memory).exists() else []
    try:
        slots(1).acquire(timeout_s=0, folder=leases).release()
    except TimeoutError:
        left.append("the lease")
    sockets = temporary / f"draftproof-{os.getuid()}"
    sweep_sockets(sockets)  # as the next server does
    return left + [f"sockets {p.name}" for p in sockets.glob("*")]


def live_and_be_killed(nursery: multiprocessing.context.ForkServerContext, seed: int, folder: Path) -> str:
    """One life and its end; returns who was killed in which state. Raises `AssertionError` for what is left."""
    draw = random.Random(seed)
    name, moment_s = list(VICTIMS)[seed // 2 % len(VICTIMS)], draw.uniform(0, LATEST_S)
    mark, leases = f"{os.getpid()}-{seed}", folder / "leases"
    leases.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="dp", dir="/tmp") as temporary:
        ours, theirs = nursery.Pipe()
        owner = nursery.Process(target=own_a_server, args=(mark, folder, leases, temporary, theirs))
        owner.start()
        if seed % 2:
            assert ours.poll(CLEAR_S), "the owner says nothing"
        time.sleep(moment_s / (1 + 2 * (seed % 2)))  # the random moment
        victim = victim_of(name, mark, owner.pid or 0)
        state = ours.recv()[0] if ours.poll() else "starting"
        os.kill(victim, signal.SIGKILL)
        if victim != owner.pid:
            if state == "starting":
                assert ours.poll(CLEAR_S), "the owner says nothing"
                state = f"starting, then {ours.recv()[0]}"
            if state.endswith("up"):
                ours.send("stop")
            owner.join(CLEAR_S)
        owner.join(CLEAR_S)
        assert owner.exitcode is not None, "the owner does not end"
        deadline = time.monotonic() + CLEAR_S
        while (left := what_is_left(mark, folder, leases, Path(temporary))) and time.monotonic() < deadline:
            time.sleep(0.05)  # after `kill -9` nobody is there to be asked
        for process in marked(mark):
            process.kill()
    who = "owner" if victim == owner.pid else name
    assert not left, f"seed {seed}: {who} killed after {moment_s:.2f} s ({state}), left: {', '.join(left)}"
    return f"{who}, {state}"


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.stress)])
def test_nothing_is_left_after_kills_at_random_moments(
    nursery: multiprocessing.context.ForkServerContext, kills: int, tmp_path: Path
) -> None:
    """Owner, supervisor, server or its child, before, while and after it is ready."""
    ends = Counter(live_and_be_killed(nursery, seed, tmp_path / str(seed)) for seed in range(kills))
    print("\n".join(f"{count:3d}  {end}" for end, count in sorted(ends.items())))
    assert {e.split(",")[0] for e in ends} == set(VICTIMS), ends
    assert any("up" in e for e in ends), "no server got as far as being up"
    assert any(e.endswith("starting") for e in ends), "no server was killed while it started"
