"""A real server judged by its address alone, as if somebody else had started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.arms.arm import Arm
from fixtures.arms.external import NOT_SHOWN
from fixtures.arms.servers import Arms
from fixtures.evidence.reading import read_packet
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import REPOSITORY

pytestmark = [pytest.mark.demonstration, pytest.mark.ours("audit")]


@pytest.mark.parametrize("arm", ["candidate"], indirect=True)
def test_a_right_server_that_is_not_ours_is_pending_and_nothing_else(
    arm: Arm, arms: Arms, tmp_path: Path
) -> None:
    """API and canaries pass; what only its owner could show is named, and keeps the verdict from being more."""
    server = arms.server(arm)
    chosen = [
        "tests/endpoint/test_server_life.py",
        "tests/endpoint/test_api_smoke.py",
        "tests/quality/test_canaries.py::test_canaries_are_right_every_time",
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *chosen,
        "--lane",
        arm.lane.name,
    ]
    command += ["--base-url", server.endpoint.base_url, "--api-key", server.endpoint.api_key or ""]
    done = subprocess.run(
        [*command, "--evidence", str(tmp_path / "packet")],
        cwd=REPOSITORY,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    packet = read_packet(tmp_path / "packet")
    verdict = derive(packet.rows)
    said = done.stdout + done.stderr
    assert verdict.outcome is Outcome.PENDING, said
    assert done.returncode == verdict.exit_code, said
    undecided = {f.check for f in verdict.findings if f.outcome is Outcome.PENDING}
    assert undecided >= {f"not shown.{what}" for what in NOT_SHOWN}, said
    assert {t["outcome"] for t in packet.rows["test"]} == {"passed"}, said
    canaries = [t for t in packet.rows["transcript"] if t["purpose"] == Purpose.CANARY]
    assert canaries, "the canaries were asked"
    assert server.is_alive(), "it was not ours to stop"
