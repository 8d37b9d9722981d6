"""Repaired engines: what stock breaks holds on the stack that repairs it, and everything else goes on holding."""

from __future__ import annotations

import functools

import pytest

from fixtures.gdn.deviations import load_deviations
from fixtures.runner.plugin import RUNNER
from fixtures.steps.plugin import STEPS
from fixtures.subject_process.detection import run_pytest

FILES = {
    "vllm-cpu-layer": ("tests/contracts/test_layer_life.py",),
    "vllm-cpu-runner": (
        "tests/contracts/test_verify_round.py",
        "tests/contracts/test_schedule.py",
        "tests/contracts/test_batch_tenants.py",
    ),
}
ENTRIES = [entry for room in (STEPS, RUNNER) for entry in load_deviations(room.deviations)]
REPAIRS = sorted({(entry.subject, stack) for entry in ENTRIES for stack in entry.repaired_by})


@functools.cache
def judged(subject, stack, seed):
    """A run of the subject's contracts on a stack."""
    return run_pytest([*FILES[subject], "--stack", stack], [subject], seed)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("subject", "stack"), REPAIRS)
def test_what_stock_breaks_holds_on_the_stack_that_repairs_it(subject, stack, seed):
    """Stock breaks them as its deviations say; on the stack they pass, no other contract breaks, none is lost."""
    stock, repaired = judged(subject, "stock", seed), judged(subject, stack, seed)
    mended = {entry.test for entry in ENTRIES if entry.subject == subject and stack in entry.repaired_by}
    broken = {
        nodeid
        for nodeid, outcome in stock.outcomes.items()
        if outcome == "xfailed" and nodeid.rpartition("::")[2].partition("[")[0] in mended
    }
    assert broken, f"stock breaks none of {sorted(mended)}:\n{stock.output}"
    assert {n: o for n, o in repaired.outcomes.items() if n in broken and o != "passed"} == {}, (
        repaired.output
    )
    for run in (stock, repaired):
        assert set(run.outcomes.values()) <= {"passed", "xfailed"}, run.output
    assert repaired.outcomes.keys() == stock.outcomes.keys(), repaired.output
