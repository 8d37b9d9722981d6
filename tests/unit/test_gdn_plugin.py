"""The plugin's door: names, missing packages, --require, what is not offered, replay lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.gdn.operation_sets import OPERATION_SETS, STATE_OPERATIONS, check_names
from fixtures.gdn.plugin import subject_of
from fixtures.gdn.subjects import SUBJECTS, why_not

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("subjects", "devices", "says"),
    [
        (["nonsense"], [], "known: torch, vllm-cpu, vllm-triton, fla, xpu-kernels, xpu-lab"),
        (["torch!nonsense"], [], "wrong-column"),
        ([], ["tpu:0"], "known: cpu, cuda:N, xpu:N"),
        ([], ["cuda:x"], "known: cpu, cuda:N, xpu:N"),
        ([], ["cpu:1"], "known: cpu, cuda:N, xpu:N"),
    ],
)
def test_unknown_names_are_usage_errors_that_list_the_known_ones(subjects, devices, says):
    with pytest.raises(pytest.UsageError, match=says):
        check_names([STATE_OPERATIONS], subjects, devices)


def test_known_names_are_accepted():
    check_names([STATE_OPERATIONS], [*SUBJECTS, "torch!wrong-column"], ["cpu", "cuda:0", "xpu:3"])


@pytest.mark.parametrize(("name", "needs"), [("fla", "fla-core"), ("xpu-kernels", "vllm-xpu-kernels")])
def test_a_missing_package_is_named(name, needs, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    reason = why_not(name, torch.device("xpu:0"))
    assert reason is not None
    assert needs in reason


def run(*arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"]
    command += ["tests/contracts/test_row_to_prefix.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False).stdout


def test_what_cannot_run_or_is_not_offered_is_never_a_pass():
    """One run of three subjects: one without its device, one without the operation, one with a planted fault."""
    planted = "torch!replacement-row-committed"
    out = run("--subject", "fla", "--subject", "vllm-cpu", "--subject", planted, "--contracts-seed", "7")
    assert "not runnable: fla needs CUDA or XPU" in out
    assert "not offered: vllm-cpu has no visible_prefix" in out
    assert "fla on cpu: 13 not runnable" in out
    assert "vllm-cpu on cpu: 13 not offered" in out
    assert f"--subject '{planted}' --contracts-seed 7" in out
    assert "expected 2, got 3" in out
    assert f"{planted} {torch.__version__} on cpu: visible_prefix" in out


def test_under_require_what_cannot_run_fails():
    out = run("--subject", "fla", "--require")
    assert "13 errors" in out
    assert "fla needs CUDA or XPU" in out
    assert " passed" not in out.splitlines()[-1]


@pytest.mark.parametrize(("chosen", "subject"), [(("torch", "cpu"), ("torch", "cpu")), (object(), None)])
def test_a_contract_that_nothing_runs_has_no_subject(chosen, subject):
    """A device may have no subject of a set; pytest then fills the place with a mark of its own."""
    item = SimpleNamespace(
        callspec=SimpleNamespace(params={"under_test": chosen}),
        config=SimpleNamespace(stash={OPERATION_SETS: [STATE_OPERATIONS]}),
    )
    assert subject_of(item) == subject
