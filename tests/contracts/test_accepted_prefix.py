"""Accepted-prefix commit: whatever count the verifier accepts, exactly that prefix goes on, for state and window."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, transaction
from fixtures.gdn.comparison import must_run, require_equal
from fixtures.gdn.operations import Operation

SLOT_AXES = ("slot", "head", "row", "column")
WINDOW_AXES = ("slot", "channel", "position")
STATE = pytest.mark.parametrize("state", [torch.float32, torch.bfloat16, torch.float16], ids=cases.dtype_name)
K = 3
COUNTS = [[n] * 4 for n in range(K + 2)] + [[0, 4, 2, 1], [3, 0, 4, 2]]
ids = pytest.mark.parametrize("counts", COUNTS, ids=lambda c: "".join(map(str, c)))


@STATE
@ids
@pytest.mark.parametrize("what", ["ssm", "conv"])
def test_the_accepted_prefix_is_committed(under_test, what, state, counts):
    """Uniform and mixed counts; the table holds the prefix before the verify and after each row."""
    under_test.needs(Operation.COMMIT_PREFIX, state=state)
    g, shape, slots = under_test.generator, under_test.shape(), 40
    if what == "ssm":
        pool, axes = cases.make_pool(g, shape, slots, state, under_test.device, under_test.layout), SLOT_AXES
    else:
        pool, axes = (
            cases.make_window_pool(g, shape, slots, 0, state, under_test.device, under_test.channels_last),
            WINDOW_AXES,
        )
    table = cases.make_slots(g, slots, len(counts), K + 3, under_test.device)
    prefixes, destination = table[:, :-1].contiguous(), table[:, -1].contiguous()
    expected = transaction.commit_prefix(pool, prefixes.tolist(), counts, destination.tolist())

    accepted = torch.tensor(counts, dtype=torch.int32, device=under_test.device)
    under_test.subject.commit_prefix(pool, prefixes, accepted, destination)

    require_equal(f"{what} pool after the commit", pool, expected, axes)


def test_committing_onto_a_prefix_of_another_request_reads_before_it_writes(under_test):
    """Destinations that are other requests' prefixes: every read happens before every write."""
    under_test.needs(Operation.COMMIT_PREFIX, state=torch.float32)
    pool = cases.make_pool(
        under_test.generator, under_test.shape(), 8, torch.float32, under_test.device, under_test.layout
    )
    table, destination = [[1, 2], [2, 1]], [1, 2]
    expected = transaction.commit_prefix(pool, table, [1, 1], destination)

    def ints(values):
        return torch.tensor(values, dtype=torch.int32, device=under_test.device)

    under_test.subject.commit_prefix(pool, ints(table), ints([1, 1]), ints(destination))
    require_equal("pool after the swap", pool, expected, SLOT_AXES)


@STATE
@pytest.mark.parametrize("counts", [[1, 1, 1], [4, 4, 4], [2, 3, 1]], ids=lambda c: "".join(map(str, c)))
def test_the_next_verify_goes_on_from_the_accepted_row(under_test, state, counts):
    """The commit that has no op of its own: a second verify resumes from the column that the first one published."""
    under_test.needs(Operation.VERIFY, input_dtype=torch.bfloat16, state=state)
    g, shape, n = under_test.generator, under_test.shape(), len(counts)
    first, second = (
        cases.make_tokens(g, shape, n * rows, torch.bfloat16, under_test.device) for rows in (K + 1, 2)
    )
    heads = cases.make_heads(g, shape, torch.bfloat16, under_test.device)
    pool = cases.make_pool(g, shape, 16, state, under_test.device, under_test.layout)
    table = cases.make_slots(g, 16, n, K + 1, under_test.device)
    ones = torch.ones(n, dtype=torch.int32, device=under_test.device)
    accepted = torch.tensor(counts, dtype=torch.int32, device=under_test.device)
    under_test.subject.verify(
        first, heads, pool, table, ones, cases.starts_of([K + 1] * n, under_test.device)
    )
    promoted = pool.clone()
    for r, count in enumerate(counts):
        promoted[int(table[r, 0])] = pool[int(table[r, count - 1])]

    starts = cases.starts_of([2] * n, under_test.device)
    out = under_test.subject.verify(second, heads, pool, table, accepted, starts)
    expected_out = under_test.subject.verify(second, heads, promoted, table, ones, starts)

    require_equal("outputs from the accepted column", out, expected_out, ("packed row", "head", "element"))
    require_equal("pool from the accepted column", pool, promoted, SLOT_AXES)


def roll_back(under_test, counts, next_rows):
    g, shape, n = under_test.generator, under_test.shape(), len(counts)
    conv = cases.make_conv(g, shape, torch.bfloat16, under_test.device)
    pool = cases.make_window_pool(g, shape, 8, K, torch.bfloat16, under_test.device, under_test.channels_last)
    slots = cases.make_slots(g, 8, n, 1, under_test.device).flatten()
    history = shape.conv_width - 1

    def rows(count):
        return cases.random_tensor(g, count, shape.conv_dim, dtype=torch.bfloat16, device=under_test.device)

    first, second = rows(n * (K + 1)), rows(sum(next_rows))
    before = pool.clone()
    ones = torch.ones(n, dtype=torch.int32, device=under_test.device)
    under_test.subject.conv_verify(
        first, conv, pool, slots, ones, cases.starts_of([K + 1] * n, under_test.device)
    )
    accepted = torch.tensor(counts, dtype=torch.int32, device=under_test.device)
    with must_run("a verify of other lengths after a full one"):
        under_test.subject.conv_verify(
            second, conv, pool, slots, accepted, cases.starts_of(next_rows, under_test.device)
        )

    begin = 0
    for r, (count, length) in enumerate(zip(counts, next_rows, strict=True)):
        history_before = before[int(slots[r]), :, :history]
        accepted_inputs = torch.cat([history_before, first[r * (K + 1) : r * (K + 1) + count].T], dim=1)
        stream = torch.cat([accepted_inputs[:, -history:], second[begin : begin + length].T], dim=1)
        begin += length
        require_equal(
            f"window of request {r}: {count} accepted rows, then {length} new ones",
            pool[int(slots[r]), :, : history - 1 + length],
            stream[:, 1:],
            ("channel", "position"),
        )


COUNTS_OF_WINDOW = pytest.mark.parametrize(
    "counts", [[1, 1, 1], [4, 4, 4], [2, 3, 1]], ids=lambda c: "".join(map(str, c))
)


@COUNTS_OF_WINDOW
def test_the_next_window_goes_on_from_the_accepted_row(under_test, counts):
    """Rollback of the wide window: after `count` accepted rows the history is the last three accepted inputs."""
    under_test.needs(Operation.CONV_VERIFY, input_dtype=torch.bfloat16)
    roll_back(under_test, counts, [K + 1] * 3)


@COUNTS_OF_WINDOW
def test_a_shorter_verify_keeps_the_accepted_window(under_test, counts):
    """Ragged drafts: the next step has fewer rows than the last one had.

    An engine that rolls the window by the wrong length answers wrongly without an error, or dies.
    """
    under_test.needs(Operation.CONV_VERIFY, input_dtype=torch.bfloat16)
    roll_back(under_test, counts, [2, 1, 3])
