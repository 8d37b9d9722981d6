"""Prefill, decode and packed verify over the same tokens end in the same state, wherever the chunks are cut."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_equal, require_within
from fixtures.gdn.operations import Operation
from fixtures.gdn.routes import decode_rows

STATE = pytest.mark.parametrize("state", [torch.float32, torch.bfloat16, torch.float16], ids=cases.dtype_name)
BF16 = torch.bfloat16
AXES = ("head", "value row", "key column")
COMPILED_RANGE = 64
"""Chunk length of the chunked kernels: chunks end on it, one before and one after it."""


def bound_of(stand, path, tokens, shape, state, chunked):
    """The decode bound; for a chunked kernel also its rounded intermediates.

    A chunked kernel keeps normalised q and k, beta, w, u and the corrected values in the input dtype: each is a
    relative error of one unit roundoff in what a token reads or writes, and the triangular solve can pass
    an error on once more.
    """
    capabilities = stand.subject.capabilities
    u = oracle.roundoff(BF16)
    roundings = capabilities.chunk_roundings if chunked else 0
    return oracle.error_bound(
        path,
        k_dim=shape.k_dim,
        state_dtype=state,
        output_dtype=BF16,
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
    bound = bound_of(stand, path, tokens, shape, state, chunked=True)
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


@STATE
def test_prefill_goes_on_from_the_initial_state(stand, state):
    """With `has_initial` the slot's state counts; without it, what a former owner left there does not."""
    stand.needs(Operation.PREFILL, input_dtype=BF16, state=state)
    g, shape, length = stand.generator, stand.shape(), 5
    tokens = cases.make_tokens(g, shape, 2 * length, BF16, stand.device)
    heads = cases.make_heads(g, shape, BF16, stand.device)
    pool = cases.make_pool(g, shape, 6, state, stand.device, stand.layout)
    initial = stand.vk(pool[[4, 2]]).double().clone()
    initial[1] = 0
    path = oracle.trajectory(tokens, heads, initial)
    bound = bound_of(stand, path, tokens, shape, state, chunked=True)
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


@STATE
def test_decode_and_packed_verify_end_where_prefill_does(stand, state):
    """Eight tokens three ways from one state: all within their bound of one truth."""
    stand.needs(Operation.PREFILL, Operation.DECODE, Operation.VERIFY, input_dtype=BF16, state=state)
    g, shape = stand.generator, stand.shape()
    tokens = cases.make_tokens(g, shape, 8, BF16, stand.device)
    heads = cases.make_heads(g, shape, BF16, stand.device)
    pool = cases.make_pool(g, shape, 8, state, stand.device, stand.layout)
    path = oracle.trajectory(tokens, heads, stand.vk(pool[1:2]))
    states = {"decode": decode_rows(stand.subject, tokens, heads, pool, [1], [8]).states[0][-1]}
    packed, accepted = pool.clone(), 1
    for begin in (0, 4):
        stand.subject.verify(
            tokens.take(slice(begin, begin + 4)),
            heads,
            packed,
            torch.tensor([[1, 2, 3, 4]], dtype=torch.int32, device=stand.device),
            torch.tensor([accepted], dtype=torch.int32, device=stand.device),
            cases.starts_of([4], stand.device),
        )
        accepted = 4
    states["packed"] = packed[4]
    whole = pool.clone()
    one = torch.tensor([1], dtype=torch.int32, device=stand.device)
    stand.subject.prefill(
        tokens,
        heads,
        whole,
        one,
        cases.starts_of([8], stand.device),
        torch.tensor([True], device=stand.device),
    )
    states["prefill"] = whole[1]
    for name, value in states.items():
        limit = (
            bound_of(stand, path, tokens, shape, state, chunked=name == "prefill").states[0, -1].unsqueeze(-1)
        )
        require_within(f"state after eight tokens by {name}", stand.vk(value), path.after(8)[0], limit, AXES)
