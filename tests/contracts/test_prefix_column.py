"""The native prefix column in both conventions: which column a step resumes from, and which one a row publishes to.

Column-j and prefix-base differ by one; a kernel that mixes them continues from a rejected draft.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn import cases, strategies
from fixtures.gdn.comparison import require_equal
from fixtures.gdn.operations import NULL_SLOT, Operation
from fixtures.gdn.routes import decode_rows

SLOT_AXES = ("slot", "head", "row", "column")
OUT_AXES = ("packed row", "head", "element")
BF16, FP32 = torch.bfloat16, torch.float32


def arrange(stand, lengths, columns, *, token_base=0, row_gap=0, shape=None):
    g, shape = stand.generator, shape or stand.shape()
    tokens = cases.make_tokens(g, shape, token_base + sum(lengths), BF16, stand.device)
    heads = cases.make_heads(g, shape, BF16, stand.device)
    slots = 3 + len(lengths) * columns
    pool = cases.make_pool(g, shape, slots, FP32, stand.device, stand.layout, row_gap)
    table = cases.make_slots(g, slots, len(lengths), columns, stand.device)
    return tokens, heads, pool, table


def ints(stand, values):
    return torch.tensor(values, dtype=torch.int32, device=stand.device)


def one_by_one(stand, tokens, heads, pool, table, accepted, lengths, token_base=0):
    """The same packed op, one row a call: an exact reference also where packed and decode differ in rounding."""
    expected, out = pool.clone(), torch.zeros_like(tokens.v)
    first = token_base
    for r, length in enumerate(lengths):
        columns = table[r].tolist()
        resume = columns[accepted[r] - 1]
        for j in range(length):
            step = ints(stand, [[columns[j], resume]])
            out[first + j] = stand.subject.verify(
                tokens.take([first + j]),
                heads,
                expected,
                step,
                ints(stand, [2]),
                cases.starts_of([1], stand.device),
            )[0]
            resume = columns[j]
        first += length
    return expected, out


@pytest.mark.parametrize("counts", [[1, 1, 1], [4, 4, 4], [3, 1, 4]], ids=lambda c: "".join(map(str, c)))
@pytest.mark.parametrize("gap", [0, 64])
@pytest.mark.parametrize("token_base", [0, 5])
def test_column_j_resumes_and_publishes(stand, counts, gap, token_base):
    """Resume from column N-1, row j to column j; padded rows keep their gap; a token offset shifts the rows."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    lengths = [4, 4, 4]
    tokens, heads, pool, table = arrange(stand, lengths, 4, token_base=token_base, row_gap=gap)
    storage_before = cases.storage_of(pool).clone()
    expected, expected_out = one_by_one(stand, tokens, heads, pool, table, counts, lengths, token_base)

    out = stand.subject.verify(
        tokens, heads, pool, table, ints(stand, counts), cases.starts_of(lengths, stand.device), token_base
    )

    owners = {int(s): f"request {r}, column {j}" for r, row in enumerate(table) for j, s in enumerate(row)}
    require_equal("state pool", pool, expected, SLOT_AXES, owners)
    require_equal("outputs", out[token_base:], expected_out[token_base:], OUT_AXES)
    size = pool[0].numel()
    after = cases.storage_of(pool)
    require_equal("gap between the slots", after[:, size:], storage_before[:, size:], ("slot", "position"))


@pytest.mark.parametrize("base", [[0, 0, 0], [3, 3, 3], [1, 0, 4]], ids=lambda c: "".join(map(str, c)))
@pytest.mark.parametrize("rows", [2, 4, 6])
def test_prefix_base_keeps_the_base_and_drops_rows_beyond_the_last_column(stand, base, rows):
    """Column N is the base and moves to column 0; row j to column j+1; rows without a column give output only."""
    stand.needs(Operation.VERIFY_PREFIX_BASE, Operation.DECODE, input_dtype=BF16, state=FP32)
    lengths = [rows] * 3
    tokens, heads, pool, table = arrange(stand, lengths, 5)
    resume = [int(table[r, n]) for r, n in enumerate(base)]
    serial = decode_rows(stand.subject, tokens, heads, pool, resume, lengths)
    expected = pool.clone()
    for r in range(3):
        expected[int(table[r, 0])] = pool[resume[r]]
        for j in range(min(rows, 4)):
            expected[int(table[r, j + 1])] = serial.states[r][j]

    out = stand.subject.verify_prefix_base(
        tokens, heads, pool, table, ints(stand, base), cases.starts_of(lengths, stand.device)
    )

    owners = {int(s): f"request {r}, column {j}" for r, row in enumerate(table) for j, s in enumerate(row)}
    require_equal("state pool", pool, expected, SLOT_AXES, owners)
    require_equal("outputs", out, serial.outputs, OUT_AXES)


