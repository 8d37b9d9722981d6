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
from fixtures.gdn.operands import NULL_SLOT
from fixtures.gdn.operations import Operation
from fixtures.gdn.routes import decode_rows

SLOT_AXES = ("slot", "head", "row", "column")
OUT_AXES = ("packed row", "head", "element")
BF16, FP32 = torch.bfloat16, torch.float32


def arrange(under_test, lengths, columns, *, token_base=0, row_gap=0, shape=None):
    g, shape = under_test.generator, shape or under_test.shape()
    tokens = cases.make_tokens(g, shape, token_base + sum(lengths), BF16, under_test.device)
    heads = cases.make_heads(g, shape, BF16, under_test.device)
    slots = 3 + len(lengths) * columns
    pool = cases.make_pool(g, shape, slots, FP32, under_test.device, under_test.layout, row_gap)
    table = cases.make_slots(g, slots, len(lengths), columns, under_test.device)
    return tokens, heads, pool, table


def ints(under_test, values):
    return torch.tensor(values, dtype=torch.int32, device=under_test.device)


def one_by_one(under_test, tokens, heads, pool, table, accepted, lengths, token_base=0):
    """The same packed op, one row a call: an exact reference also where packed and decode differ in rounding."""
    expected, out = pool.clone(), torch.zeros_like(tokens.v)
    first = token_base
    for r, length in enumerate(lengths):
        columns = table[r].tolist()
        resume = columns[accepted[r] - 1]
        for j in range(length):
            step = ints(under_test, [[columns[j], resume]])
            out[first + j] = under_test.subject.verify(
                tokens.take([first + j]),
                heads,
                expected,
                step,
                ints(under_test, [2]),
                cases.starts_of([1], under_test.device),
            )[0]
            resume = columns[j]
        first += length
    return expected, out


@pytest.mark.parametrize("counts", [[1, 1, 1], [4, 4, 4], [3, 1, 4]], ids=lambda c: "".join(map(str, c)))
@pytest.mark.parametrize("gap", [0, 64])
@pytest.mark.parametrize("token_base", [0, 5])
def test_column_j_resumes_and_publishes(under_test, counts, gap, token_base):
    """Resume from column N-1, row j to column j; padded rows keep their gap; a token offset shifts the rows."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    lengths = [4, 4, 4]
    tokens, heads, pool, table = arrange(under_test, lengths, 4, token_base=token_base, row_gap=gap)
    storage_before = cases.storage_of(pool).clone()
    expected, expected_out = one_by_one(under_test, tokens, heads, pool, table, counts, lengths, token_base)

    out = under_test.subject.verify(
        tokens,
        heads,
        pool,
        table,
        ints(under_test, counts),
        cases.starts_of(lengths, under_test.device),
        token_base,
    )

    owners = {int(s): f"request {r}, column {j}" for r, row in enumerate(table) for j, s in enumerate(row)}
    require_equal("state pool", pool, expected, SLOT_AXES, owners)
    require_equal("outputs", out[token_base:], expected_out[token_base:], OUT_AXES)
    size = pool[0].numel()
    after = cases.storage_of(pool)
    require_equal("gap between the slots", after[:, size:], storage_before[:, size:], ("slot", "position"))


@pytest.mark.parametrize("base", [[0, 0, 0], [3, 3, 3], [1, 0, 4]], ids=lambda c: "".join(map(str, c)))
@pytest.mark.parametrize("rows", [2, 4, 6])
def test_prefix_base_keeps_the_base_and_drops_rows_beyond_the_last_column(under_test, base, rows):
    """Column N is the base and moves to column 0; row j to column j+1; rows without a column give output only."""
    under_test.needs(Operation.VERIFY_PREFIX_BASE, Operation.DECODE, input_dtype=BF16, state=FP32)
    lengths = [rows] * 3
    tokens, heads, pool, table = arrange(under_test, lengths, 5)
    resume = [int(table[r, n]) for r, n in enumerate(base)]
    serial = decode_rows(under_test.subject, tokens, heads, pool, resume, lengths)
    expected = pool.clone()
    for r in range(3):
        expected[int(table[r, 0])] = pool[resume[r]]
        for j in range(min(rows, 4)):
            expected[int(table[r, j + 1])] = serial.states[r][j]

    out = under_test.subject.verify_prefix_base(
        tokens, heads, pool, table, ints(under_test, base), cases.starts_of(lengths, under_test.device)
    )

    owners = {int(s): f"request {r}, column {j}" for r, row in enumerate(table) for j, s in enumerate(row)}
    require_equal("state pool", pool, expected, SLOT_AXES, owners)
    require_equal("outputs", out, serial.outputs, OUT_AXES)


def test_the_null_table_changes_nothing(under_test):
    """Graph capture runs with every index 0, twice: no slot may change, the null slot included."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(under_test, [4, 4], 4)
    before = pool.clone()
    for _ in range(2):
        under_test.subject.verify(
            tokens,
            heads,
            pool,
            torch.zeros_like(table),
            ints(under_test, [1, 2]),
            cases.starts_of([4, 4], under_test.device),
        )
    require_equal("state pool after the null table", pool, before, SLOT_AXES, {NULL_SLOT: "null slot"})


