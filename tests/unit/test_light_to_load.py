"""What judges and reports needs no torch and no engine: loading a plugin costs nothing until its tests are selected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.evidence.packet import PacketWriter
from fixtures.judge.finding import Finding, Outcome
from fixtures.lanes.lane import REPOSITORY

WITHOUT = """
import runpy, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
sys.path.insert(0, ".")
sys.argv[1:] = {arguments}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
HEAVY = ("torch", "vllm", "triton", "transformers", "tokenizers", "safetensors")
"""Packages of the engine and of the state operations."""


def run_without(hidden: set[str], module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m module ...` where some packages are not installed."""
    code = WITHOUT.format(hidden=hidden, arguments=list(arguments), module=module)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)


def run_without_torch(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m module ...` where torch, and everything that brings it, is not installed."""
    return run_without(set(HEAVY), module, *arguments)


def test_the_plugins_load_no_torch() -> None:
    """With torch installed: nothing of a run that selects no contract imports it."""
    loaded = "import sys, conftest; [__import__(p) for p in conftest.pytest_plugins]; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert not set(HEAVY) & set(done.stdout.split())


def test_judge_tests_run_without_torch() -> None:
    files = [f"tests/unit/test_judge_{name}.py" for name in ("verdict", "speed", "parity")]
    done = run_without_torch("pytest", "-q", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def test_the_doctor_works_without_torch_and_says_what_to_install() -> None:
    done = run_without_torch("pytest", "--doctor=json")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    assert '"default_lane_runs": false' in done.stdout
    assert "torch" in done.stdout


@pytest.mark.parametrize("command", ["verify", "report"])
def test_packets_are_verified_and_reported_without_torch(command: str, tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    writer.append("finding", Finding("server.audit", Outcome.REJECTED, "hunk 1 does not apply").to_row())
    writer.finish()
    done = run_without_torch("fixtures.evidence", command, str(writer.directory))
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.returncode == (1 if command == "verify" else 0), done.stdout + done.stderr


def test_before_set_up_there_is_a_sentence_and_no_traceback() -> None:
    done = run_without({"pydantic", "psutil"}, "pytest", "-m", "quality")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "pydantic, psutil not installed" in done.stderr
    assert "./draftproof test" in done.stderr
    assert "Traceback" not in done.stderr