def test_the_null_table_changes_nothing(stand):
    """Graph capture runs with every index 0, twice: no slot may change, the null slot included."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(stand, [4, 4], 4)
    before = pool.clone()
    for _ in range(2):
        stand.subject.verify(
            tokens,
            heads,
            pool,
            torch.zeros_like(table),
            ints(stand, [1, 2]),
            cases.starts_of([4, 4], stand.device),
        )
    require_equal("state pool after the null table", pool, before, SLOT_AXES, {NULL_SLOT: "null slot"})


def test_the_null_table_leaves_the_slots_of_requests_alone(stand):
    """The same two calls, without the null slot itself: what a subject that writes it still has to hold."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(stand, [4, 4], 4)
    before = pool.clone()
    for _ in range(2):
        starts = cases.starts_of([4, 4], stand.device)
        stand.subject.verify(tokens, heads, pool, torch.zeros_like(table), ints(stand, [1, 2]), starts)
    others = slice(NULL_SLOT + 1, None)
    require_equal("slots of requests after the null table", pool[others], before[others], SLOT_AXES)


def test_scratch_leaks_nothing_between_calls(stand):
    """The same call twice, with a larger unrelated one in between, gives the same bytes."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    small, large = arrange(stand, [2, 3], 4), arrange(stand, [4, 4, 4, 4], 4)
    results = []
    for case, lengths in ((small, [2, 3]), (large, [4] * 4), (small, [2, 3])):
        tokens, heads, pool, table = case
        mine = pool.clone()
        ones = ints(stand, [1] * len(lengths))
        out = stand.subject.verify(tokens, heads, mine, table, ones, cases.starts_of(lengths, stand.device))
        results.append((out.clone(), mine))
    require_equal("output of the repeated call", results[2][0], results[0][0], OUT_AXES)
    require_equal("pool of the repeated call", results[2][1], results[0][1], SLOT_AXES)


def test_requests_do_not_depend_on_their_order(stand):
    """Two requests swapped in the batch: each keeps its own rows and slots."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(stand, [3, 3], 3)
    swapped, starts = pool.clone(), cases.starts_of([3, 3], stand.device)
    out = stand.subject.verify(tokens, heads, pool, table, ints(stand, [1, 3]), starts)
    order = [3, 4, 5, 0, 1, 2]
    swapped_out = stand.subject.verify(
        tokens.take(order), heads, swapped, table.flip(0).contiguous(), ints(stand, [3, 1]), starts
    )
    require_equal("pool", swapped, pool, SLOT_AXES)
    require_equal("outputs", swapped_out, out[order], OUT_AXES)


@given(data=st.data())
def test_any_ragged_table_publishes_row_by_row(stand, data):
    """Generated head groupings, lengths and counts against the same op, one row a call; whole pool compared."""
    stand.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    columns = data.draw(st.integers(1, 5), label="columns")
    lengths = data.draw(strategies.ragged_lengths(columns), label="rows per request")
    counts = [data.draw(st.integers(1, columns), label="accepted") for _ in lengths]
    stand.reseed(data.draw(st.integers(0, 2**16), label="seed"))
    shape = stand.shape(*data.draw(strategies.head_groupings(), label="heads (k, v)"))
    tokens, heads, pool, table = arrange(stand, lengths, columns, shape=shape)
    expected, expected_out = one_by_one(stand, tokens, heads, pool, table, counts, lengths)
    out = stand.subject.verify(
        tokens, heads, pool, table, ints(stand, counts), cases.starts_of(lengths, stand.device)
    )
    require_equal("state pool", pool, expected, SLOT_AXES)
    require_equal("outputs", out, expected_out, OUT_AXES)
