"""Recurrent prefix exactness: a packed verify publishes, row by row, what single-token decode would have.

If it does not, speculation changes what the target model says, silently and a little more with every step.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_equal, require_within
from fixtures.gdn.operations import Operation
from fixtures.gdn.routes import decode_rows

STATE = pytest.mark.parametrize("state", [torch.float32, torch.bfloat16, torch.float16], ids=cases.dtype_name)
INPUT = pytest.mark.parametrize(
    "inputs", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name
)
SLOT_AXES = ("slot", "head", "row", "column")
OUT_AXES = ("packed row", "head", "element")
BF16, FP32 = torch.bfloat16, torch.float32


def arrange(stand, shape, inputs, state, lengths, columns):
    g = stand.generator
    tokens = cases.make_tokens(g, shape, sum(lengths), inputs, stand.device)
    heads = cases.make_heads(g, shape, inputs, stand.device)
    slots = 3 + len(lengths) * columns
    pool = cases.make_pool(g, shape, slots, state, stand.device, stand.layout)
    table = cases.make_slots(g, slots, len(lengths), columns, stand.device)
    return tokens, heads, pool, table


def resumed(stand, table, requests, columns):
    """An accepted count for each request, and the slot that it resumes from."""
    accepted = torch.randint(1, columns + 1, (requests,), generator=stand.generator).to(torch.int32)
    return accepted.to(stand.device), [int(table[r, int(n) - 1]) for r, n in enumerate(accepted)]


def exact_case(stand, shape, inputs, state, lengths, columns):
    tokens, heads, pool, table = arrange(stand, shape, inputs, state, lengths, columns)
    accepted, resume = resumed(stand, table, len(lengths), columns)
    serial = decode_rows(stand.subject, tokens, heads, pool, resume, lengths)
    expected, owners = pool.clone(), {}
    for r, states in enumerate(serial.states):
        for j, value in enumerate(states):
            expected[int(table[r, j])] = value
            owners[int(table[r, j])] = f"request {r}, packed row {j}"

    out = stand.subject.verify(tokens, heads, pool, table, accepted, cases.starts_of(lengths, stand.device))

    require_equal("state pool after the packed call", pool, expected, SLOT_AXES, owners)
    require_equal("output of the packed call", out, serial.outputs, OUT_AXES)


def bound_of(stand, path, tokens, shape, inputs, state, *, route):
    """What rounding explains on one route, for this case: see `oracle.error_bound`."""
    capabilities = stand.subject.capabilities
    return oracle.error_bound(
        path,
        k_dim=shape.k_dim,
        state_dtype=state,
        output_dtype=inputs,
        # Each rounded result in 1 / (1 + exp(-b)) adds at most one unit roundoff to the relative error of beta.
        strength_error=capabilities.sigmoid_roundings * oracle.roundoff(inputs) if route == "decode" else 0.0,
        key_error=oracle.key_error(tokens, capabilities.norm_eps),
    )


def near_case(stand, shape, inputs, state, lengths, columns):
    """The bounded level of `exact_case`: each route may be off by its own derived bound, and by no more."""
    tokens, heads, pool, table = arrange(stand, shape, inputs, state, lengths, columns)
    accepted, resume = resumed(stand, table, len(lengths), columns)
    before = stand.vk(pool).double()
    serial = decode_rows(stand.subject, tokens, heads, pool, resume, lengths)

    out = stand.subject.verify(tokens, heads, pool, table, accepted, cases.starts_of(lengths, stand.device))

    first = 0
    for r, length in enumerate(lengths):
        if not length:
            continue
        rows = slice(first, first + length)
        mine = tokens.take(rows)
        path = oracle.trajectory(mine, heads, before[resume[r]].unsqueeze(0))
        packed, decode = (
            bound_of(stand, path, mine, shape, inputs, state, route=route) for route in ("packed", "decode")
        )
        limit = (packed.outputs + decode.outputs)[0]
        require_within(f"outputs of request {r}", out[rows], serial.outputs[rows], limit, OUT_AXES)
        got, expected = pool[table[r, :length].long()], torch.stack(serial.states[r])
        limit = (packed.states + decode.states)[0].unsqueeze(-1)
        axes = ("packed row", "head", "value row", "key column")
        require_within(f"states of request {r}", stand.vk(got), stand.vk(expected), limit, axes)
        first += length


@INPUT
@STATE
@pytest.mark.parametrize("k", [3, 4, 5])
def test_packed_rows_equal_serial_rows(stand, inputs, state, k):
    """Three requests of k+1 rows, each resuming from a column of its own."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=inputs, state=state)
    exact_case(stand, stand.shape(), inputs, state, [k + 1] * 3, k + 1)


