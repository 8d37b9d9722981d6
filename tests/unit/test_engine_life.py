"""A server's life with a stand-in in the engine's place: traces on the host, failed audits, crashes, hangs."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from fixtures.engine.audit import audit_processes
from fixtures.engine.caches import FOLDERS
from fixtures.engine.health import probe_device
from fixtures.engine.pool import Lease, Slot
from fixtures.engine.remains import survivors
from fixtures.engine.server import Server
from fixtures.engine.sockets import PATH_LIMIT, claim_socket_folder, sweep_sockets
from fixtures.engine.starting import AuditFailed, StartFailed
from fixtures.parsing import BadInput
from tests.unit.standin.launching import HOME, overlay, slots, start


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's child never ends by itself: there is no use in waiting for it."""
    monkeypatch.setattr("fixtures.engine.starting.GRACE_S", 0.3)


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return slots(1).acquire(timeout_s=0, folder=tmp_path)


def traces(server: Server) -> list[str]:
    """What a server could leave: processes, socket files, shared memory, a port that answers."""
    left = [str(p) for p in survivors(server.instance)]
    left += [str(p) for p in server.sockets.path.glob("*")]
    for note in (server.folder / "notes").iterdir():
        port, memory = note.read_text().split()
        left += [memory] if Path("/dev/shm", memory).exists() else []
        with socket.socket() as probe:
            left += [f"port {port}"] if probe.connect_ex(("127.0.0.1", int(port))) == 0 else []
    return left


def test_a_server_that_is_up_leaves_traces_and_one_that_was_stopped_leaves_none(
    lease: Lease, tmp_path: Path
) -> None:
    """A killed engine cannot clean up after itself: its sockets and its shared memory are taken away with it."""
    server = start(lease, tmp_path / "server")
    assert len(traces(server)) >= 5, traces(server)
    assert server.stop() == ()
    assert traces(server) == []
    assert not server.sockets.path.exists()


def test_a_server_that_was_killed_in_use_is_told_from_one_that_was_stopped(
    lease: Lease, tmp_path: Path
) -> None:
    """Its own process dies; the supervisor ends the rest."""
    server = start(lease, tmp_path / "server")
    (first,) = [int(n.name) for n in (tmp_path / "server" / "notes").iterdir()]
    assert server.is_alive()
    assert server.is_well()
    os.kill(first, signal.SIGKILL)
    server.wait_for_end(20)
    assert not server.is_alive()
    assert server.why_dead().cause == "killed"
    assert server.stop() == ()
    assert traces(server) == []


def test_a_process_that_outlives_its_grace_is_slow_and_not_left_behind(lease: Lease, tmp_path: Path) -> None:
    """The stand-in's child ignores SIGTERM; it is killed, said, and gone."""
    server = start(lease, tmp_path / "server")
    assert server.stop() == ()
    assert any("outlived its grace" in line for line in server.slow), server.slow
    assert not survivors(server.instance)


