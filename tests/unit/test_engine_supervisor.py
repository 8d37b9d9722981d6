"""The supervisor: a server never outlives its run, however the run ends. A light stand-in takes the server's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from fixtures.engine.server import INSTANCE_VARIABLE, SUPERVISOR, survivors

TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"]
subprocess.Popen(child)
if os.fork() == 0:          # a daemon: its parent exits at once, and it leaves the session
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print("up", flush=True)
time.sleep(60)
"""
OWNER = """
import os, subprocess, sys, time
read, write = os.pipe()
command = [sys.executable, "-P", sys.argv[1], str(read), "0.2", "--", sys.executable, "-c", sys.argv[2]]
subprocess.Popen(command, pass_fds=(read,), start_new_session=True)
os.close(read)
time.sleep(60)
"""


def start(*, owned: bool) -> tuple[subprocess.Popen[str], int, str]:
    """A supervisor with a tree of stubborn processes; if wanted, its owner is a process that can be killed."""
    instance = uuid.uuid4().hex
    environment = os.environ | {INSTANCE_VARIABLE: instance}
    if owned:
        command = [sys.executable, "-c", OWNER, str(SUPERVISOR), TREE]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        write = -1
    else:
        read, write = os.pipe()
        command = [sys.executable, "-P", str(SUPERVISOR), str(read), "0.2", "--", sys.executable, "-c", TREE]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            pass_fds=(read,),
            start_new_session=True,
        )
        os.close(read)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process, write, instance


def wait_until_gone(instance: str, within_s: float = 20) -> list[psutil.Process]:
    """Processes of the instance that are still there after a while; none, that is."""
    deadline = time.monotonic() + within_s
    while (left := survivors(instance)) and time.monotonic() < deadline:
        time.sleep(0.1)  # the kernel tells nobody when somebody else's grandchild is gone
    return left


def test_closing_the_pipe_ends_the_whole_tree() -> None:
    supervisor, pipe, instance = start(owned=False)
    assert len(survivors(instance)) >= 3
    os.close(pipe)
    supervisor.wait(timeout=20)
    assert not wait_until_gone(instance)


def test_terminating_the_supervisor_ends_the_whole_tree() -> None:
    supervisor, pipe, instance = start(owned=False)
    supervisor.terminate()
    supervisor.wait(timeout=20)
    os.close(pipe)
    assert not wait_until_gone(instance)


def test_kill_9_of_the_owner_leaves_nothing() -> None:
    """That is `kill -9` of pytest: nobody is left to clean up, and yet the tree goes."""
    owner, _, instance = start(owned=True)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert not wait_until_gone(instance)


def test_kill_9_of_the_supervisor_ends_the_servers_first_process() -> None:
    supervisor, pipe, instance = start(owned=False)
    first = psutil.Process(supervisor.pid).children()[0]
    supervisor.kill()
    supervisor.wait()
    os.close(pipe)
    gone, _ = psutil.wait_procs([first], timeout=10)
    for process in survivors(instance):  # what it had started: found by the mark, as `Server.stop` finds it
        process.kill()
    assert gone
    assert not wait_until_gone(instance)


@pytest.mark.parametrize(
    ("command", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 4)", 132)]
)
def test_the_exit_code_is_the_servers(command: str, code: int) -> None:
    read, write = os.pipe()
    supervisor = [sys.executable, "-P", str(SUPERVISOR), str(read), "1", "--", sys.executable, "-c", command]
    done = subprocess.run(supervisor, pass_fds=(read,), check=False, timeout=30)
    os.close(read)
    os.close(write)
    assert done.returncode == code


def test_the_supervisor_knows_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(SUPERVISOR)), "0", "1", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "usage" in done.stderr
