"""Prefill, decode and packed verify over the same tokens end in the same state, wherever the chunks are cut."""

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
BF16, FP32 = torch.bfloat16, torch.float32
AXES = ("head", "value row", "key column")
COMPILED_RANGE = 64
"""Chunk length of the chunked kernels: chunks end on it, one before and one after it."""


def needs_prefill(under_test, *more, inputs, state):
    """Prefill in these dtypes. A chunked kernel computes on half-precision tiles and takes no fp32 inputs."""
    under_test.needs(Operation.PREFILL, *more, input_dtype=inputs, state=state)
    if inputs is FP32 and under_test.subject.capabilities.chunk_roundings:
        pytest.skip(f"not offered: {under_test.subject.name} has no fp32 inputs in its chunked prefill")


def bound_of(under_test, path, tokens, inputs, state, route="prefill"):
    return bound_on(route, under_test.subject.capabilities, path, tokens, inputs=inputs, state=state)


def chunked_case(under_test, shape, state, cuts):
    g = under_test.generator
    total = sum(cuts)
    tokens = cases.make_tokens(g, shape, total, BF16, under_test.device)
    heads = cases.make_heads(g, shape, BF16, under_test.device)
    pool = cases.make_pool(g, shape, 5, state, under_test.device, under_test.layout)
    before, slot = pool.clone(), torch.tensor([3], dtype=torch.int32, device=under_test.device)
    zero = torch.zeros_like(under_test.vk(pool[3:4]), dtype=torch.float64)
    path = oracle.trajectory(tokens, heads, zero)
    bound = bound_of(under_test, path, tokens, BF16, state)
    first = 0
    for chunk in cuts:
        rows = slice(first, first + chunk)
        has_initial = torch.tensor([first > 0], device=under_test.device)
        out = under_test.subject.prefill(
            tokens.take(rows), heads, pool, slot, cases.starts_of([chunk], under_test.device), has_initial
        )
        require_within(
            f"outputs {first}..",
            out,
            path.outputs[0, rows],
            bound.outputs[0, rows],
            ("row", "head", "element"),
        )
        first += chunk
        require_within(
            f"state after {first} tokens",
            under_test.vk(pool[3]),
            path.after(first)[0],
            bound.states[0, first - 1].unsqueeze(-1),
            AXES,
        )
    others = [0, 1, 2, 4]
    require_equal("slots of nobody", pool[others], before[others], ("slot", "head", "row", "column"))


@STATE
@pytest.mark.parametrize(
    "cuts", [[7], [3, 4], [3, 0, 4], [63, 2], [64, 1], [65], [1, 64, 5]], ids=lambda c: "+".join(map(str, c))
)
def test_chunks_end_in_the_same_state(under_test, state, cuts):
    """Chunked prefill against the float64 truth at every boundary, also where a chunk ends on the compiled range."""
    under_test.needs(Operation.PREFILL, input_dtype=BF16, state=state)
    chunked_case(under_test, under_test.shape(), state, cuts)


@pytest.mark.parametrize("cuts", [[5, 4], [64, 2]], ids=lambda c: "+".join(map(str, c)))
def test_chunks_end_in_the_same_state_at_qwen_shape(under_test, cuts):
    """Qwen3.6-27B's GDN layer: 16 key heads, 48 value heads, dim 128, fp32 state."""
    under_test.needs(Operation.PREFILL, input_dtype=BF16, state=torch.float32)
    chunked_case(under_test, under_test.shape(16, 48, 128), torch.float32, cuts)


@INPUT
@STATE
def test_prefill_goes_on_from_the_initial_state(under_test, inputs, state):
    """With `has_initial` the slot's state counts; without it, what a former owner left there does not."""
    needs_prefill(under_test, inputs=inputs, state=state)
    g, shape, length = under_test.generator, under_test.shape(), 5
    tokens = cases.make_tokens(g, shape, 2 * length, inputs, under_test.device)
    heads = cases.make_heads(g, shape, inputs, under_test.device)
    pool = cases.make_pool(g, shape, 6, state, under_test.device, under_test.layout)
    initial = under_test.vk(pool[[4, 2]]).double().clone()
    initial[1] = 0
    path = oracle.trajectory(tokens, heads, initial)
    bound = bound_of(under_test, path, tokens, inputs, state)
    under_test.subject.prefill(
        tokens,
        heads,
        pool,
        torch.tensor([4, 2], dtype=torch.int32, device=under_test.device),
        cases.starts_of([length, length], under_test.device),
        torch.tensor([True, False], device=under_test.device),
    )
    require_within(
        "final states",
        under_test.vk(pool[[4, 2]]),
        path.after(length),
        bound.states[:, -1].unsqueeze(-1),
        ("request", *AXES),
    )


def routes_case(under_test, inputs, state, cuts):
    """The same tokens by decode, by packed verifies of four rows and by chunks, compared where a chunk ends."""
    g, shape, total = under_test.generator, under_test.shape(), sum(cuts)
    tokens = cases.make_tokens(g, shape, total, inputs, under_test.device)
    heads = cases.make_heads(g, shape, inputs, under_test.device)
    pool = cases.make_pool(g, shape, 8, state, under_test.device, under_test.layout)
    path = oracle.trajectory(tokens, heads, under_test.vk(pool[1:2]))
    serial = decode_rows(under_test.subject, tokens, heads, pool, [1], [total]).states[0]
    packed, whole, first = pool.clone(), pool.clone(), 0
    slot = torch.tensor([1], dtype=torch.int32, device=under_test.device)
    for chunk in cuts:
        for begin in range(first, first + chunk, 4):
            under_test.subject.verify(
                tokens.take(slice(begin, begin + 4)),
                heads,
                packed,
                torch.tensor([[1, 2, 3, 4]], dtype=torch.int32, device=under_test.device),
                torch.tensor([4 if begin else 1], dtype=torch.int32, device=under_test.device),
                cases.starts_of([4], under_test.device),
            )
        under_test.subject.prefill(
            tokens.take(slice(first, first + chunk)),
            heads,
            whole,
            slot,
            cases.starts_of([chunk], under_test.device),
            torch.tensor([True], device=under_test.device),
        )
        first += chunk
        for name, value in (("decode", serial[first - 1]), ("packed", packed[4]), ("prefill", whole[1])):
            bound = bound_of(under_test, path, tokens, inputs, state, name)
            limit = bound.states[0, first - 1].unsqueeze(-1)
            what = f"state after {first} tokens by {name}"
            require_within(what, under_test.vk(value), path.after(first)[0], limit, AXES)


@INPUT
@STATE
def test_decode_packed_verify_and_prefill_agree_at_every_boundary(under_test, inputs, state):
    """One truth, three ways: at each chunk boundary all of them within their bound of it."""
    needs_prefill(under_test, Operation.DECODE, Operation.VERIFY, inputs=inputs, state=state)
    routes_case(under_test, inputs, state, [4, 4, 4])


@STATE
def test_the_routes_agree_across_the_compiled_range(under_test, state):
    """A boundary on the chunk length of the chunked kernels, and one behind it."""
    needs_prefill(under_test, Operation.DECODE, Operation.VERIFY, inputs=BF16, state=state)
    routes_case(under_test, BF16, state, [COMPILED_RANGE, 4])
