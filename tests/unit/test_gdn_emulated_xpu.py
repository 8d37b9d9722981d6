"""The XPU subject follows its wheel: a convention of the windows is right under its name and wrong under the other's.

The operators are a stand-in on a CPU; that the subject calls the real ones as they are registered is checked by schema.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.gdn.operands import LayerShape
from fixtures.gdn.operations import ContractViolation, LayerWindows, Operation
from fixtures.gdn.schemas import bind, load_schemas
from fixtures.gdn.subjects.emulated_xpu import EmulatedLibrary, EmulatedXpuSubject
from fixtures.gdn.subjects.xpu_wheels import promise_of
from fixtures.lanes.lane import REPOSITORY

CONTRACTS = Path(__file__).parents[1] / "contracts" / "test_layer_step.py"
OLD, NEW = "0.1.13.2", "0.1.16.2"


def layer_contracts():
    """The contracts of the fused step, as a module."""
    spec = importlib.util.spec_from_file_location("layer_contracts", CONTRACTS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def under_test(subject):
    """What a contract is handed, for a subject that no name loads."""
    return SimpleNamespace(
        subject=subject,
        device=torch.device("cpu"),
        generator=torch.Generator().manual_seed(7),
        shape=lambda k=2, v=4, dim=128: LayerShape(k, v, dim, dim),
        layout="vk",
        channels_last=True,
        needs=lambda *_, **__: None,
    )


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("counts", [[1, 1], [4, 4], [2, 3]])
def test_a_wheel_is_accepted_under_its_own_convention(version, counts):
    contracts = layer_contracts()
    contracts.packed_case(under_test(EmulatedXpuSubject(version)), counts)
    contracts.test_windows_hold_exactly_the_inputs(under_test(EmulatedXpuSubject(version)), counts)


@pytest.mark.parametrize(("version", "windows"), [(OLD, LayerWindows.ROLLING), (NEW, LayerWindows.COLUMNS)])
@pytest.mark.parametrize("counts", [[1, 1], [2, 3]])
def test_a_wheel_is_rejected_under_the_other_convention(version, windows, counts):
    """The corrupting kernel of old wheels does not pass as a new one, and the right one not as an old one."""
    contracts = layer_contracts()
    with pytest.raises(ContractViolation):
        contracts.packed_case(under_test(EmulatedXpuSubject(version, windows)), counts)
    with pytest.raises(ContractViolation):
        contracts.test_windows_hold_exactly_the_inputs(
            under_test(EmulatedXpuSubject(version, windows)), counts
        )


@pytest.mark.parametrize(
    ("version", "split", "windows"),
    [
        ("0.1.3.1", False, LayerWindows.COLUMNS),
        ("0.1.13.2", False, LayerWindows.COLUMNS),
        ("0.1.14.1", True, LayerWindows.ROLLING),
        ("0.1.16.2+xpu", True, LayerWindows.ROLLING),
        ("0.2.0", True, LayerWindows.ROLLING),
        ("", True, LayerWindows.ROLLING),
    ],
)
def test_operations_and_convention_follow_the_version(version, split, windows):
    promise = promise_of(version)
    assert (Operation.VERIFY in promise.operations) == split
    assert promise.layer_windows is windows


def test_the_stand_in_takes_what_the_registered_schemas_take():
    """Every call that the subject makes of the stand-in binds against the published schema of the same name."""
    schemas = load_schemas("xpu_kernels")

    class Checked(EmulatedLibrary):
        def __getattribute__(self, name):
            function = super().__getattribute__(name)
            if name.startswith("_"):
                return function

            def call(*positional, **keywords):
                bind(schemas[name], positional, keywords)
                return function(*positional, **keywords)

            return call

    subject = EmulatedXpuSubject(NEW)
    subject._library = Checked(LayerWindows.ROLLING)
    layer_contracts().packed_case(under_test(subject), [2, 3])


def test_all_contracts_run_through_the_stand_in():
    """Every contract whose operation a wheel offers, for the wheel before and the wheel after the change of windows."""
    names = ("xpu-emulated-0.1.13", "xpu-emulated-0.1.16")
    chosen = [part for name in names for part in ("--subject", name)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "contracts",
        "tests/contracts",
    ]
    ended = subprocess.run(
        [*command, *chosen], cwd=REPOSITORY, capture_output=True, text=True, timeout=800, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    counts = dict(re.findall(r"(xpu-emulated-0\.1\.1\d) on cpu: [^;\n]*?(\d+) passed", ended.stdout))
    assert int(counts[names[0]]) > 100
    assert int(counts[names[1]]) > 300