@INPUT
@STATE
@pytest.mark.parametrize("k", [3, 4, 5])
def test_packed_rows_stay_near_serial_rows(stand, inputs, state, k):
    """The same comparison at the bounded level: what is left of the contract where a subject breaks it."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=inputs, state=state)
    near_case(stand, stand.shape(), inputs, state, [k + 1] * 3, k + 1)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_packed_rows_equal_serial_rows_for_grouped_heads(stand, heads):
    """Key heads are repeated to value heads, one, two or three times."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(stand, stand.shape(*heads), BF16, FP32, [4, 4], 4)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_packed_rows_stay_near_serial_rows_for_grouped_heads(stand, heads):
    """Grouped heads at the bounded level."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(stand, stand.shape(*heads), BF16, FP32, [4, 4], 4)


def test_packed_rows_equal_serial_rows_for_ragged_requests(stand):
    """Requests of different lengths, one of them empty: an empty request changes nothing."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(stand, stand.shape(), BF16, FP32, [4, 1, 0, 3], 4)


def test_packed_rows_stay_near_serial_rows_for_ragged_requests(stand):
    """Ragged requests at the bounded level."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(stand, stand.shape(), BF16, FP32, [4, 1, 0, 3], 4)


def test_packed_rows_equal_serial_rows_at_qwen_shape(stand):
    """Qwen3.6-27B's GDN layer: 16 key heads, 48 value heads, dim 128."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    exact_case(stand, stand.shape(16, 48, 128), BF16, FP32, [4, 2], 4)


def test_packed_rows_stay_near_serial_rows_at_qwen_shape(stand):
    """Qwen3.6-27B's GDN layer at the bounded level."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    near_case(stand, stand.shape(16, 48, 128), BF16, FP32, [4, 2], 4)


def bounded_case(stand, shape, inputs, state, *, route):
    lengths, columns = [4, 4, 4], 4
    tokens, heads, pool, table = arrange(stand, shape, inputs, state, lengths, columns)
    before = pool.clone()
    column0 = table[:, 0].long()
    path = oracle.trajectory(tokens, heads, stand.vk(pool[column0]))
    bound = bound_of(stand, path, tokens, shape, inputs, state, route=route)
    if route == "packed":
        one = torch.ones(len(lengths), dtype=torch.int32, device=stand.device)
        out = stand.subject.verify(tokens, heads, pool, table, one, cases.starts_of(lengths, stand.device))
        states = torch.stack([pool[table[:, j].long()] for j in range(columns)], dim=1)
        touched = table.flatten().long()
    else:
        serial = decode_rows(stand.subject, tokens, heads, pool, column0.tolist(), lengths)
        out, states = serial.outputs, torch.stack([torch.stack(rows) for rows in serial.states])
        touched = column0[:0]
    truth = path.states[:, 1:]
    axes = ("request", "packed row", "head", "value row", "key column")
    require_within("published states", stand.vk(states), truth, bound.states.unsqueeze(-1), axes)
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
def test_rows_stay_within_the_bound_of_the_float64_truth(stand, inputs, state, route):
    """Every published state and output within the derived rounding bound of the oracle; unrelated slots untouched."""
    needed = Operation.VERIFY if route == "packed" else Operation.DECODE
    stand.needs(needed, input_dtype=inputs, state=state)
    bounded_case(stand, stand.shape(), inputs, state, route=route)


@pytest.mark.parametrize("route", ["packed", "decode"])
def test_rows_stay_within_the_bound_at_qwen_shape(stand, route):
    """Qwen3.6-27B's GDN layer against the float64 truth, by each route that the subject has."""
    needed = Operation.VERIFY if route == "packed" else Operation.DECODE
    stand.needs(needed, input_dtype=BF16, state=FP32)
    bounded_case(stand, stand.shape(16, 48, 128), BF16, FP32, route=route)


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (2, 6)], ids=lambda h: f"{h[0]}k{h[1]}v")
def test_grouped_heads_stay_within_the_bound(stand, heads):
    """Value head i belongs to key head i // group: repeated, not interleaved."""
    stand.needs(Operation.VERIFY, Operation.DECODE, input_dtype=BF16, state=FP32)
    bounded_case(stand, stand.shape(*heads), BF16, FP32, route="packed")


def test_small_keys_are_normalised_with_the_defined_eps(stand):
    """Keys near zero show the eps of the normalisation (1e-6); another one scales what is written."""
    stand.needs(Operation.DECODE, input_dtype=BF16, state=FP32)
    shape = stand.shape()
    tokens, heads, pool, _ = arrange(stand, shape, BF16, FP32, [1], 1)
    tokens = type(tokens)(tokens.q, tokens.k * 2.0**-13, tokens.v, tokens.a, torch.zeros_like(tokens.b))
    pool[1] = 0
    path = oracle.trajectory(tokens, heads, stand.vk(pool[1:2]))
    bound = oracle.error_bound(path, k_dim=shape.k_dim, state_dtype=FP32, output_dtype=BF16)
    stand.subject.decode(tokens, heads, pool, torch.tensor([1], dtype=torch.int32, device=stand.device))
    axes = ("head", "value row", "key column")
    require_within("state", stand.vk(pool[1]), path.after(1)[0], bound.states[0, 0].unsqueeze(-1), axes)
