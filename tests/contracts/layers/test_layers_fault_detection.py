"""Detection: every white-box fault of the layers is planted, and killed by the contract that is meant for it.

One child run takes all mutants as subjects; the matrix fault x contract goes into the packet.
"""

from __future__ import annotations

import pytest

from fixtures.gdn.mutants.matrix import detect, require_killed, require_quiet
from fixtures.layers.mutants import load_mutants


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, evidence):
    """Outcome of every contract on every mutant that it can see, and on the sound subject."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    # Contracts about the rank processes themselves see no mutant, and the whole vocabulary sees what a small one does.
    extra = ["-p", "fixtures.layers.mutants.relevance", "--dist", "loadfile"]
    extra += ["-k", "not qwen and not dies and not hangs and not hundreds"]
    found = detect(["tests/contracts/layers"], load_mutants(), report, extra=extra, timeout_s=1700)
    evidence.append("operation-faults", {"folder": "tests/contracts/layers", "outcomes": found})
    return found


@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", load_mutants())
def test_the_fault_is_killed_by_its_contract(outcomes, name):
    """A fault that only some other contract sees has no contract of its own."""
    require_killed(outcomes, name, load_mutants()[name])


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_the_sound_subject_raises_no_alarm(outcomes):
    """The same contracts, run and seed on the unmutated subject."""
    require_quiet(outcomes, more_than=150)
