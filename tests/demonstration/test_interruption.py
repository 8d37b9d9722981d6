"""A run that is interrupted while a server starts: no process is left, and the packet can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fixtures.engine.remains import INSTANCE_VARIABLE, survivors
from fixtures.evidence.reading import read_packet
from fixtures.evidence.verify import verify_packet
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import REPOSITORY, Lane

pytestmark = pytest.mark.demonstration


def _heed_interrupts() -> None:
    """A shell's background jobs ignore Ctrl-C, and hand that down to everything that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def run(lane: Lane, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An endpoint run of its own, with its own lease folder: it never gets as far as competing for the device."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "tests/endpoint/test_server_life.py",
        "--lane",
        lane.name,
    ]
    process = subprocess.Popen(
        [*command, "--evidence", str(tmp_path / "packet")],
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def starting_instance(run: subprocess.Popen[bytes], within_s: float = 60) -> str:
    """The mark of the server that the run is starting."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for process in psutil.Process(run.pid).children(recursive=True):
            try:
                environment, command = process.environ(), process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if INSTANCE_VARIABLE in environment and "vllm.entrypoints.openai.api_server" in command:
                return environment[INSTANCE_VARIABLE]
        time.sleep(0.2)  # a process that appears tells nobody
    raise AssertionError("the run started no server")


def wait_for_use(packet: Path, within_s: float = 300) -> None:
    """Wait until the run's server is up and has been audited: its row is in the packet."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if any(path.stat().st_size for path in packet.glob("rows/arm*.jsonl")):
            return
        time.sleep(0.2)  # a packet tells nobody that it has grown
    raise AssertionError("the run's server did not get ready")


@pytest.mark.parametrize(
    ("number", "in_use"),
    [
        (signal.SIGINT, False),
        (signal.SIGKILL, False),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.stress),
    ],
    ids=["interrupt-while-starting", "kill-while-starting", "kill-in-use"],
)
def test_an_interrupted_run_leaves_no_process_and_a_readable_packet(
    run: subprocess.Popen[bytes], number: int, in_use: bool, tmp_path: Path
) -> None:
    """Ctrl-C, and `kill -9` of pytest: the supervisor ends the server; what was written is evidence, no verdict."""
    instance = starting_instance(run)
    if in_use:
        wait_for_use(tmp_path / "packet")
    run.send_signal(number)
    run.wait(timeout=180)  # the server ends within seconds; a busy machine takes longer to seal the packet
    assert run.returncode == (pytest.ExitCode.INTERRUPTED if number == signal.SIGINT else -signal.SIGKILL)
    deadline = time.monotonic() + 30
    while (left := survivors(instance)) and time.monotonic() < deadline:
        time.sleep(0.2)  # after `kill -9` nobody is there to be asked
    assert not left, left
    packet = read_packet(tmp_path / "packet")
    assert packet.identity["lane"]["name"]
    assert packet.finished == (number == signal.SIGINT)
    assert verify_packet(tmp_path / "packet").outcome is not Outcome.ACCEPTED
