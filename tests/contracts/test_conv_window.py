"""The causal convolution: what comes out (decode, packed), and what its window holds afterwards."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import must_run, require_equal, require_within
from fixtures.gdn.operations import Operation

WINDOW_AXES = ("slot", "channel", "position")
OUT_AXES = ("row", "channel")
INPUT = pytest.mark.parametrize(
    "inputs", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name
)


def bound(x, history, conv):
    """Four products and a bias in fp32, possibly of a sum that is rounded to the input dtype before SiLU, and once more
    after it. |silu'| <= 1.1, so each rounding adds at most 1.1 unit roundoffs of the sum's magnitude."""
    stream = torch.cat([history.double(), x.double().T], dim=1).abs()
    size = (stream.unfold(1, conv.weight.shape[1], 1) * conv.weight.double().abs().unsqueeze(1)).sum(-1)
    size = (size + (conv.bias.double().abs().unsqueeze(1) if conv.bias is not None else 0)).T
    # Three: sum, sigmoid factor, result.
    return 3 * 1.1 * oracle.roundoff(x.dtype) * size + 16 * oracle.FP32_ROUNDOFF * size + 1e-7


def arrange(stand, inputs, rows, spare, slots=8):
    g, shape = stand.generator, stand.shape()
    conv = cases.make_conv(g, shape, inputs, stand.device)
    pool = cases.make_window_pool(g, shape, slots, spare, inputs, stand.device)
    x = cases.random_tensor(g, rows, shape.conv_dim, dtype=inputs, device=stand.device)
    return conv, pool, x


@INPUT
@pytest.mark.parametrize("spare", [0, 3])
def test_decode_convolves_and_shifts_the_window(stand, inputs, spare):
    """One input per request; a spare tail behind the window stays."""
    stand.needs(Operation.CONV_DECODE, input_dtype=inputs)
    conv, pool, x = arrange(stand, inputs, 3, spare)
    slots = cases.make_slots(stand.generator, 8, 3, 1, stand.device).flatten()
    before, history = pool.clone(), conv.weight.shape[1] - 1
    expected = pool.clone()
    for r, slot in enumerate(slots.tolist()):
        expected[slot, :, :history] = torch.cat([before[slot, :, 1:history], x[r].unsqueeze(1)], dim=1)

    out = stand.subject.conv_decode(x, conv, pool, slots)

    require_equal("windows", pool, expected, WINDOW_AXES)
    for r, slot in enumerate(slots.tolist()):
        old = before[slot, :, :history]
        truth = oracle.convolve(x[r : r + 1], old, conv.weight, conv.bias)
        require_within(
            f"output of request {r}", out[r : r + 1], truth, bound(x[r : r + 1], old, conv), OUT_AXES
        )


@INPUT
@pytest.mark.parametrize("lengths", [[4, 4, 4], [2, 4, 1]], ids=lambda v: "".join(map(str, v)))
def test_packed_rows_convolve_over_the_accepted_history(stand, inputs, lengths):
    """The wide rolling window: history from the accepted offset, then the new inputs, each slot its own."""
    stand.needs(Operation.CONV_VERIFY, input_dtype=inputs)
    conv, pool, x = arrange(stand, inputs, sum(lengths), 3)
    slots = cases.make_slots(stand.generator, 8, 3, 1, stand.device).flatten()
    accepted, before, history = [1, 3, 4], pool.clone(), conv.weight.shape[1] - 1

    with must_run("a packed call"):
        counts = torch.tensor(accepted, dtype=torch.int32, device=stand.device)
        out = stand.subject.conv_verify(x, conv, pool, slots, counts, cases.starts_of(lengths, stand.device))

    first = 0
    others = torch.ones(8, dtype=torch.bool, device=stand.device)
    for r, slot in enumerate(slots.tolist()):
        rows = x[first : first + lengths[r]]
        old = before[slot, :, accepted[r] - 1 : accepted[r] - 1 + history]
        truth = oracle.convolve(rows, old, conv.weight, conv.bias)
        require_within(
            f"outputs of request {r}",
            out[first : first + lengths[r]],
            truth,
            bound(rows, old, conv),
            OUT_AXES,
        )
        first += lengths[r]
        others[slot] = False
    require_equal("windows of nobody", pool[others], before[others], WINDOW_AXES)
    first = 0
    for r, slot in enumerate(slots.tolist()):
        old = before[slot, :, accepted[r] - 1 : accepted[r] - 1 + history]
        stream = torch.cat([old, x[first : first + lengths[r]].T], dim=1)[:, 1:]
        first += lengths[r]
        require_equal(
            f"window of request {r}", pool[slot, :, : stream.shape[1]], stream, ("channel", "position")
        )


@INPUT
@pytest.mark.parametrize("counts", [[1, 1], [4, 2]], ids=lambda c: "".join(map(str, c)))
def test_a_window_per_column_keeps_its_spare_tail(stand, inputs, counts):
    """Wide cache with a window per column: row j's window to column j, the poisoned tail stays, all slots compared."""
    stand.needs(Operation.CONV_VERIFY_COLUMNS, input_dtype=inputs)
    lengths = [4, 3]
    conv, pool, x = arrange(stand, inputs, 7, 3, slots=12)
    table = cases.make_slots(stand.generator, 12, 2, 4, stand.device)
    expected, history, first = pool.clone(), conv.weight.shape[1] - 1, 0
    truths = []
    for r, length in enumerate(lengths):
        old = pool[int(table[r, counts[r] - 1]), :, :history]
        rows = x[first : first + length]
        truths.append((oracle.convolve(rows, old, conv.weight, conv.bias), bound(rows, old, conv)))
        stream = torch.cat([old, rows.T], dim=1)
        for j in range(length):
            expected[int(table[r, j]), :, :history] = stream[:, j + 1 : j + 1 + history]
        first += length

    accepted = torch.tensor(counts, dtype=torch.int32, device=stand.device)
    out = stand.subject.conv_verify_columns(
        x, conv, pool, table, accepted, cases.starts_of(lengths, stand.device)
    )

    require_equal("windows", pool, expected, WINDOW_AXES)
    truth, limit = (torch.cat([pair[i] for pair in truths]) for i in (0, 1))
    require_within("outputs", out, truth, limit, OUT_AXES)


def test_null_rows_convolve_nothing(stand):
    """Padding rows point at the null slot: its window stays."""
    stand.needs(Operation.CONV_DECODE, input_dtype=torch.bfloat16)
    conv, pool, x = arrange(stand, torch.bfloat16, 2, 0)
    before = pool.clone()
    stand.subject.conv_decode(x, conv, pool, torch.zeros(2, dtype=torch.int32, device=stand.device))
    require_equal("windows", pool, before, WINDOW_AXES)
