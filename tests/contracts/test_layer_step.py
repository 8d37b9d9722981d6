"""The fused step of a layer: convolution, gates and recurrence in one call publish, row by row, what single steps do.

A fused kernel keeps two kinds of state in step. A window from one column and a state from another is a request that
never was; each alone can be right.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases
from fixtures.gdn.comparison import require_equal
from fixtures.gdn.operands import NULL_SLOT
from fixtures.gdn.operations import LayerWindows, Operation

BF16, FP32 = torch.bfloat16, torch.float32
STATE = pytest.mark.parametrize("state", [torch.float32, torch.bfloat16, torch.float16], ids=cases.dtype_name)
COUNTS = pytest.mark.parametrize("counts", [[1, 1], [4, 4], [2, 3]], ids=lambda c: "".join(map(str, c)))
SLOT_AXES = ("slot", "head", "row", "column")
WINDOW_AXES = ("slot", "channel", "position")
OUT_AXES = ("packed row", "head", "element")
COLUMNS, SPARE = 4, 3


def arrange(under_test, rows, state=FP32, requests=2, shape=None):
    g, shape = under_test.generator, shape or under_test.shape()
    layer = cases.make_layer(g, shape, BF16, under_test.device)
    inputs = cases.make_projections(g, shape, rows, BF16, under_test.device)
    slots = 3 + requests * COLUMNS
    windows = cases.make_window_pool(
        g, shape, slots, SPARE, BF16, under_test.device, under_test.channels_last
    )
    pool = cases.make_pool(g, shape, slots, state, under_test.device, under_test.layout)
    table = cases.make_slots(g, slots, requests, COLUMNS, under_test.device)
    return layer, inputs, windows, pool, table


def ints(under_test, values):
    return torch.tensor(values, dtype=torch.int32, device=under_test.device)


def single_steps(under_test, layer, inputs, windows, pool, table, counts, token_base):
    """Each row by `layer_decode` in the slot of its column, continued from the row before.

    Windows lie as the subject says: after each row in its column, or all inputs in one rolling window of column 0.
    """
    rolling = under_test.subject.capabilities.layer_windows is LayerWindows.ROLLING
    stepped, windows, pool = windows.clone(), windows.clone(), pool.clone()
    out = torch.zeros(
        len(inputs), layer.shape.v_heads, layer.shape.v_dim, dtype=BF16, device=under_test.device
    )
    history = layer.shape.conv_width - 1
    for r, count in enumerate(counts):
        state = pool[int(table[r, count - 1])].clone()
        window = resumed_window(windows, table, r, count, history, rolling)
        stream = [window]
        for j, slot in enumerate(table[r].tolist()):
            row = token_base + r * COLUMNS + j
            stepped[slot, :, :history], pool[slot] = window, state
            step = inputs.take(slice(row, row + 1))
            out[row] = under_test.subject.layer_decode(step, layer, stepped, pool, ints(under_test, [slot]))[
                0
            ][0]
            window, state = stepped[slot, :, :history].clone(), pool[slot].clone()
            stream.append(window[:, -1:])
        if rolling:
            windows[int(table[r, 0]), :, : history - 1 + COLUMNS] = torch.cat(stream, dim=1)[:, 1:]
        else:
            for slot in table[r].tolist():
                windows[slot, :, :history] = stepped[slot, :, :history]
    return windows, pool, out


def resumed_window(windows, table, request, count, history, rolling):
    """The last inputs before a request's rows, of which the step before emitted `count` tokens."""
    if rolling:
        return windows[int(table[request, 0]), :, count - 1 : count - 1 + history].clone()
    return windows[int(table[request, count - 1]), :, :history].clone()


def packed_case(under_test, counts, *, state=FP32, token_base=0, shape=None):
    rows = token_base + COLUMNS * len(counts)
    layer, inputs, windows, pool, table = arrange(under_test, rows, state, shape=shape)
    expected = single_steps(under_test, layer, inputs, windows, pool, table, counts, token_base)

    starts = cases.starts_of([COLUMNS] * len(counts), under_test.device)
    out, z = under_test.subject.layer_verify(
        inputs, layer, windows, pool, table, ints(under_test, counts), starts, token_base
    )

    owners = {int(s): f"request {r}, column {j}" for r, row in enumerate(table) for j, s in enumerate(row)}
    require_equal("windows", windows, expected[0], WINDOW_AXES, owners)
    require_equal("state pool", pool, expected[1], SLOT_AXES, owners)
    require_equal("outputs", out[token_base:], expected[2][token_base:], OUT_AXES)
    gates = inputs.qkvz[token_base:, layer.shape.conv_dim :].reshape(z[token_base:].shape)
    require_equal("output gate z", z[token_base:], gates, OUT_AXES)


