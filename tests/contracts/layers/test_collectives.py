"""Collectives of decode-shaped tensors between processes: exact for every element, replay after replay, with inputs
changed in place, outputs poisoned, ranks out of step, called directly and captured in a graph; a rank that dies or
hangs is an error with a name, in time."""

from __future__ import annotations

import time

import pytest
import torch

from fixtures.gdn.cases import dtype_name
from fixtures.gdn.comparison import require_equal, require_number
from fixtures.layers.operations import LayerOperation
from fixtures.layers.ranks import (
    GUARD_ROWS,
    CollectivePlan,
    RankDied,
    RankHung,
    inputs_of,
    poison_of,
)

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
WIDTH = pytest.mark.parametrize("width", [5120, 2560])
OPERATION = pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
DEADLINE_S = 120.0
AXES = ("replay", "row", "element")
RANKS = 2


def truth_of(plan):
    """Exact. Two terms have one sum in any order, and rounding it once from fp32 or fp64 gives the same number (twice
    the precision and two bits more make a second rounding harmless); whole numbers have an exact sum anyway."""
    inputs = [inputs_of(plan, rank) for rank in range(RANKS)]
    if plan.operation == "all_gather":
        return torch.cat(inputs, dim=-1)
    return sum(x.double() for x in inputs).to(plan.dtype)


def require_collective(layers, plan):
    """Run a plan; every output element of every rank and replay, its guard rows, and the inputs."""
    expected = truth_of(plan)
    for rank, report in enumerate(layers.group(RANKS).run(plan, DEADLINE_S)):
        inner = slice(GUARD_ROWS, GUARD_ROWS + plan.rows)
        require_equal(f"rank {rank}", report.storage[:, inner], expected, AXES)
        guards = torch.cat(
            [report.storage[:, :GUARD_ROWS], report.storage[:, GUARD_ROWS + plan.rows :]], dim=1
        )
        poison = torch.full_like(guards, poison_of(plan))
        require_equal(f"rank {rank}: memory around the output", guards, poison, AXES)
        require_number(f"rank {rank}: changed inputs", report.changed_inputs, 0)


def needs(layers, operation, dtype, captured=False):
    """The operation, in a captured graph where one is asked for."""
    layers.needs(LayerOperation(operation), dtype=dtype)
    if captured:
        layers.needs(LayerOperation.CAPTURED_COLLECTIVES)


@DTYPE
@WIDTH
@OPERATION
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_every_element_of_every_replay_is_exact(layers, operation, dtype, width, rows):
    """Fresh data in the same memory, hundreds of times over these cases."""
    needs(layers, operation, dtype)
    plan = CollectivePlan(operation, dtype, rows, width, replays=24 // rows + 4, seed=layers.seed)
    require_collective(layers, plan)


@DTYPE
@OPERATION
def test_hundreds_of_replays_are_exact(layers, operation, dtype):
    """One row of a decode step, 300 times."""
    needs(layers, operation, dtype)
    plan = CollectivePlan(operation, dtype, 1, 2560, replays=300, seed=layers.seed, whole_numbers=True)
    require_collective(layers, plan)


@DTYPE
@pytest.mark.parametrize("late_rank", [0, 1])
@OPERATION
def test_ranks_out_of_step_wait_for_each_other(layers, operation, dtype, late_rank):
    """One rank comes late to every replay: the other must not go on with what lay there before."""
    needs(layers, operation, dtype)
    plan = CollectivePlan(
        operation, dtype, 4, 512, replays=20, seed=layers.seed, late_rank=late_rank, lateness_s=0.01
    )
    require_collective(layers, plan)


@DTYPE
def test_a_sum_into_its_own_input_is_exact(layers, dtype):
    """In place, as the engine reduces."""
    needs(layers, "all_reduce", dtype)
    plan = CollectivePlan("all_reduce", dtype, 4, 5120, replays=20, seed=layers.seed, in_place=True)
    require_collective(layers, plan)


@DTYPE
def test_shapes_that_change_between_calls_do_not_mix(layers, dtype):
    """1, 8, 3, 1 rows, one after the other: buffers that belong to a shape belong to it alone."""
    needs(layers, "all_reduce", dtype)
    for i, rows in enumerate([1, 8, 3, 1]):
        plan = CollectivePlan("all_reduce", dtype, rows, 256, replays=3, seed=layers.seed + i)
        require_collective(layers, plan)


@DTYPE
@OPERATION
@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("lateness_s", [0.0, 0.01], ids=["in-step", "out-of-step"])
def test_captured_collectives_are_exact_on_every_replay(layers, operation, dtype, rows, lateness_s):
    """Right when called directly, wrong on nearly every replay: that is how a real library failed."""
    needs(layers, operation, dtype, captured=True)
    plan = CollectivePlan(
        operation,
        dtype,
        rows,
        5120,
        replays=40 if lateness_s else 256,
        seed=layers.seed,
        captured=True,
        late_rank=1 if lateness_s else None,
        lateness_s=lateness_s,
    )
    require_collective(layers, plan)


def test_a_rank_that_dies_is_named_in_time(layers):
    """Long before the library's own timeout, with the rank and how it ended."""
    needs(layers, "all_reduce", torch.float32)
    plan = CollectivePlan("all_reduce", torch.float32, 1, 256, replays=6, seed=1, dies=(1, 3))
    group = layers.group(RANKS)
    start = time.monotonic()
    with pytest.raises(RankDied, match=r"rank 1 of 2 died by SIGKILL"):
        group.run(plan, deadline_s=30)
    require_number("named before the deadline", int(time.monotonic() - start < 30), 1)
    require_number("processes left", int(group.alive), 0)


def test_a_rank_that_hangs_is_named_at_the_deadline(layers):
    """The rank that never came, not the one that waits for it."""
    needs(layers, "all_reduce", torch.float32)
    plan = CollectivePlan("all_reduce", torch.float32, 1, 256, replays=6, seed=1, hangs=(0, 2))
    group = layers.group(RANKS)
    with pytest.raises(RankHung, match="rank 0 never came to replay 2"):
        group.run(plan, deadline_s=5)
    require_number("processes left", int(group.alive), 0)
