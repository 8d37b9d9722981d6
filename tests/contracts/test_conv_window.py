"""The causal convolution: what comes out (decode, packed, prefill), and what its window holds afterwards."""

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


def arrange(under_test, inputs, rows, spare, slots=8, shape=None):
    g, shape = under_test.generator, shape or under_test.shape()
    conv = cases.make_conv(g, shape, inputs, under_test.device)
    pool = cases.make_window_pool(g, shape, slots, spare, inputs, under_test.device, under_test.channels_last)
    x = cases.random_tensor(g, rows, shape.conv_dim, dtype=inputs, device=under_test.device)
    return conv, pool, x


def decode_case(under_test, inputs, spare, shape=None):
    conv, pool, x = arrange(under_test, inputs, 3, spare, shape=shape)
    slots = cases.make_slots(under_test.generator, 8, 3, 1, under_test.device).flatten()
    before, history = pool.clone(), conv.weight.shape[1] - 1
    expected = pool.clone()
    for r, slot in enumerate(slots.tolist()):
        expected[slot, :, :history] = torch.cat([before[slot, :, 1:history], x[r].unsqueeze(1)], dim=1)

    out = under_test.subject.conv_decode(x, conv, pool, slots)

    require_equal("windows", pool, expected, WINDOW_AXES)
    for r, slot in enumerate(slots.tolist()):
        old = before[slot, :, :history]
        truth = oracle.convolve(x[r : r + 1], old, conv.weight, conv.bias)
        require_within(
            f"output of request {r}", out[r : r + 1], truth, bound(x[r : r + 1], old, conv), OUT_AXES
        )


@INPUT
@pytest.mark.parametrize("spare", [0, 3])
def test_decode_convolves_and_shifts_the_window(under_test, inputs, spare):
    """One input per request; a spare tail behind the window stays."""
    under_test.needs(Operation.CONV_DECODE, input_dtype=inputs)
    decode_case(under_test, inputs, spare)


def packed_case(under_test, inputs, lengths, shape=None):
    conv, pool, x = arrange(under_test, inputs, sum(lengths), 3, shape=shape)
    slots = cases.make_slots(under_test.generator, 8, 3, 1, under_test.device).flatten()
    accepted, before, history = [1, 3, 4], pool.clone(), conv.weight.shape[1] - 1

    with must_run("a packed call"):
        counts = torch.tensor(accepted, dtype=torch.int32, device=under_test.device)
        out = under_test.subject.conv_verify(
            x, conv, pool, slots, counts, cases.starts_of(lengths, under_test.device)
        )

    first = 0
    others = torch.ones(8, dtype=torch.bool, device=under_test.device)
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
@pytest.mark.parametrize("lengths", [[4, 4, 4], [2, 4, 1]], ids=lambda v: "".join(map(str, v)))
def test_packed_rows_convolve_over_the_accepted_history(under_test, inputs, lengths):
    """The wide rolling window: history from the accepted offset, then the new inputs, each slot its own."""
    under_test.needs(Operation.CONV_VERIFY, input_dtype=inputs)
    packed_case(under_test, inputs, lengths)


@INPUT
@pytest.mark.parametrize("counts", [[1, 1], [4, 2]], ids=lambda c: "".join(map(str, c)))
def test_a_window_per_column_keeps_its_spare_tail(under_test, inputs, counts):
    """Wide cache with a window per column: row j's window to column j, the poisoned tail stays, all slots compared."""
    under_test.needs(Operation.CONV_VERIFY_COLUMNS, input_dtype=inputs)
    lengths = [4, 3]
    conv, pool, x = arrange(under_test, inputs, 7, 3, slots=12)
    table = cases.make_slots(under_test.generator, 12, 2, 4, under_test.device)
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

    accepted = torch.tensor(counts, dtype=torch.int32, device=under_test.device)
    out = under_test.subject.conv_verify_columns(
        x, conv, pool, table, accepted, cases.starts_of(lengths, under_test.device)
    )

    require_equal("windows", pool, expected, WINDOW_AXES)
    truth, limit = (torch.cat([pair[i] for pair in truths]) for i in (0, 1))
    require_within("outputs", out, truth, limit, OUT_AXES)


def test_null_rows_convolve_nothing(under_test):
    """Padding rows point at the null slot: its window stays."""
    under_test.needs(Operation.CONV_DECODE, input_dtype=torch.bfloat16)
    conv, pool, x = arrange(under_test, torch.bfloat16, 2, 0)
    before = pool.clone()
    under_test.subject.conv_decode(x, conv, pool, torch.zeros(2, dtype=torch.int32, device=under_test.device))
    require_equal("windows", pool, before, WINDOW_AXES)


