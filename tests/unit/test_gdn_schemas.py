"""Calls of the XPU subjects bound against their schemas, on any machine; the live schemas too where an XPU build is."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from fixtures.gdn import cases
from fixtures.gdn.operands import LayerShape
from fixtures.gdn.schemas import BindingError, SchemaLibrary, bind, load_schemas
from fixtures.gdn.subjects.xpu_kernels import XpuKernelsSubject
from fixtures.gdn.subjects.xpu_lab import XpuLabSubject

CPU = torch.device("cpu")


def library():
    return SchemaLibrary({**load_schemas("xpu_kernels"), **load_schemas("xpu_lab")})


@pytest.mark.parametrize("name", ["xpu_kernels", "xpu_lab"])
def test_every_schema_parses(name):
    for operator, schema in load_schemas(name).items():
        assert schema.name == f"_xpu_C::{operator}"


def test_recurrent_calls_bind():
    ops, g, shape = SchemaLibrary(load_schemas("xpu_kernels")), torch.Generator().manual_seed(0), LayerShape()
    tokens = cases.make_tokens(g, shape, 6, torch.bfloat16, CPU)
    heads = cases.make_heads(g, shape, torch.bfloat16, CPU)
    pool = cases.make_pool(g, shape, 9, torch.float32, CPU)
    table = cases.make_slots(g, 9, 2, 2, CPU)
    me = XpuKernelsSubject(ops)
    me.decode(tokens.take([0, 1]), heads, pool, table[:, 0].contiguous())
    me.verify(tokens, heads, pool, table, torch.ones(2, dtype=torch.int32), cases.starts_of([2, 2], CPU), 2)
    names = [name for name, _ in ops.calls]
    assert names == ["gated_delta_rule_non_spec", "gated_delta_rule_spec"]
    spec = ops.calls[1][1]
    assert spec["spec_token_indx"].tolist() == [2, 3, 4, 5]
    assert spec["num_actual_tokens"] == 6
    assert spec["num_v_heads"] == shape.v_heads
    assert spec["b"].shape == (4, shape.v_heads)


@pytest.mark.parametrize(
    ("subject", "schemas", "packed", "rows"),
    [
        (XpuKernelsSubject, "xpu_kernels", "gdn_attention", "spec_token_indx"),
        (XpuLabSubject, "xpu_lab", "gdn_attention_spec_decode", "spec_token_indices"),
    ],
)
def test_layer_calls_bind(subject, schemas, packed, rows):
    """Each against its own library: the fork's gdn_attention is older than upstream's and takes fewer arguments."""
    ops, g = SchemaLibrary(load_schemas(schemas)), torch.Generator().manual_seed(0)
    shape = LayerShape(2, 4, 128, 128)
    layer = cases.make_layer(g, shape, torch.bfloat16, CPU)
    inputs = cases.make_projections(g, shape, 6, torch.bfloat16, CPU)
    windows = cases.make_window_pool(g, shape, 9, 3, torch.bfloat16, CPU, channels_last=True)
    pool = cases.make_pool(g, shape, 9, torch.float32, CPU)
    table = cases.make_slots(g, 9, 2, 2, CPU)
    me = subject(ops)
    assert me.capabilities.channels_last
    me.layer_decode(inputs.take(slice(0, 2)), layer, windows, pool, table[:, 0].contiguous())
    me.layer_verify(
        inputs, layer, windows, pool, table, torch.ones(2, dtype=torch.int32), cases.starts_of([2, 2], CPU), 2
    )
    (single, decode), (name, verify) = ops.calls
    assert (single, name) == ("gdn_attention", packed)
    assert decode["num_decodes"] == 2
    assert verify["num_spec_decodes"] == 2
    assert verify["num_actual_tokens"] == 6
    assert verify[rows].tolist() == [2, 3, 4, 5]
    for call in (decode, verify):
        # What the operators check before anything else, and what nobody sees in a schema.
        assert call["conv_state"].shape == (9, 6, shape.conv_dim)
        assert call["conv_state"][0].is_contiguous()
        assert call["ssm_state"][0].is_contiguous()
        width = shape.k_heads * (2 * shape.k_dim + 2 * shape.v_dim * shape.v_heads // shape.k_heads)
        assert call["projected_states_qkvz"].shape[1] == width
        assert call["projected_states_ba"].shape[1] == 2 * shape.v_heads
        assert call["core_attn_out"].isnan().all(), "outputs are not poisoned"


def test_ring_calls_bind_in_the_published_order():
    ops, g = library(), torch.Generator().manual_seed(0)
    ring = cases.make_ring(g, LayerShape(), 6, cache_len=8, spec_len=4, dtype=torch.bfloat16, device=CPU)
    me = XpuLabSubject(ops)
    me.fork_commit(ring, torch.tensor([1, 0]), torch.tensor([3, 4]), torch.tensor([2, 2], dtype=torch.int32))
    (copied, copy), (committed, commit) = ops.calls
    assert (copied, committed) == ("gdn_replayssm_copy_slots", "gdn_replayssm_commit_pending")
    assert commit["state_indices"].tolist() == [3], "the raw destination list was handed on"
    assert (commit["max_cache_len"], commit["max_spec_len"], commit["conv_base_len"]) == (8, 4, 3)
    for name, tensor in ring.tensors().items():
        bound = {**commit, **copy}
        assert bound[name] is tensor, name


@pytest.mark.parametrize(
    ("positional", "keywords", "says"),
    [
        ([1] * 30, {}, "positional"),
        ([], {"nonsense": 1}, "no argument nonsense"),
        ([], {}, "is missing"),
        ([torch.zeros(1)], {"conv_state": torch.zeros(1)}, "twice"),
        ([torch.zeros(1)] * 9 + [1, 2, 3.0, 0], {}, "conv_base_len is int"),
        ([torch.zeros(1)] * 9 + [1, 2, True, 0], {}, "conv_base_len is int"),
        ([torch.zeros(1)] * 8 + [7, 1, 2, 3, 0], {}, "state_indices is Tensor"),
    ],
)
def test_a_wrong_call_is_refused(positional, keywords, says):
    with pytest.raises(BindingError, match=says):
        bind(load_schemas("xpu_lab")["gdn_replayssm_commit_pending"], positional, keywords)


def test_an_unknown_operator_names_the_known_ones():
    with pytest.raises(AttributeError, match="gdn_replayssm_commit_pending"):
        library().gdn_replayssm_commit  # noqa: B018


@pytest.mark.skipif(importlib.util.find_spec("vllm_xpu_kernels") is None, reason="needs vllm-xpu-kernels")
def test_the_live_schemas_are_the_recorded_ones():
    importlib.import_module("vllm_xpu_kernels._xpu_C")
    for name in ("xpu_kernels", "xpu_lab"):
        for operator, schema in load_schemas(name).items():
            live = getattr(torch.ops._xpu_C, operator, None)
            if live is None and name == "xpu_lab":
                continue  # only the fork has them
            arguments = [(a.name, str(a.type)) for a in live.default._schema.arguments]
            assert arguments == [(a.name, str(a.type)) for a in schema.arguments], operator
