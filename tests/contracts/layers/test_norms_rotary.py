"""Norms and rotary around the state: float64 within a derived bound, what is not to be written stays, and equality of
fused and unfused only where the subject promises it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn.cases import dtype_name
from fixtures.gdn.comparison import must_run, require_equal, require_within
from fixtures.layers import oracle
from fixtures.layers.cases import guarded, require_guards
from fixtures.layers.operations import LayerOperation, Promise

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
ROWS = ("row", "element")
HEADS = ("token", "head", "element")
EPS = 1e-6
HEAD_DIM, ROTARY_DIM, BASE = 64, 32, 10_000.0
SECTIONS = (6, 5, 5)


@DTYPE
@pytest.mark.parametrize("width", [128, 2560, 5120])
@pytest.mark.parametrize("scale", [1.0, 1e-3], ids=["ordinary", "near-eps"])
def test_rms_norm_is_the_defined_one(layers, dtype, width, scale):
    """Rows of ordinary size, and rows so small that eps decides."""
    layers.needs(LayerOperation.RMS_NORM, dtype=dtype)
    x = layers.draw(4, width, dtype=dtype, scale=scale)
    weight = layers.draw(width, dtype=dtype)
    storage, out = guarded(4, width, dtype, layers.device)
    before = x.clone()
    layers.subject.rms_norm(x, weight, EPS, out)
    truth = oracle.rms_norm(x, weight, EPS)
    bound = oracle.norm_bound(truth, dtype, width, layers.roundings(LayerOperation.RMS_NORM))
    require_within("normalised rows", out, truth, bound, ROWS)
    require_equal("input", x, before, ROWS)
    require_guards(storage, out)


@DTYPE
@pytest.mark.parametrize("width", [128, 5120])
def test_the_fused_addition_stores_the_sum_and_normalises_it(layers, dtype, width):
    """The residual is the sum, rounded once: exact. What is normalised is that sum, before or after its rounding."""
    layers.needs(LayerOperation.ADD_RMS_NORM, dtype=dtype)
    x, residual = layers.draw(4, width, dtype=dtype), layers.draw(4, width, dtype=dtype)
    weight = layers.draw(width, dtype=dtype)
    stored = (x.float() + residual.float()).to(dtype)
    truth = oracle.summed_norm(x, residual, weight, EPS, layers.subject.capabilities.normalised_sum)
    layers.subject.add_rms_norm(x, residual, weight, EPS)
    require_equal("residual", residual, stored, ROWS)
    bound = oracle.norm_bound(truth, dtype, width, layers.roundings(LayerOperation.ADD_RMS_NORM))
    require_within("normalised sum", x, truth, bound, ROWS)


@DTYPE
def test_the_fused_addition_equals_its_parts(layers, dtype):
    """Only where it is promised: others normalise the sum before it is rounded."""
    layers.needs(LayerOperation.ADD_RMS_NORM, LayerOperation.RMS_NORM, dtype=dtype)
    layers.needs_promise(Promise.FUSED_ADD_NORM)
    x, residual = layers.draw(4, 256, dtype=dtype), layers.draw(4, 256, dtype=dtype)
    weight = layers.draw(256, dtype=dtype)
    parts = torch.empty_like(x)
    layers.subject.rms_norm((x.float() + residual.float()).to(dtype), weight, EPS, parts)
    layers.subject.add_rms_norm(x, residual, weight, EPS)
    require_equal("fused against its parts", x, parts, ROWS)


@DTYPE
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("scale", [1.0, 12.0], ids=["ordinary", "saturated"])
def test_the_gated_norm_gates_after_the_norm(layers, dtype, dim, scale):
    """Gates of ordinary size, and gates where the sigmoid is 0 or 1."""
    layers.needs(LayerOperation.GATED_NORM, dtype=dtype)
    x, gate = layers.draw(12, dim, dtype=dtype), layers.draw(12, dim, dtype=dtype, scale=scale)
    weight = layers.draw(dim, dtype=dtype)
    storage, out = guarded(12, dim, dtype, layers.device)
    layers.subject.gated_norm(x, gate, weight, EPS, out)
    truth = oracle.gated_norm(x, gate, weight, EPS)
    bound = oracle.gated_norm_bound(truth, gate, dtype, dim, layers.roundings(LayerOperation.GATED_NORM))
    require_within("gated rows", out, truth, bound, ROWS)
    require_guards(storage, out)


@DTYPE
@given(
    tokens=st.integers(1, 5),
    padding=st.integers(0, 3),
    heads=st.sampled_from([1, 3, 8]),
    salt=st.integers(0, 999),
)
def test_the_projection_input_holds_heads_side_by_side(layers, dtype, tokens, padding, heads, salt):
    """Straight into the projection's input: heads side by side, padding rows and the gap between rows untouched."""
    layers.needs(LayerOperation.GATED_NORM_PROJECTED, dtype=dtype)
    layers.reseed(salt)
    dim = 64
    x, gate = (layers.draw(tokens, heads, dim, dtype=dtype) for _ in range(2))
    weight = layers.draw(dim, dtype=dtype)
    storage, out = guarded(tokens + padding, heads * dim, dtype, layers.device, gap=16)
    expected_rest = storage.clone()
    layers.subject.gated_norm_projected(x, gate, weight, EPS, out)
    truth = oracle.gated_norm(x, gate, weight, EPS)
    roundings = layers.roundings(LayerOperation.GATED_NORM_PROJECTED)
    bound = oracle.gated_norm_bound(truth, gate, dtype, dim, roundings)
    got = out[:tokens].unflatten(1, (heads, dim)).clone()
    require_within("projection input", got, truth, bound, HEADS)
    out[:tokens] = float("nan")
    require_equal("padding rows and gaps", storage, expected_rest, ROWS)
    if Promise.FUSED_PROJECTION in layers.subject.capabilities.promises:
        plain = torch.empty_like(x.flatten(0, 1))
        layers.subject.gated_norm(x.flatten(0, 1), gate.flatten(0, 1), weight, EPS, plain)
        require_equal("fused against plain", got.flatten(0, 1), plain, ROWS)


