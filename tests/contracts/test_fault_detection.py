"""Detection: every white-box fault is planted, and killed by the contract that is meant for it.

One child run takes all mutants as subjects; the matrix fault x contract goes into the packet.
"""

from __future__ import annotations

import pytest

from fixtures.gdn.mutants import load_mutants
from fixtures.gdn.mutants.matrix import detect, require_killed, require_quiet


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, evidence):
    """Outcome of every contract on every mutant and on the sound subject: {fault: {family: (failed, passed)}}."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    # The layers have faults of their own. The slowest cases are left out: what they see, smaller ones see too.
    extra = ["--ignore=tests/contracts/layers", "-k", "not qwen and not 512"]
    # Two minutes on two idle cores; the limit is for a child that hangs, not for a machine that is busy.
    found = detect("tests/contracts", load_mutants(), report, extra=extra, timeout_s=2400)
    evidence.append("operation-faults", {"folder": "tests/contracts", "outcomes": found})
    return found


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", load_mutants())
def test_the_fault_is_killed_by_its_contract(outcomes, name):
    """A fault that only some other contract sees has no contract of its own."""
    require_killed(outcomes, name, load_mutants()[name])


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_sound_subject_raises_no_alarm(outcomes):
    """The same contracts, run and seed on the unmutated subject."""
    require_quiet(outcomes, more_than=150)
