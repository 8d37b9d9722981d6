"""Branch fork and compaction: copy window and ring, then commit on the destinations of the *valid* pairs only.

Committing the raw destination list after an invalid source turns an unrelated pending slot into branch state.
"""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn import cases, strategies, transaction
from fixtures.gdn.comparison import recording, require_number, require_ring
from fixtures.gdn.operations import ContractViolation, Operation


def ring_of(under_test, slots=9):
    ring = cases.make_ring(
        under_test.generator,
        under_test.shape(),
        slots,
        cache_len=8,
        spec_len=4,
        dtype=torch.bfloat16,
        device=under_test.device,
    )
    ring.pending[:], ring.pending_len[:] = 1, 3
    return ring


def tensors(under_test, source, destination, accepted):
    long = {"dtype": torch.int64, "device": under_test.device}
    counts = torch.tensor(accepted, dtype=torch.int32, device=under_test.device)
    return torch.tensor(source, **long), torch.tensor(destination, **long), counts


def test_a_fork_commits_only_valid_pairs(under_test):
    """Pending unrelated slots under_test as destinations of invalid sources, and stay."""
    under_test.needs(Operation.FORK_COMMIT, state=torch.bfloat16)
    ring = ring_of(under_test)
    source, destination, accepted = [1, 0, 2, 99, -1], [5, 6, 7, 8, 4], [6, 2, 3, 1, 1]
    expected = transaction.fork_commit(ring, source, destination, accepted)
    under_test.subject.fork_commit(ring, *tensors(under_test, source, destination, accepted))
    require_ring(
        "after the fork", ring, expected, {6: "invalid source", 8: "invalid source", 4: "invalid source"}
    )


def test_the_raw_destination_list_is_detected_as_corruption(under_test):
    """A negative control: the subject's own copy and commit, handed the raw list, must be caught by the comparison."""
    under_test.needs(Operation.COPY_SLOTS, Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = ring_of(under_test)
    source, destination, accepted = [1, 0], [5, 6], [2, 2]
    expected = transaction.fork_commit(ring, source, destination, accepted)
    src, dst, counts = tensors(under_test, source, destination, accepted)
    ring.conv_state[5] = ring.conv_state[1]
    under_test.subject.copy_slots(ring, src, dst)
    under_test.subject.commit_pending(ring, counts[:1], dst[:1])
    require_ring("compacted pairs", ring, expected)
    under_test.subject.commit_pending(ring, counts, dst)
    require_number("corrupted unrelated slot found", int(corrupted(ring, expected)), 1)


def corrupted(ring, expected):
    """Whether slot 6, which belongs to somebody else, differs."""
    return any(
        not torch.equal(tensor[6], expected.tensors()[name][6]) for name, tensor in ring.tensors().items()
    )


def test_the_comparison_itself_sees_one_wrong_cursor(under_test):
    """The comparison is the instrument: one changed cursor of one slot has to raise."""
    under_test.needs(Operation.COMMIT_PENDING, state=torch.bfloat16)
    ring = ring_of(under_test)
    wrong = ring.clone()
    wrong.write_pos[3] += 1
    try:
        with recording():  # of an instrument, not of the subject
            require_ring("one cursor", wrong, ring)
    except ContractViolation as error:
        require_number("violation names the slot", int("slot 3" in str(error)), 1)
        return
    require_number("violation raised", 0, 1)


@given(data=st.data())
def test_any_fork_leaves_exactly_the_model_behind(under_test, data):
    """Generated pairs and counts."""
    under_test.needs(Operation.FORK_COMMIT, state=torch.bfloat16)
    under_test.reseed(data.draw(st.integers(0, 2**16), label="seed"))
    ring = ring_of(under_test, slots=6)
    pairs = data.draw(strategies.copy_pairs(6), label="pairs (source, destination)")
    accepted = [data.draw(st.integers(-1, 6), label="accepted") for _ in pairs]
    source, destination = [s for s, _ in pairs], [d for _, d in pairs]
    expected = transaction.fork_commit(ring, source, destination, accepted)
    under_test.subject.fork_commit(ring, *tensors(under_test, source, destination, accepted))
    require_ring("after the fork", ring, expected)
