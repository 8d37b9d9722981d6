"""Detection: every white-box fault of this room is planted, and killed by the contract that is meant for it.

One child run takes all mutants as subjects; the matrix fault x contract is printed and written to docs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.evidence.files import write_atomically
from fixtures.gdn.mutants.matrix import render_matrix, run_contracts
from fixtures.layers.mutants import load_faults

TABLE = Path(__file__).parents[3] / "docs" / "detection-layers.md"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Outcome of every contract on every mutant that it can see, and on the sound subject."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    subjects = ["torch", *(f"torch!{name}" for name in load_faults())]
    # Contracts about the rank processes themselves see no mutant, and the whole vocabulary sees what a small one does.
    extra = ["-p", "fixtures.layers.mutants.relevance", "--dist", "loadfile"]
    extra += ["-k", "not qwen and not dies and not hangs and not hundreds"]
    found = run_contracts(["tests/contracts/layers"], subjects, report, extra=extra, timeout_s=1700)
    matrix = render_matrix(load_faults(), found)
    print(matrix)
    write_atomically(TABLE, matrix)
    return found


@pytest.mark.faults
@pytest.mark.timeout(1800)
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
@pytest.mark.timeout(1800)
def test_the_sound_subject_raises_no_alarm(outcomes):
    """The same contracts, run and seed on the unmutated subject."""
    alarms = {family: bad for family, (bad, _) in outcomes["torch"].items() if bad}
    assert not alarms
    assert sum(good for _, good in outcomes["torch"].values()) > 150
