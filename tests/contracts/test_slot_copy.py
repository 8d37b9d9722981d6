"""Slot copy: the whole ring state of valid pairs, nothing of the others, the source as it was."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn import cases, strategies, transaction
from fixtures.gdn.comparison import require_ring
from fixtures.gdn.operations import Operation


def ring_of(under_test, dtype=torch.bfloat16, slots=8):
    return cases.make_ring(
        under_test.generator,
        under_test.shape(),
        slots,
        cache_len=8,
        spec_len=4,
        dtype=dtype,
        device=under_test.device,
        spare=1,
    )


def act(under_test, ring, source, destination):
    expected = transaction.copy_slots(ring, source, destination)
    long = {"dtype": torch.int64, "device": under_test.device}
    under_test.subject.copy_slots(ring, torch.tensor(source, **long), torch.tensor(destination, **long))
    require_ring("after copy_slots", ring, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name)
def test_only_valid_pairs_are_copied(under_test, dtype):
    """Null, negative and too large slots on either side of a pair."""
    under_test.needs(Operation.COPY_SLOTS, state=dtype)
    act(under_test, ring_of(under_test, dtype), [1, 0, 2, -1, 3, 8, 2], [4, 5, 0, 6, 9, 7, 7])


def test_a_copy_is_not_an_alias(under_test):
    """Writing to the destination afterwards leaves the source alone."""
    under_test.needs(Operation.COPY_SLOTS, Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = ring_of(under_test)
    ring.pending[1], ring.pending_len[1] = 1, 3
    expected = transaction.commit_pending(transaction.copy_slots(ring, [1], [5]), [2], [5])
    long = {"dtype": torch.int64, "device": under_test.device}
    under_test.subject.copy_slots(ring, torch.tensor([1], **long), torch.tensor([5], **long))
    two = torch.tensor([2], dtype=torch.int32, device=under_test.device)
    under_test.subject.commit_pending(ring, two, torch.tensor([5], **long))
    require_ring("source and destination", ring, expected)


@given(data=st.data())
def test_any_pairs_copy_what_the_model_copies(under_test, data):
    """Generated pairs, also empty lists."""
    under_test.needs(Operation.COPY_SLOTS, state=torch.bfloat16)
    under_test.reseed(data.draw(st.integers(0, 2**16), label="seed"))
    pairs = data.draw(strategies.copy_pairs(6), label="pairs (source, destination)")
    act(under_test, ring_of(under_test, slots=6), [s for s, _ in pairs], [d for _, d in pairs])
