"""The supervisor: a server never outlives its run, however the run ends. A light stand-in takes the server's place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from fixtures.engine.remains import INSTANCE_VARIABLE, survivors
from fixtures.engine.starting import SUPERVISOR
from fixtures.engine.supervisor import ENDING_VARIABLE

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
command = [sys.executable, "-P", sys.argv[1], str(read), "0.2", "0.2", "--", sys.executable, "-c", sys.argv[2]]
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
        command = [
            sys.executable,
            "-P",
            str(SUPERVISOR),
            str(read),
            "0.2",
            "0.2",
            "--",
            sys.executable,
            "-c",
            TREE,
        ]
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


ORDER = """
import os, signal, socket, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, sys, time\\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('child', flush=True), sys.exit()))\\n"
    "print('ready', flush=True)\\ntime.sleep(60)"])
listening = socket.create_server(("127.0.0.1", 0))
def end(*_):
    print("server", flush=True)
    time.sleep(0.5)
    print("server done", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(60)
"""


def run_and_end(code: str, shutdown_s: str, ending: Path, lines: int = 2) -> list[str]:
    """Supervise `code`, close the pipe once it has said `lines` lines, and return what is said after that."""
    read, write = os.pipe()
    done = subprocess.Popen(
        [
            sys.executable,
            "-P",
            str(SUPERVISOR),
            str(read),
            shutdown_s,
            "0.2",
            "--",
            sys.executable,
            "-c",
            code,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {ENDING_VARIABLE: str(ending)},
        pass_fds=(read,),
        start_new_session=True,
    )
    os.close(read)
    assert done.stdout is not None
    for _ in range(lines):
        done.stdout.readline()
    os.close(write)
    said, _ = done.communicate(timeout=30)
    return said.splitlines()


def test_the_server_is_asked_alone_and_the_rest_only_when_it_is_done(tmp_path: Path) -> None:
    """An API server ends its engine in its own order: a device that loses its engine at work may need a reset."""
    assert run_and_end(ORDER, "20", tmp_path / "ending") == ["server", "server done", "child"]
    assert json.loads((tmp_path / "ending").read_text())["slow"] == []


def test_what_outlives_its_grace_is_said_and_gone(tmp_path: Path) -> None:
    """The whole tree ignores SIGTERM: everything is killed, and each is named."""
    assert run_and_end(TREE, "0.2", tmp_path / "ending", lines=1) == []
    slow = json.loads((tmp_path / "ending").read_text())["slow"]
    assert "did not end within 0.2 s of SIGTERM" in slow[0]
    assert sum("outlived its grace of 0.2 s and was killed" in line for line in slow) >= 3, slow


@pytest.mark.parametrize(
    ("command", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 4)", 132)]
)
def test_the_exit_code_is_the_servers(command: str, code: int) -> None:
    read, write = os.pipe()
    supervisor = [
        sys.executable,
        "-P",
        str(SUPERVISOR),
        str(read),
        "1",
        "1",
        "--",
        sys.executable,
        "-c",
        command,
    ]
    done = subprocess.run(supervisor, pass_fds=(read,), check=False, timeout=30)
    os.close(read)
    os.close(write)
    assert done.returncode == code


def test_the_supervisor_knows_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(SUPERVISOR)), "0", "1", "1", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "usage" in done.stderr