def test_a_process_that_nothing_ends_is_left_behind(
    lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that hangs in its driver: killed in vain, within bounded time."""
    server = start(lease, tmp_path / "server")
    server.supervisor.kill()
    server.supervisor.wait()
    monkeypatch.setattr("fixtures.engine.server.CLEAR_S", 0.2)
    monkeypatch.setattr("fixtures.engine.server.kill_all", lambda processes: None)
    left = server.stop()
    monkeypatch.undo()
    assert any("is alive after SIGKILL" in what for what in left), left
    assert server.left == left
    server.stop()  # for good, now that killing works
    assert not survivors(server.instance)


def test_caches_of_a_start_are_its_own_and_begin_empty(lease: Lease, tmp_path: Path) -> None:
    """What one start has compiled or tuned is not what the next one runs."""
    server = start(lease, tmp_path / "server")
    (first,) = [r for r in server.process_reports if r.kind == "process"][:1]
    folders = {name: Path(first.environment[name]) for name in FOLDERS}
    assert all(path.is_dir() and path.is_relative_to(tmp_path / "server") for path in folders.values())
    assert server.caches is not None
    assert set(server.caches.describe({}).values()) == {"empty"}
    assert server.stop() == ()


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ("520", None),
        ("9000", "cuda:0: 9000 MiB in use, 500 before the start"),
        ("n/a", "does not say any more"),
    ],
    ids=["given-back", "kept", "driver-silent"],
)
def test_device_memory_goes_back_to_what_it_was(
    lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, left: str | None
) -> None:
    """As the driver says: before the start, and after the end."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/used ] && echo {after} && exit\ntouch {tmp_path}/used\necho 500\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("fixtures.engine.server.MEMORY_S", 0.2)
    server = start(lease, tmp_path / "server")
    said = server.stop()
    assert said == () if left is None else (len(said) == 1 and left in said[0]), said


def test_a_server_that_never_gets_ready_is_a_hang_and_gone(lease: Lease, tmp_path: Path) -> None:
    """With the stacks of its processes, where py-spy is there and allowed to look."""
    with pytest.raises(StartFailed) as caught:
        start(lease, tmp_path / "server", start_s=60, timeout_s=2.5)
    failure = caught.value.failure
    assert failure.cause == "hang"
    assert "reading the configuration" in failure.message
    assert failure.stack_dump
    assert lease.fds == [], "the slot is free again"


def wrapper_script(tmp_path: Path, script: str) -> tuple[str, ...]:
    """A launcher that does something on its own before it starts what it was told to start."""
    wrapper = tmp_path / "start.sh"
    wrapper.write_text(f'#!/bin/sh\n{script}\nexec "$@"\n')
    wrapper.chmod(0o755)
    return (str(wrapper),)


SECOND_ENGINE = """mkdir -p {there}/vllm && cp -r {here}/vllm/. {there}/vllm
export PYTHONPATH={there}:$PYTHONPATH"""


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("export VLLM_CPU_KVCACHE_SPACE=8", "environment VLLM_CPU_KVCACHE_SPACE"),
        ("unset HF_HUB_OFFLINE", "environment HF_HUB_OFFLINE"),
        (SECOND_ENGINE, "engine package"),
    ],
    ids=["overrides-a-variable", "removes-a-variable", "second-engine-earlier-on-the-path"],
)
def test_a_launcher_that_changes_what_was_asked_for_is_found_while_the_server_starts(
    lease: Lease, tmp_path: Path, script: str, named: str
) -> None:
    """Long before it would be ready: a process writes its report when it has imported the engine."""
    launcher = wrapper_script(tmp_path, script.format(here=HOME, there=tmp_path / "second"))
    with pytest.raises(AuditFailed, match=named) as caught:
        start(
            lease,
            tmp_path / "server",
            start_s=60,
            launcher=launcher,
            check_reports=lambda said, env: audit_processes(
                said, package_dir=overlay().package_dir, environment=env
            ),
        )
    assert all(named in d.what for d in caught.value.discrepancies)
    assert not survivors(caught.value.server.instance)


def test_a_launcher_that_changes_nothing_is_not_refused(lease: Lease, tmp_path: Path) -> None:
    """The quiet side, with a wrapper that changes nothing."""
    server = start(
        lease,
        tmp_path / "server",
        launcher=wrapper_script(tmp_path, "true"),
        check_reports=lambda said, env: audit_processes(
            said, package_dir=overlay().package_dir, environment=env
        ),
    )
    assert server.process_reports
    assert server.stop() == ()


def test_sockets_have_room_for_their_names_wherever_temporary_files_are(tmp_path: Path) -> None:
    """A path of more than 107 bytes is no address: a folder that is too deep is passed over."""
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    folder = claim_socket_folder([deep / "sockets", Path("/tmp") / f"draftproof-{os.getuid()}"])
    path = folder.path / ("0" * 36)
    assert len(os.fsencode(path)) <= PATH_LIMIT
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(path))
    folder.remove()
    folder.remove()
    assert not folder.path.exists()
    with pytest.raises(BadInput, match="no folder for sockets: tried"):
        claim_socket_folder([deep / "sockets"])


def test_sockets_of_the_dead_are_swept_and_those_of_the_living_are_not() -> None:
    """A supervisor that was killed removes nothing: the next server does."""
    parent = Path("/tmp") / f"draftproof-{os.getuid()}-{os.getpid()}"
    abandoned = claim_socket_folder([parent])
    os.close(abandoned.fd)
    living = claim_socket_folder([parent])
    assert not abandoned.path.exists()
    assert sweep_sockets(parent) == ()
    assert living.path.is_dir()
    living.remove()
    parent.rmdir()


@pytest.mark.parametrize(
    ("says", "word"),
    [
        ("print('well')", None),
        ("raise SystemExit(1)", "exit code 1"),
        ("import sys; sys.exit('UR_RESULT_ERROR_DEVICE_LOST')", "DEVICE_LOST"),
        ("print('unsure')", "unsure"),
        ("import time; time.sleep(60)", "no answer within 1 s"),
    ],
    ids=["well", "fails", "lost", "says-something-else", "hangs"],
)
def test_a_device_is_well_only_if_it_computes(tmp_path: Path, says: str, word: str | None) -> None:
    """After a crash: whoever does not answer right, or not at all, is not well."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{says}\n")
    python.chmod(0o755)
    said = probe_device(Slot("xpu", (3,)), python=str(python), timeout_s=1)
    assert said is None if word is None else (said is not None and word in said and said.startswith("xpu:3"))


def test_this_machines_processor_computes() -> None:
    """The real probe."""
    assert probe_device(Slot("cpu", (0,), (0,), confined=False)) is None
