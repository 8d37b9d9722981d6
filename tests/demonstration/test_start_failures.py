"""A server that cannot come up: a named cause with the lines of the log that matter, and nothing left behind."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.engine.server import StartFailed, survivors
from fixtures.lanes.lane import Lane
from fixtures.session.arms import Arms, make_arm
from fixtures.session.trial import RowList

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


def test_a_wrapper_that_overrides_a_variable_is_refused(arms: Arms, lane: Lane, tmp_path: Path) -> None:
    """The classic lie: a start script sets a variable to its own value; the audit reads the engine's process."""
    wrapper = tmp_path / "start.sh"
    wrapper.write_text('#!/bin/sh\nexport VLLM_NO_USAGE_STATS=0\nexec "$@"\n')
    wrapper.chmod(0o755)
    lying = lane.model_copy(update={"engine": lane.engine.model_copy(update={"launcher": (str(wrapper),)})})
    arm, rows = make_arm(lying, "target", replicate=9), RowList()
    with pytest.raises(RuntimeError, match="VLLM_NO_USAGE_STATS"):
        arms.server(arm, evidence=rows)
    instance = str(rows.rows["arm"][0]["instance"])
    assert any(
        row["check"] == "server.audit" and row["outcome"] == "rejected" for row in rows.rows["finding"]
    )
    assert not survivors(instance), "a refused server is stopped"
