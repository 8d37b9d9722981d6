"""commit_pending with the active-slot guard: a row acts only on its own, valid, pending slot.

The native op of a real fork once changed the cursors of null, out-of-range and inactive rows.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn import cases, strategies, transaction
from fixtures.gdn.comparison import require_ring
from fixtures.gdn.operations import Operation

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name)


def act(under_test, ring, accepted, indices):
    expected = transaction.commit_pending(ring, accepted, indices)
    under_test.subject.commit_pending(
        ring,
        torch.tensor(accepted, dtype=torch.int32, device=under_test.device),
        torch.tensor(indices, dtype=torch.int64, device=under_test.device),
    )
    owners = {slot: f"row {row}" for row, slot in enumerate(indices)}
    require_ring("after commit_pending", ring, expected, owners)


def poisoned_ring(under_test, dtype=torch.bfloat16, slots=9, cache_len=16, spec_len=4, spare=2):
    return cases.make_ring(
        under_test.generator,
        under_test.shape(),
        slots,
        cache_len=cache_len,
        spec_len=spec_len,
        dtype=dtype,
        device=under_test.device,
        spare=spare,
    )


@DTYPE
def test_rows_without_an_active_slot_are_left_untouched(under_test, dtype):
    """Null (and it is pending), negative, too large and inactive slots between active ones."""
    under_test.needs(Operation.COMMIT_PENDING, state=dtype)
    ring = poisoned_ring(under_test, dtype)
    ring.pending[:] = torch.tensor([1, 1, 0, 1, 0, 1, 1, 1, 1])
    ring.pending_len[:] = 3
    act(under_test, ring, [2, 1, 3, 2, 0, 2, 2, 1], [0, 3, 2, -1, 5, 9, -7, 1])


@pytest.mark.parametrize("count", [-2, 0, 1, 2, 3, 4, 9])
def test_the_accepted_count_is_clamped_to_what_is_pending(under_test, count):
    """Counts from below zero to beyond the pending length, with and without a flush."""
    under_test.needs(Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = poisoned_ring(under_test)
    ring.pending[:] = 1
    ring.pending_len[:] = torch.tensor([4, 4, 3, 2, 1, 0, 4, 3, 2])
    act(under_test, ring, [count] * 8, list(range(1, 9)))


@pytest.mark.parametrize("position", [7, 8, 9])
def test_the_flush_edge_is_exact(under_test, position):
    """write_pos + 2 * max_spec_len equal to the ring's length does not flush yet; one more does."""
    under_test.needs(Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = poisoned_ring(under_test)
    ring.pending[:], ring.pending_len[:], ring.is_flush[:] = 1, 4, 0
    ring.write_pos[:] = position - 1
    act(under_test, ring, [1, 1, 0, 2], [1, 2, 3, 4])


def test_the_base_wraps_around_the_ring(under_test):
    """After a flush the base moves on by write_pos, modulo the ring's length, and only if something was accepted."""
    under_test.needs(Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = poisoned_ring(under_test)
    ring.pending[:], ring.pending_len[:], ring.is_flush[:] = 1, 4, 1
    ring.cache_base[:], ring.write_pos[:] = 13, torch.arange(9, dtype=torch.int32)
    act(under_test, ring, [0, 1, 2, 3, 4, 1, 2, 3], list(range(1, 9)))


@given(data=st.data())
def test_any_table_leaves_exactly_the_model_behind(under_test, data):
    """Generated cursors, counts and slot tables; every byte of every tensor compared with the exact model."""
    under_test.needs(Operation.COMMIT_PENDING, state=torch.bfloat16)
    plan = data.draw(strategies.ring_plans(), label="ring")
    under_test.reseed(plan.seed)
    ring = poisoned_ring(under_test, slots=plan.slots, cache_len=plan.cache_len, spec_len=plan.spec_len)
    plan.write_cursors(ring)
    rows = data.draw(strategies.commit_rows(plan.slots, plan.spec_len), label="rows (slot, accepted)")
    act(under_test, ring, [count for _, count in rows], [slot for slot, _ in rows])
