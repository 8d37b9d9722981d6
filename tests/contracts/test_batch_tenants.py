"""Rows of the batch: what a request asked for and what it has done is in its row, and nothing of anybody else."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fixtures.runner.operations import Sampling
from fixtures.runner.tenants import COLUMNS, ROWS, SAMPLINGS, VOCABULARY, Batch, life_of


def make(runner):
    return lambda: runner.subject.batch(ROWS, VOCABULARY, COLUMNS)


def test_a_new_tenant_inherits_nothing(runner):
    """Who asked for everything leaves, and who asks for nothing takes the row at once; then the other way round."""
    rows = Batch(make(runner)(), 1)
    rows.step(joining=SAMPLINGS[2:6], accepted=[4, 3, 2, 1])
    rows.step(["request-0", "request-2"], [Sampling(), Sampling()], [1, 1, 1, 1])
    rows.step(["request-1", "request-3", "request-4"], SAMPLINGS[3:6], [2, 2, 2, 2])
    rows.step()


def test_a_row_that_moves_takes_everything_along(runner):
    """The last rows fill the gaps of those that left, with their accepted counts and their drafts."""
    rows = Batch(make(runner)(), 2)
    rows.step(joining=SAMPLINGS[1:5], accepted=[4, 2, 3, 4])
    rows.step(["request-0"], accepted=[1, 4, 2])
    rows.step(swap=(0, 2))
    rows.step(["request-3"], [SAMPLINGS[5]])
    rows.step(swap=(0, 1))


def test_any_order_of_tenants(runner):
    """They come, emit, move and leave in any order."""
    profile = settings()
    budget = settings(profile, stateful_step_count=12, report_multiple_bugs=False)
    run_state_machine_as_test(life_of(make(runner)), settings=budget)
