"""Detection: every white-box fault is planted, and killed by the contract that is meant for it.

One child run takes all mutants as subjects; the matrix fault x contract is printed and written to docs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.evidence.files import write_atomically
from fixtures.gdn.mutants import load_faults
from fixtures.gdn.mutants.matrix import render_matrix, run_contracts

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "detection-contracts.md"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Outcome of every contract on every mutant and on the sound subject: {fault: {family: (failed, passed)}}."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    subjects = ["torch", *(f"torch!{name}" for name in load_faults())]
    # Another room has faults of its own. The slowest cases are left out: what they see, smaller ones see too.
    extra = ["--ignore=tests/contracts/layers", "-k", "not qwen and not 512"]
    # Two minutes on two idle cores; the limit is for a child that hangs, not for a machine that is busy.
    found = run_contracts(["tests/contracts"], subjects, report, extra=extra, timeout_s=2400)
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
