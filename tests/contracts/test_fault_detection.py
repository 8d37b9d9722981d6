"""Detection: every white-box fault is planted, and killed by the contract that is meant for it.

A child run takes mutants as subjects; the matrix fault x contract goes into the packet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.gdn.mutants import load_mutants
from fixtures.gdn.mutants.matrix import detect, require_killed, require_quiet

FOLDER = Path("tests/contracts")
KINDS = ("layout", "empty_sequences", "padding_rows", "values", "far_offsets")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, evidence):
    """Outcome of every contract on every mutant and on the sound subject: {fault: {family: (failed, passed)}}."""
    report = tmp_path_factory.mktemp("faults") / "outcomes.jsonl"
    # The layers have faults of their own. The slowest cases are left out: what they see, smaller ones see too.
    extra = ["--ignore=tests/contracts/layers", "-k", "not qwen and not 512"]
    # Contracts of one kind for all operations are many: they meet the faults that are meant for them, and the others
    # meet the rest. The limit is for a child that hangs, not for a machine that is busy.
    of_a_kind = {name: mutant for name, mutant in load_mutants().items() if mutant.killed_by in KINDS}
    rest = {name: mutant for name, mutant in load_mutants().items() if name not in of_a_kind}
    files = [str(FOLDER / f"test_{kind}.py") for kind in KINDS]
    others = [*extra, *(f"--ignore={file}" for file in files)]
    found = detect(["tests/contracts"], rest, report, extra=others, timeout_s=2400)
    for kind, file in zip(KINDS, files, strict=True):
        meant = {name: mutant for name, mutant in of_a_kind.items() if mutant.killed_by == kind}
        seen = detect([file], meant, report.with_name(f"{kind}.jsonl"), extra=[], timeout_s=2400)
        for subject, families in seen.items():
            found.setdefault(subject, {}).update(families)
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
