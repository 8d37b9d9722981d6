"""Recurrent prefix exactness: a packed verify publishes, row by row, what single-token decode would have.

If it does not, speculation changes what the target model says, silently and a little more with every step.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_equal, require_within
from fixtures.gdn.operations import Operation
from fixtures.gdn.routes import bound_on, decode_rows

STATE = pytest.mark.parametrize("state", [torch.float32, torch.bfloat16, torch.float16], ids=cases.dtype_name)
INPUT = pytest.mark.parametrize(
    "inputs", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name
)
SLOT_AXES = ("slot", "head", "row", "column")
OUT_AXES = ("packed row", "head", "element")
BF16, FP32 = torch.bfloat16, torch.float32


def arrange(under_test, shape, inputs, state, lengths, columns):
    g = under_test.generator
    tokens = cases.make_tokens(g, shape, sum(lengths), inputs, under_test.device)
    heads = cases.make_heads(g, shape, inputs, under_test.device)
    slots = 3 + len(lengths) * columns
    pool = cases.make_pool(g, shape, slots, state, under_test.device, under_test.layout)
    table = cases.make_slots(g, slots, len(lengths), columns, under_test.device)
    return tokens, heads, pool, table


def resumed(under_test, table, requests, columns):
    """An accepted count for each request, and the slot that it resumes from."""
    accepted = torch.randint(1, columns + 1, (requests,), generator=under_test.generator).to(torch.int32)
    return accepted.to(under_test.device), [int(table[r, int(n) - 1]) for r, n in enumerate(accepted)]


def exact_case(under_test, shape, inputs, state, lengths, columns):
    tokens, heads, pool, table = arrange(under_test, shape, inputs, state, lengths, columns)
    accepted, resume = resumed(under_test, table, len(lengths), columns)
    serial = decode_rows(under_test.subject, tokens, heads, pool, resume, lengths)
    expected, owners = pool.clone(), {}
    for r, states in enumerate(serial.states):
        for j, value in enumerate(states):
            expected[int(table[r, j])] = value
            owners[int(table[r, j])] = f"request {r}, packed row {j}"

    out = under_test.subject.verify(
        tokens, heads, pool, table, accepted, cases.starts_of(lengths, under_test.device)
    )

    require_equal("state pool after the packed call", pool, expected, SLOT_AXES, owners)
    require_equal("output of the packed call", out, serial.outputs, OUT_AXES)


def bound_of(under_test, path, tokens, inputs, state, *, route):
    return bound_on(route, under_test.subject.capabilities, path, tokens, inputs=inputs, state=state)


def near_case(under_test, shape, inputs, state, lengths, columns):
    """The bounded level of `exact_case`: each route may be off by its own derived bound, and by no more."""
    tokens, heads, pool, table = arrange(under_test, shape, inputs, state, lengths, columns)
    accepted, resume = resumed(under_test, table, len(lengths), columns)
    before = under_test.vk(pool).double()
    serial = decode_rows(under_test.subject, tokens, heads, pool, resume, lengths)

    out = under_test.subject.verify(
        tokens, heads, pool, table, accepted, cases.starts_of(lengths, under_test.device)
    )

    first = 0
    for r, length in enumerate(lengths):
        if not length:
            continue
        rows = slice(first, first + length)
        mine = tokens.take(rows)
        path = oracle.trajectory(mine, heads, before[resume[r]].unsqueeze(0))
        packed, decode = (
            bound_of(under_test, path, mine, inputs, state, route=route) for route in ("packed", "decode")
        )
        limit = (packed.outputs + decode.outputs)[0]
        require_within(f"outputs of request {r}", out[rows], serial.outputs[rows], limit, OUT_AXES)
        got, expected = pool[table[r, :length].long()], torch.stack(serial.states[r])
        limit = (packed.states + decode.states)[0].unsqueeze(-1)
        axes = ("packed row", "head", "value row", "key column")
        require_within(f"states of request {r}", under_test.vk(got), under_test.vk(expected), limit, axes)
        first += length


@INPUT
@STATE
@pytest.mark.parametrize("k", [3, 4, 5])
def test_packed_rows_equal_serial_rows(under_test, inputs, state, k):
    """Three requests of k+1 rows, each resuming from a column of its own."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=inputs, state=state)
    exact_case(under_test, under_test.shape(), inputs, state, [k + 1] * 3, k + 1)


@INPUT
@STATE
@pytest.mark.parametrize("k", [3, 4, 5])
def test_packed_rows_stay_near_serial_rows(under_test, inputs, state, k):
    """The same comparison at the bounded level: what is left of the contract where a subject breaks it."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=inputs, state=state)
    near_case(under_test, under_test.shape(), inputs, state, [k + 1] * 3, k + 1)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_packed_rows_equal_serial_rows_for_grouped_heads(under_test, heads):
    """Key heads are repeated to value heads, one, two or three times."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(under_test, under_test.shape(*heads), BF16, FP32, [4, 4], 4)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_packed_rows_stay_near_serial_rows_for_grouped_heads(under_test, heads):
    """Grouped heads at the bounded level."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(under_test, under_test.shape(*heads), BF16, FP32, [4, 4], 4)


def test_packed_rows_equal_serial_rows_for_ragged_requests(under_test):
    """Requests of different lengths, one of them empty: an empty request changes nothing."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(under_test, under_test.shape(), BF16, FP32, [4, 1, 0, 3], 4)


