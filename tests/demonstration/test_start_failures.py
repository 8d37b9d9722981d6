"""A server that cannot come up: a named cause with the lines of the log that matter, and nothing left behind."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import ArmRefused, Arms
from fixtures.engine.installed import installed_engine
from fixtures.engine.overlay import temporary_overlay
from fixtures.engine.patch_sets import load_stack
from fixtures.engine.remains import survivors
from fixtures.engine.starting import StartFailed
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import Lane

pytestmark = pytest.mark.demonstration


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of the kernel's choice on which somebody else listens already."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


def failed_start(arms: Arms, lane: Lane) -> tuple[StartFailed, RowList]:
    """Start the target arm of `lane`, which has to fail; the failure and the rows that it wrote."""
    rows = RowList()
    with pytest.raises(StartFailed) as caught:
        arms.server(make_arm(lane, "target", replicate=9), evidence=rows)
    return caught.value, rows


def test_an_incomplete_model_folder_is_named(arms: Arms, lane: Lane, tmp_path: Path) -> None:
    """Weights missing: the message says so, not just that a process died."""
    model = tmp_path / "model"
    shutil.copytree(lane.model.folder, model, ignore=shutil.ignore_patterns("*.safetensors"))
    broken = lane.model_copy(update={"model": lane.model.model_copy(update={"path": str(model)})})
    failure, rows = failed_start(arms, broken)
    assert failure.failure.cause == "incomplete model folder", str(failure)
    assert 1 <= len(failure.failure.log_lines) <= 10
    (finding,) = rows.rows["finding"]
    assert finding["check"] == "server.start"
    assert finding["outcome"] == "inconclusive"
    assert "incomplete model folder" in finding["message"]


def test_a_port_that_is_taken_is_named(arms: Arms, lane: Lane, taken_port: int) -> None:
    """The other listener is not mistaken for the server: readiness looks at the server's own sockets."""
    fixed = lane.model_copy(update={"engine": lane.engine.model_copy(update={"port": taken_port})})
    failure, _ = failed_start(arms, fixed)
    assert failure.failure.cause == "port taken", str(failure)


def refused(arms: Arms, lane: Lane, wrapper: Path, script: str) -> tuple[ArmRefused, RowList]:
    """Start the target arm through a start script that changes something; the refusal and the rows that it wrote."""
    wrapper.write_text(f'#!/bin/sh\n{script}\nexec "$@"\n')
    wrapper.chmod(0o755)
    changed = lane.model_copy(update={"engine": lane.engine.model_copy(update={"launcher": (str(wrapper),)})})
    rows = RowList()
    with pytest.raises(ArmRefused) as caught:
        arms.server(make_arm(changed, "target", replicate=9), evidence=rows)
    (arm,) = rows.rows["arm"]
    assert arm["discrepancies"]
    assert not survivors(str(arm["instance"])), "a refused server is stopped"
    assert {(row["check"], row["outcome"]) for row in rows.rows["finding"]} == {("server.audit", "rejected")}
    assert "transcript" not in rows.rows, "no request is sent to such an arm"
    return caught.value, rows


def test_a_wrapper_that_overrides_a_variable_is_refused(arms: Arms, lane: Lane, tmp_path: Path) -> None:
    """The classic: a start script sets a variable to its own value; the audit reads the engine's process."""
    refusal, _ = refused(arms, lane, tmp_path / "start.sh", "export VLLM_NO_USAGE_STATS=0")
    assert "environment VLLM_NO_USAGE_STATS" in str(refusal)


def test_a_second_engine_earlier_on_the_path_is_refused(arms: Arms, lane: Lane, tmp_path: Path) -> None:
    """The other classic: a leftover copy of the engine, patched once for something else, is found first."""
    installed = installed_engine(lane.engine.distribution)
    with temporary_overlay(load_stack("spec-round-trace"), installed, arms.folder / "leftover") as other:
        script = f"export PYTHONPATH={other.root}:$PYTHONPATH"
        refusal, _ = refused(arms, lane, tmp_path / "start.sh", script)
    assert "engine package" in str(refusal)
    assert str(other.root) in str(refusal)