def test_the_null_table_leaves_the_slots_of_requests_alone(under_test):
    """The same two calls, without the null slot itself: what a subject that writes it still has to hold."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(under_test, [4, 4], 4)
    before = pool.clone()
    for _ in range(2):
        starts = cases.starts_of([4, 4], under_test.device)
        under_test.subject.verify(
            tokens, heads, pool, torch.zeros_like(table), ints(under_test, [1, 2]), starts
        )
    others = slice(NULL_SLOT + 1, None)
    require_equal("slots of requests after the null table", pool[others], before[others], SLOT_AXES)


def test_scratch_leaks_nothing_between_calls(under_test):
    """The same call twice, with a larger unrelated one in between, gives the same bytes."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    small, large = arrange(under_test, [2, 3], 4), arrange(under_test, [4, 4, 4, 4], 4)
    results = []
    for case, lengths in ((small, [2, 3]), (large, [4] * 4), (small, [2, 3])):
        tokens, heads, pool, table = case
        mine = pool.clone()
        ones = ints(under_test, [1] * len(lengths))
        out = under_test.subject.verify(
            tokens, heads, mine, table, ones, cases.starts_of(lengths, under_test.device)
        )
        results.append((out.clone(), mine))
    require_equal("output of the repeated call", results[2][0], results[0][0], OUT_AXES)
    require_equal("pool of the repeated call", results[2][1], results[0][1], SLOT_AXES)


def test_requests_do_not_depend_on_their_order(under_test):
    """Two requests swapped in the batch: each keeps its own rows and slots."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    tokens, heads, pool, table = arrange(under_test, [3, 3], 3)
    swapped, starts = pool.clone(), cases.starts_of([3, 3], under_test.device)
    out = under_test.subject.verify(tokens, heads, pool, table, ints(under_test, [1, 3]), starts)
    order = [3, 4, 5, 0, 1, 2]
    swapped_out = under_test.subject.verify(
        tokens.take(order), heads, swapped, table.flip(0).contiguous(), ints(under_test, [3, 1]), starts
    )
    require_equal("pool", swapped, pool, SLOT_AXES)
    require_equal("outputs", swapped_out, out[order], OUT_AXES)


@given(data=st.data())
def test_any_ragged_table_publishes_row_by_row(under_test, data):
    """Generated head groupings, lengths and counts against the same op, one row a call; whole pool compared."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=FP32)
    columns = data.draw(st.integers(1, 5), label="columns")
    lengths = data.draw(strategies.ragged_lengths(columns), label="rows per request")
    counts = [data.draw(st.integers(1, columns), label="accepted") for _ in lengths]
    under_test.reseed(data.draw(st.integers(0, 2**16), label="seed"))
    shape = under_test.shape(*data.draw(strategies.head_groupings(), label="heads (k, v)"))
    tokens, heads, pool, table = arrange(under_test, lengths, columns, shape=shape)
    expected, expected_out = one_by_one(under_test, tokens, heads, pool, table, counts, lengths)
    out = under_test.subject.verify(
        tokens, heads, pool, table, ints(under_test, counts), cases.starts_of(lengths, under_test.device)
    )
    require_equal("state pool", pool, expected, SLOT_AXES)
    require_equal("outputs", out, expected_out, OUT_AXES)