def test_packed_rows_stay_near_serial_rows_for_ragged_requests(under_test):
    """Ragged requests at the bounded level."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(under_test, under_test.shape(), BF16, FP32, [4, 1, 0, 3], 4)


def test_packed_rows_equal_serial_rows_at_qwen_shape(under_test):
    """Qwen3.6-27B's GDN layer: 16 key heads, 48 value heads, dim 128."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(under_test, under_test.shape(16, 48, 128), BF16, FP32, [4, 2], 4)


def test_packed_rows_stay_near_serial_rows_at_qwen_shape(under_test):
    """Qwen3.6-27B's GDN layer at the bounded level."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(under_test, under_test.shape(16, 48, 128), BF16, FP32, [4, 2], 4)


def bounded_case(under_test, shape, inputs, state, *, route):
    lengths, columns = [4, 4, 4], 4
    tokens, heads, pool, table = arrange(under_test, shape, inputs, state, lengths, columns)
    before = pool.clone()
    column0 = table[:, 0].long()
    path = oracle.trajectory(tokens, heads, under_test.vk(pool[column0]))
    bound = bound_of(under_test, path, tokens, inputs, state, route=route)
    if route == "packed":
        one = torch.ones(len(lengths), dtype=torch.int32, device=under_test.device)
        out = under_test.subject.verify(
            tokens, heads, pool, table, one, cases.starts_of(lengths, under_test.device)
        )
        states = torch.stack([pool[table[:, j].long()] for j in range(columns)], dim=1)
        touched = table.flatten().long()
    else:
        serial = decode_rows(under_test.subject, tokens, heads, pool, column0.tolist(), lengths)
        out, states = serial.outputs, torch.stack([torch.stack(rows) for rows in serial.states])
        touched = column0[:0]
    truth = path.states[:, 1:]
    axes = ("request", "packed row", "head", "value row", "key column")
    require_within("published states", under_test.vk(states), truth, bound.states.unsqueeze(-1), axes)
    require_within(
        "outputs",
        out.unflatten(0, (3, 4)),
        path.outputs,
        bound.outputs,
        ("request", "row", "head", "element"),
    )
    untouched = torch.ones(len(pool), dtype=torch.bool, device=pool.device)
    untouched[touched] = False
    require_equal("slots of nobody", pool[untouched], before[untouched], SLOT_AXES)


@INPUT
@STATE
@pytest.mark.parametrize("route", ["packed", "decode"])
def test_rows_stay_within_the_bound_of_the_float64_truth(under_test, inputs, state, route):
    """Every published state and output within the derived rounding bound of the oracle; unrelated slots untouched."""
    needed = Operation.VERIFY if route == "packed" else Operation.DECODE
    under_test.needs(needed, input_dtype=inputs, state=state)
    bounded_case(under_test, under_test.shape(), inputs, state, route=route)


@pytest.mark.parametrize("route", ["packed", "decode"])
def test_rows_stay_within_the_bound_at_qwen_shape(under_test, route):
    """Qwen3.6-27B's GDN layer against the float64 truth, by each route that the subject has."""
    needed = Operation.VERIFY if route == "packed" else Operation.DECODE
    under_test.needs(needed, input_dtype=BF16, state=FP32)
    bounded_case(under_test, under_test.shape(16, 48, 128), BF16, FP32, route=route)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_grouped_heads_stay_within_the_bound(under_test, heads):
    """Value head i belongs to key head i // group: repeated, not interleaved."""
    under_test.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    bounded_case(under_test, under_test.shape(*heads), BF16, FP32, route="packed")


def test_small_keys_are_normalised_with_the_defined_eps(under_test):
    """Keys near zero show the eps of the normalisation (1e-6); another one scales what is written."""
    under_test.needs(Operation.DECODE, input_dtype=BF16, state=FP32)
    shape = under_test.shape()
    tokens, heads, pool, _ = arrange(under_test, shape, BF16, FP32, [1], 1)
    tokens = type(tokens)(tokens.q, tokens.k * 2.0**-13, tokens.v, tokens.a, torch.zeros_like(tokens.b))
    pool[1] = 0
    path = oracle.trajectory(tokens, heads, under_test.vk(pool[1:2]))
    bound = oracle.error_bound(path, k_dim=shape.k_dim, state_dtype=FP32, output_dtype=BF16)
    under_test.subject.decode(
        tokens, heads, pool, torch.tensor([1], dtype=torch.int32, device=under_test.device)
    )
    axes = ("head", "value row", "key column")
    require_within("state", under_test.vk(pool[1]), path.after(1)[0], bound.states[0, 0].unsqueeze(-1), axes)