def rotary_inputs(layers, dtype, tokens, q_heads=4, k_heads=2):
    """Queries, keys and a cache of 512 positions."""
    query = layers.draw(tokens, q_heads * HEAD_DIM, dtype=dtype)
    key = layers.draw(tokens, k_heads * HEAD_DIM, dtype=dtype)
    return query, key, oracle.rotary_cache(512, ROTARY_DIM, BASE, dtype).to(layers.device)


def require_rotated(layers, operation, got, before, cosines, sines):
    """Rotated within the bound; what is behind rotary_dim exactly as before."""
    for name, new, old in zip(("query", "key"), got, before, strict=True):
        old, new = old.unflatten(1, (-1, HEAD_DIM)), new.unflatten(1, (-1, HEAD_DIM))
        truth, size = oracle.rotate(old, cosines, sines)
        bound = oracle.rotary_bound(truth, size, old.dtype, layers.roundings(operation))
        turned = (..., slice(0, ROTARY_DIM))
        require_within(f"rotated {name}", new[turned], truth[turned], bound[turned], HEADS)
        require_equal(f"{name} behind rotary_dim", new[..., ROTARY_DIM:], old[..., ROTARY_DIM:], HEADS)


@DTYPE
@given(positions=st.lists(st.integers(0, 511), min_size=1, max_size=6), salt=st.integers(0, 999))
def test_rotary_turns_every_head_by_its_position(layers, dtype, positions, salt):
    """Any positions, repeated and unordered ones too: drafts of several requests lie side by side."""
    layers.needs(LayerOperation.ROTARY, dtype=dtype)
    layers.reseed(salt)
    query, key, cache = rotary_inputs(layers, dtype, len(positions))
    at = torch.tensor(positions, device=layers.device)
    before = query.clone(), key.clone()
    layers.subject.rotary(at, query, key, HEAD_DIM, cache)
    require_rotated(layers, LayerOperation.ROTARY, (query, key), before, *cache[at].chunk(2, dim=-1))


@DTYPE
@pytest.mark.parametrize("text", [True, False], ids=["text-only", "with-sections"])
def test_mrope_is_rotary_of_the_chosen_section(layers, dtype, text):
    """Text has the same position three times; an image has not, and then the interleaved sections decide."""
    layers.needs(LayerOperation.MROPE, dtype=dtype)
    query, key, cache = rotary_inputs(layers, dtype, 5)
    at = torch.randint(0, 512, (1 if text else 3, 5), generator=layers.generator).expand(3, 5).contiguous()
    before = query.clone(), key.clone()
    layers.subject.mrope(at.to(layers.device), query, key, HEAD_DIM, cache, SECTIONS)
    turns = oracle.text_or_sections(cache, at, SECTIONS)
    require_rotated(layers, LayerOperation.MROPE, (query, key), before, *turns)


