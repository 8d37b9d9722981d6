"""Detection: every white-box fault is planted, and killed by the contract that is meant for it.

One child run takes all mutants as subjects; the matrix fault x contract is printed and written to docs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.evidence.files import write_atomically
from fixtures.gdn.mutants import load_faults
from fixtures.gdn.mutants.matrix import read_outcomes, render_matrix

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "detection-contracts.md"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Outcome of every contract on every mutant and on the sound subject: {fault: {family: (failed, passed)}}."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    subjects = ["torch", *(f"torch!{name}" for name in load_faults())]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/contracts",
        "--ignore=tests/contracts/layers",  # a room with faults of its own
        "-m",
        "contracts",
        "-q",
        "--tb=no",
        "-n",
        "2",
    ]
    command += [
        "-p",
        "no:cacheprovider",
        "-p",
        "fixtures.gdn.mutants.matrix",
        "--hypothesis-profile",
        "faults",
    ]
    command += ["-k", "not qwen and not 512"]  # the slowest cases; what they see, smaller ones see too
    command += [word for name in subjects for word in ("--subject", name)]
    environment = {**os.environ, "DRAFTPROOF_OUTCOMES": str(report), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=850, check=False
    )
    assert run.returncode in (0, 1), (
        f"the child run itself broke:\n{run.stdout[-3000:]}\n{run.stderr[-2000:]}"
    )
    found = read_outcomes(report)
    assert set(found) == set(subjects), f"not every mutant was run: {set(subjects) - set(found)}"
    matrix = render_matrix(load_faults(), found)
    print(matrix)
    write_atomically(TABLE, matrix)
    return found


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", load_faults())
def test_the_fault_is_killed_by_its_contract(outcomes, name):
    """A fault that only some other contract sees has no contract of its own."""
    fault = load_faults()[name]
    failed, passed = outcomes[f"torch!{name}"].get(fault.killed_by, (0, 0))
    killers = [family for family, (bad, _) in outcomes[f"torch!{name}"].items() if bad]
    assert failed, (
        f"{name} ({fault.says}) passed all {passed} of {fault.killed_by}; killed by: {killers or 'nothing'}"
    )


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_sound_subject_raises_no_alarm(outcomes):
    """The same contracts, run and seed on the unmutated subject."""
    alarms = {family: bad for family, (bad, _) in outcomes["torch"].items() if bad}
    assert not alarms
    assert sum(good for _, good in outcomes["torch"].values()) > 150
