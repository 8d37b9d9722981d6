"""Engines that a lane starts by a command of its own: a script in the place of `docker run`, a stand-in as the
engine."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from fixtures.engine.command import expand, write_environment
from fixtures.engine.overlay import no_overlay
from fixtures.engine.patch_sets import load_stack
from fixtures.engine.pool import Lease
from fixtures.engine.remains import survivors
from fixtures.engine.server import Server
from fixtures.engine.starting import StartFailed
from fixtures.lanes.lane import PLACES, load_lane
from fixtures.parsing import BadInput
from tests.unit.standin.launching import HOME, slots, start

CONTAINER = """#!/bin/sh
# As a container: nothing of the caller's environment but what it is handed in a file, and its own search path.
port=$1; model=$2; name=$3; file=$4; shift 4
echo "container: $(grep -c HF_HUB_OFFLINE=1 "$file") variable from the file"
env -i PATH=/usr/bin:/bin PYTHONPATH={home} STANDIN_START_S=0 STANDIN_NOTES="$STANDIN_NOTES" {extra} \\
    {python} -m vllm.entrypoints.openai.api_server --port "$port" --model "$model" --served-model-name "$name" "$@" &
trap "kill -TERM $!" TERM
wait
"""
PIN = load_lane("canary-cpu").engine


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's child never ends by itself: there is no use in waiting for it."""
    monkeypatch.setattr("fixtures.engine.starting.GRACE_S", 0.3)


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return slots(1).acquire(timeout_s=0, folder=tmp_path)


def contain(lease: Lease, folder: Path, extra: str = "") -> Server:
    """Start the stand-in as a container would be started."""
    script = folder / "container.sh"
    script.write_text(CONTAINER.format(home=HOME, python=sys.executable, extra=extra))
    script.chmod(0o755)
    command = (str(script), "{port}", "{model}", "{served_name}", "{environment_file}", "{arguments}")
    return start(lease, folder / "server", command=command, elsewhere=True)


def test_an_engine_in_a_container_is_leased_asked_logged_and_taken_away(lease: Lease, tmp_path: Path) -> None:
    """Its processes say nothing about themselves: the audit reads the API, and names what the API does not show."""
    server = contain(lease, tmp_path)
    port = server.endpoint.address[1]
    assert server.audit(PIN) == ()
    assert server.not_shown[0] == "code and environment of the engine's processes"
    assert {"model_config.dtype", "speculative_config.method"} <= set(server.not_shown)
    assert not {"model_config.model", "cache_config.enable_prefix_caching"} & set(server.not_shown)
    assert "container: 1 variable from the file" in server.log_text
    assert server.stop() == ()
    assert not survivors(server.instance)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    slots(1).acquire(timeout_s=0, folder=tmp_path).release()


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ("STANDIN_VERSION=0.33.0", "engine version"),
        ("STANDIN_CACHING=True", "cache_config.enable_prefix_caching"),
    ],
)
def test_what_the_api_shows_to_be_other_than_asked_for_is_a_discrepancy(
    lease: Lease, tmp_path: Path, extra: str, named: str
) -> None:
    server = contain(lease, tmp_path, extra)
    found = server.audit(PIN)
    server.stop()
    assert [d.what for d in found] == [named]


def test_a_command_that_starts_nothing_is_a_failed_start_with_its_log(lease: Lease, tmp_path: Path) -> None:
    command = ("sh", "-c", "echo docker: no such image; exit 125", "{port}")
    with pytest.raises(StartFailed, match="exit code 125") as caught:
        start(lease, tmp_path / "server", command=command, elsewhere=True)
    assert "docker: no such image" in caught.value.failure.log_lines
    assert caught.value.left == ()
    assert lease.fds == [], "the slot is free again"


def test_a_command_here_is_audited_by_its_processes(lease: Lease, tmp_path: Path) -> None:
    """A script that keeps the environment: process reports come, as from the engine's own command."""
    command = ("{python}", "-m", "vllm.entrypoints.openai.api_server", "--port", "{port}", "{arguments}")
    server = start(lease, tmp_path / "server", command=command)
    assert server.process_reports
    assert server.stop() == ()


def test_places_are_filled_and_arguments_become_words() -> None:
    words = expand(("run", "--port={port}", "{arguments}", "{other}"), {"port": "81"}, ("--a", "1"))
    assert words == ["run", "--port=81", "--a", "1", "{other}"]
    with pytest.raises(ValueError, match="A: a value of several lines"):
        write_environment(Path("/dev/null"), {"A": "1\n2"})


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ('["docker", "{prot}"]', r"engine: .*unknown place \{prot\}; known: port, model"),
        ('["docker", "run"]', r"engine: .*\{port\} is missing"),
    ],
)
def test_a_lane_with_a_command_that_cannot_work_is_refused(tmp_path: Path, command: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'name = "mine"\ndescription = "x"\nextends = "canary-cpu"\n[engine]\ncommand = {command}\n'
    )
    with pytest.raises(BadInput, match=says):
        load_lane(str(path))
    assert len(set(PLACES)) == len(PLACES)


def test_an_engine_that_is_not_here_cannot_be_patched() -> None:
    assert no_overlay(load_stack("stock"), "vllm", "0.25.1").root is None
    with pytest.raises(BadInput, match="stack text-only: the engine of this lane is not installed here"):
        no_overlay(load_stack("text-only"), "vllm", "0.25.1")