@STATE
@COUNTS
def test_packed_steps_publish_what_single_steps_do(under_test, state, counts):
    """Windows, states, outputs and z of every row; all other slots, and the spare tails, as they were."""
    under_test.needs(Operation.LAYER_VERIFY, Operation.LAYER_DECODE, input_dtype=BF16, state=state)
    packed_case(under_test, counts, state=state)


def test_a_token_offset_shifts_the_rows_of_a_packed_step(under_test):
    """Packed rows behind other tokens of the batch."""
    under_test.needs(Operation.LAYER_VERIFY, Operation.LAYER_DECODE, input_dtype=BF16, state=FP32)
    packed_case(under_test, [3, 1], token_base=5)


def test_packed_steps_hold_at_qwen_shape(under_test):
    """Qwen3.6-27B's GDN layer: 16 key heads, 48 value heads, dim 128, 10,240 channels."""
    under_test.needs(Operation.LAYER_VERIFY, Operation.LAYER_DECODE, input_dtype=BF16, state=FP32)
    packed_case(under_test, [2, 4], shape=under_test.shape(16, 48, 128))


@COUNTS
def test_windows_hold_exactly_the_inputs(under_test, counts):
    """The model of the windows knows no subject: history from the accepted row, then the rows' own inputs."""
    under_test.needs(Operation.LAYER_VERIFY, input_dtype=BF16, state=FP32)
    layer, inputs, windows, pool, table = arrange(under_test, COLUMNS * len(counts))
    expected, history = windows.clone(), layer.shape.conv_width - 1
    rolling = under_test.subject.capabilities.layer_windows is LayerWindows.ROLLING
    for r, count in enumerate(counts):
        rows = inputs.qkvz[r * COLUMNS : (r + 1) * COLUMNS, : layer.shape.conv_dim]
        stream = torch.cat([resumed_window(windows, table, r, count, history, rolling), rows.T], dim=1)
        if rolling:
            expected[int(table[r, 0]), :, : history - 1 + COLUMNS] = stream[:, 1:]
            continue
        for j, slot in enumerate(table[r].tolist()):
            expected[slot, :, :history] = stream[:, j + 1 : j + 1 + history]
    starts = cases.starts_of([COLUMNS] * len(counts), under_test.device)
    under_test.subject.layer_verify(inputs, layer, windows, pool, table, ints(under_test, counts), starts)
    require_equal("windows", windows, expected, WINDOW_AXES)


def test_a_packed_step_on_the_null_table_changes_nothing(under_test):
    """Graph capture: every index 0, twice; windows and states of all slots stay."""
    under_test.needs(Operation.LAYER_VERIFY, input_dtype=BF16, state=FP32)
    layer, inputs, windows, pool, table = arrange(under_test, 2 * COLUMNS)
    windows_before, pool_before = windows.clone(), pool.clone()
    starts = cases.starts_of([COLUMNS] * 2, under_test.device)
    for _ in range(2):
        under_test.subject.layer_verify(
            inputs, layer, windows, pool, torch.zeros_like(table), ints(under_test, [1, 2]), starts
        )
    require_equal("windows", windows, windows_before, WINDOW_AXES, {NULL_SLOT: "null slot"})
    require_equal("state pool", pool, pool_before, SLOT_AXES, {NULL_SLOT: "null slot"})


def test_a_single_step_is_its_parts(under_test):
    """Convolution and recurrence one after the other, where the subject has them alone."""
    under_test.needs(
        Operation.LAYER_DECODE, Operation.CONV_DECODE, Operation.DECODE, input_dtype=BF16, state=FP32
    )
    layer, inputs, windows, pool, table = arrange(under_test, 2)
    slots = table[:, 0].contiguous()
    shape, parts_windows, parts_pool = layer.shape, windows.clone(), pool.clone()
    x = inputs.qkvz[:, : shape.conv_dim].contiguous()
    convolved = under_test.subject.conv_decode(x, layer.conv, parts_windows, slots)
    q, k, v = convolved.split([shape.k_heads * shape.k_dim] * 2 + [shape.v_heads * shape.v_dim], dim=1)
    b, a = inputs.ba.chunk(2, dim=1)
    tokens = cases.Tokens(
        q=q.reshape(2, shape.k_heads, -1),
        k=k.reshape(2, shape.k_heads, -1),
        v=v.reshape(2, shape.v_heads, -1),
        a=a.contiguous(),
        b=b.contiguous(),
    )
    expected = under_test.subject.decode(tokens, layer.heads, parts_pool, slots)
    out, _ = under_test.subject.layer_decode(inputs, layer, windows, pool, slots)
    require_equal("windows", windows, parts_windows, WINDOW_AXES)
    require_equal("state pool", pool, parts_pool, SLOT_AXES)
    require_equal("outputs", out, expected, OUT_AXES)