@DTYPE
def test_text_only_mrope_equals_rotary(layers, dtype):
    """Only where it is promised: a language model that never sees an image may use either."""
    layers.needs(LayerOperation.MROPE, LayerOperation.ROTARY, dtype=dtype)
    layers.needs_promise(Promise.TEXT_MROPE)
    query, key, cache = rotary_inputs(layers, dtype, 5)
    plain_query, plain_key = query.clone(), key.clone()
    at = torch.randint(0, 512, (5,), generator=layers.generator).to(layers.device)
    layers.subject.mrope(at.expand(3, 5).contiguous(), query, key, HEAD_DIM, cache, SECTIONS)
    layers.subject.rotary(at, plain_query, plain_key, HEAD_DIM, cache)
    require_equal("query", query, plain_query, ROWS)
    require_equal("key", key, plain_key, ROWS)


@DTYPE
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(4, 2), (6, 1)])
def test_q_and_k_are_normalised_and_rotated_and_the_gate_is_taken_as_it_is(layers, dtype, q_heads, kv_heads):
    """Gated q layout: every q head is followed by its gate; the projection itself stays."""
    layers.needs(LayerOperation.QK_NORM_ROTARY, dtype=dtype)
    dim = HEAD_DIM
    projected = layers.draw(4, (2 * q_heads + 2 * kv_heads) * dim, dtype=dtype)
    weights = [layers.draw(dim, dtype=dtype, scale=0.2) + 1 for _ in range(2)]
    cache = oracle.rotary_cache(512, ROTARY_DIM, BASE, dtype).to(layers.device)
    at = torch.randint(0, 512, (4,), generator=layers.generator).to(layers.device)
    before = projected.clone()
    with must_run("gated q layout"):
        q, k, gate = layers.subject.qk_norm_rotary(projected, *weights, EPS, at, cache, (q_heads, kv_heads))
    require_equal("projection", projected, before, ROWS)
    heads = before[:, : 2 * q_heads * dim].unflatten(1, (q_heads, 2, dim))
    require_equal("gate", gate, heads[:, :, 1], HEADS)
    keys = before[:, 2 * q_heads * dim :][:, : kv_heads * dim].unflatten(1, (kv_heads, dim))
    cosines, sines = cache[at].chunk(2, dim=-1)
    roundings = layers.roundings(LayerOperation.QK_NORM_ROTARY)
    for name, got, source, weight in zip("qk", (q, k), (heads[:, :, 0], keys), weights, strict=True):
        normed = oracle.rms_norm(source, weight, EPS)
        slack = oracle.norm_bound(normed, dtype, dim)
        truth, size = oracle.rotate(normed, cosines, sines)
        # An error of the normalised value is turned like the value itself.
        turned = oracle.rotate(slack, cosines.abs(), sines.abs())
        carried = torch.maximum(turned[0].abs(), turned[1])
        bound = carried + oracle.rotary_bound(truth, size, dtype, roundings)
        bound[..., ROTARY_DIM:] = slack[..., ROTARY_DIM:]
        require_within(name, got, truth, bound, HEADS)


@DTYPE
def test_the_fused_norm_and_rotary_equals_its_parts(layers, dtype):
    """Only where it is promised."""
    layers.needs(LayerOperation.QK_NORM_ROTARY, LayerOperation.RMS_NORM, LayerOperation.ROTARY, dtype=dtype)
    layers.needs_promise(Promise.FUSED_QK)
    dim, q_heads, kv_heads = HEAD_DIM, 4, 2
    projected = layers.draw(4, (2 * q_heads + 2 * kv_heads) * dim, dtype=dtype)
    weights = [layers.draw(dim, dtype=dtype) for _ in range(2)]
    cache = oracle.rotary_cache(512, ROTARY_DIM, BASE, dtype).to(layers.device)
    at = torch.randint(0, 512, (4,), generator=layers.generator).to(layers.device)
    q, k, _ = layers.subject.qk_norm_rotary(projected, *weights, EPS, at, cache, (q_heads, kv_heads))
    sources = (
        projected[:, : 2 * q_heads * dim].unflatten(1, (q_heads, 2, dim))[:, :, 0].reshape(-1, dim),
        projected[:, 2 * q_heads * dim :][:, : kv_heads * dim].reshape(-1, dim),
    )
    parts = []
    for source, weight in zip(sources, weights, strict=True):
        normed = torch.empty_like(source)
        layers.subject.rms_norm(source.contiguous(), weight, EPS, normed)
        parts.append(normed.view(4, -1))
    layers.subject.rotary(at, *parts, dim, cache)
    require_equal("q", q.flatten(1), parts[0], ROWS)
    require_equal("k", k.flatten(1), parts[1], ROWS)
