"""Prefill, decode and packed verify over the same tokens end in the same state, wherever the chunks are cut."""

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
BF16, FP32 = torch.bfloat16, torch.float32
AXES = ("head", "value row", "key column")
COMPILED_RANGE = 64
"""Chunk length of the chunked kernels: chunks end on it, one before and one after it."""


def needs_prefill(stand, *more, inputs, state):
    """Prefill in these dtypes. A chunked kernel computes on half-precision tiles and takes no fp32 inputs."""
    stand.needs(Operation.PREFILL, *more, input_dtype=inputs, state=state)
    if inputs is FP32 and stand.subject.capabilities.chunk_roundings:
        pytest.skip(f"not offered: {stand.subject.name} has no fp32 inputs in its chunked prefill")


def bound_of(stand, path, tokens, shape, inputs, state, chunked):
    """The decode bound; for a chunked kernel also its rounded intermediates.

    A chunked kernel keeps normalised q and k, beta, w, u and the corrected values in the input dtype: each is a
    relative error of one unit roundoff in what a token reads or writes, and the triangular solve can pass
    an error on once more.
    """
    capabilities = stand.subject.capabilities
    u = oracle.roundoff(inputs)
    roundings = capabilities.chunk_roundings if chunked else 0
    return oracle.error_bound(
        path,
        k_dim=shape.k_dim,
        state_dtype=state,
        output_dtype=inputs,
        strength_error=capabilities.sigmoid_roundings * u + roundings * u,
        key_error=oracle.key_error(tokens, capabilities.norm_eps) + roundings * u,
    )


def chunked_case(stand, shape, state, cuts):
    g = stand.generator
    total = sum(cuts)
    tokens = cases.make_tokens(g, shape, total, BF16, stand.device)
    heads = cases.make_heads(g, shape, BF16, stand.device)
    pool = cases.make_pool(g, shape, 5, state, stand.device, stand.layout)
    before, slot = pool.clone(), torch.tensor([3], dtype=torch.int32, device=stand.device)
    zero = torch.zeros_like(stand.vk(pool[3:4]), dtype=torch.float64)
    path = oracle.trajectory(tokens, heads, zero)
    bound = bound_of(stand, path, tokens, shape, BF16, state, chunked=True)
    first = 0
    for chunk in cuts:
        rows = slice(first, first + chunk)
        has_initial = torch.tensor([first > 0], device=stand.device)
        out = stand.subject.prefill(
            tokens.take(rows), heads, pool, slot, cases.starts_of([chunk], stand.device), has_initial
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
            stand.vk(pool[3]),
            path.after(first)[0],
            bound.states[0, first - 1].unsqueeze(-1),
            AXES,
        )
    others = [0, 1, 2, 4]
    require_equal("slots of nobody", pool[others], before[others], ("slot", "head", "row", "column"))


@STATE
@pytest.mark.parametrize(
    "cuts", [[7], [3, 4], [63, 2], [64, 1], [65], [1, 64, 5]], ids=lambda c: "+".join(map(str, c))
)
def test_chunks_end_in_the_same_state(stand, state, cuts):
    """Chunked prefill against the float64 truth at every boundary, also where a chunk ends on the compiled range."""
    stand.needs(Operation.PREFILL, input_dtype=BF16, state=state)
    chunked_case(stand, stand.shape(), state, cuts)


@pytest.mark.parametrize("cuts", [[5, 4], [64, 2]], ids=lambda c: "+".join(map(str, c)))
def test_chunks_end_in_the_same_state_at_qwen_shape(stand, cuts):
    """Qwen3.6-27B's GDN layer: 16 key heads, 48 value heads, dim 128, fp32 state."""
    stand.needs(Operation.PREFILL, input_dtype=BF16, state=torch.float32)
    chunked_case(stand, stand.shape(16, 48, 128), torch.float32, cuts)


@INPUT
@STATE
def test_prefill_goes_on_from_the_initial_state(stand, inputs, state):
    """With `has_initial` the slot's state counts; without it, what a former owner left there does not."""
    needs_prefill(stand, inputs=inputs, state=state)
    g, shape, length = stand.generator, stand.shape(), 5
    tokens = cases.make_tokens(g, shape, 2 * length, inputs, stand.device)
    heads = cases.make_heads(g, shape, inputs, stand.device)
    pool = cases.make_pool(g, shape, 6, state, stand.device, stand.layout)
    initial = stand.vk(pool[[4, 2]]).double().clone()
    initial[1] = 0
    path = oracle.trajectory(tokens, heads, initial)
    bound = bound_of(stand, path, tokens, shape, inputs, state, chunked=True)
    stand.subject.prefill(
        tokens,
        heads,
        pool,
        torch.tensor([4, 2], dtype=torch.int32, device=stand.device),
        cases.starts_of([length, length], stand.device),
        torch.tensor([True, False], device=stand.device),
    )
    require_within(
        "final states",
        stand.vk(pool[[4, 2]]),
        path.after(length),
        bound.states[:, -1].unsqueeze(-1),
        ("request", *AXES),
    )


def routes_case(stand, inputs, state, cuts):
    """The same tokens by decode, by packed verifies of four rows and by chunks, compared where a chunk ends."""
    g, shape, total = stand.generator, stand.shape(), sum(cuts)
    tokens = cases.make_tokens(g, shape, total, inputs, stand.device)
    heads = cases.make_heads(g, shape, inputs, stand.device)
    pool = cases.make_pool(g, shape, 8, state, stand.device, stand.layout)
    path = oracle.trajectory(tokens, heads, stand.vk(pool[1:2]))
    serial = decode_rows(stand.subject, tokens, heads, pool, [1], [total]).states[0]
    packed, whole, first = pool.clone(), pool.clone(), 0
    slot = torch.tensor([1], dtype=torch.int32, device=stand.device)
    for chunk in cuts:
        for begin in range(first, first + chunk, 4):
            stand.subject.verify(
                tokens.take(slice(begin, begin + 4)),
                heads,
                packed,
                torch.tensor([[1, 2, 3, 4]], dtype=torch.int32, device=stand.device),
                torch.tensor([4 if begin else 1], dtype=torch.int32, device=stand.device),
                cases.starts_of([4], stand.device),
            )
        stand.subject.prefill(
            tokens.take(slice(first, first + chunk)),
            heads,
            whole,
            slot,
            cases.starts_of([chunk], stand.device),
            torch.tensor([True], device=stand.device),
        )
        first += chunk
        for name, value in (("decode", serial[first - 1]), ("packed", packed[4]), ("prefill", whole[1])):
            bound = bound_of(stand, path, tokens, shape, inputs, state, chunked=name == "prefill")
            limit = bound.states[0, first - 1].unsqueeze(-1)
            what = f"state after {first} tokens by {name}"
            require_within(what, stand.vk(value), path.after(first)[0], limit, AXES)


@INPUT
@STATE
def test_decode_packed_verify_and_prefill_agree_at_every_boundary(stand, inputs, state):
    """One truth, three ways: at each chunk boundary all of them within their bound of it."""
    needs_prefill(stand, Operation.DECODE, Operation.VERIFY, inputs=inputs, state=state)
    routes_case(stand, inputs, state, [4, 4, 4])


@STATE
def test_the_routes_agree_across_the_compiled_range(stand, state):
    """A boundary on the chunk length of the chunked kernels, and one behind it."""
    needs_prefill(stand, Operation.DECODE, Operation.VERIFY, inputs=BF16, state=state)
    routes_case(stand, BF16, state, [COMPILED_RANGE, 4])