def prefill_case(under_test, inputs, lengths, has_initial, spare=0, shape=None):
    """One ragged call on poisoned slots: outputs, the windows of all slots, spare tails included."""
    conv, pool, x = arrange(under_test, inputs, sum(lengths), spare, shape=shape)
    slots = cases.make_slots(under_test.generator, 8, len(lengths), 1, under_test.device).flatten()
    expected, history, first = pool.clone(), conv.weight.shape[1] - 1, 0
    truths = []
    for slot, length, goes_on in zip(slots.tolist(), lengths, has_initial, strict=True):
        old = pool[slot, :, :history] if goes_on else torch.zeros_like(pool[slot, :, :history])
        rows = x[first : first + length]
        first += length
        truths.append((oracle.convolve(rows, old, conv.weight, conv.bias), bound(rows, old, conv)))
        expected[slot, :, :history] = torch.cat([old, rows.T], dim=1)[:, -history:]

    out = under_test.subject.conv_prefill(
        x,
        conv,
        pool,
        slots,
        cases.starts_of(lengths, under_test.device),
        torch.tensor(has_initial, device=under_test.device),
    )

    owners = {slot: f"request {r}" for r, slot in enumerate(slots.tolist())}
    require_equal("windows", pool, expected, WINDOW_AXES, owners)
    truth, limit = (torch.cat([pair[i] for pair in truths]) for i in (0, 1))
    require_within("outputs", out, truth, limit, OUT_AXES)


@INPUT
@pytest.mark.parametrize("spare", [0, 3])
def test_prefill_convolves_from_the_initial_window(under_test, inputs, spare):
    """Chunks longer and shorter than the window, fresh and going on; what a former owner left is not read."""
    under_test.needs(Operation.CONV_PREFILL, input_dtype=inputs)
    prefill_case(under_test, inputs, [9, 1, 2, 1, 5], [True, True, False, False, False], spare)


@pytest.mark.parametrize(
    "cuts", [[1, 8], [3, 6], [2, 1, 6], [8, 1], [64, 3]], ids=lambda c: "+".join(map(str, c))
)
def test_a_prompt_in_chunks_convolves_as_one(under_test, cuts):
    """Wherever a prompt is cut: every output as if it were whole, the last inputs in the window at each boundary."""
    under_test.needs(Operation.CONV_PREFILL, input_dtype=torch.bfloat16)
    conv, pool, x = arrange(under_test, torch.bfloat16, sum(cuts), 3)
    history, slot, before = conv.weight.shape[1] - 1, 5, pool.clone()
    fresh = torch.zeros_like(pool[slot, :, :history])
    truth, limit = oracle.convolve(x, fresh, conv.weight, conv.bias), bound(x, fresh, conv)
    stream, first = torch.cat([fresh, x.T], dim=1), 0
    for length in cuts:
        rows = slice(first, first + length)
        out = under_test.subject.conv_prefill(
            x[rows].contiguous(),
            conv,
            pool,
            torch.tensor([slot], dtype=torch.int32, device=under_test.device),
            cases.starts_of([length], under_test.device),
            torch.tensor([first > 0], device=under_test.device),
        )
        first += length
        require_within(f"outputs up to {first}", out, truth[rows], limit[rows], OUT_AXES)
        window = stream[:, first : first + history]
        require_equal(f"window after {first}", pool[slot, :, :history], window, ("channel", "position"))
    before[slot, :, :history] = stream[:, -history:]
    require_equal("all windows", pool, before, WINDOW_AXES)


@pytest.mark.parametrize("route", ["decode", "packed", "prefill"])
def test_the_convolution_holds_at_qwen_shape(under_test, route):
    """The 10,240 channels of Qwen3.6-27B's GDN layer."""
    operations = {
        "decode": Operation.CONV_DECODE,
        "packed": Operation.CONV_VERIFY,
        "prefill": Operation.CONV_PREFILL,
    }
    under_test.needs(operations[route], input_dtype=torch.bfloat16)
    shape = under_test.shape(16, 48, 128)
    if route == "decode":
        decode_case(under_test, torch.bfloat16, 3, shape)
    elif route == "packed":
        packed_case(under_test, torch.bfloat16, [4, 4, 4], shape)
    else:
        prefill_case(under_test, torch.bfloat16, [9, 2, 17], [True, True, False], 3, shape)
