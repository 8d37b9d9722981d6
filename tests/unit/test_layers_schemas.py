"""Calls of the XPU subject and of the collectives bound against their schemas, on any machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from fixtures.gdn.schemas import BindingError, SchemaLibrary, load_schemas
from fixtures.layers import packing
from fixtures.layers.reference.collectives import BACKENDS, CollectiveOperations
from fixtures.layers.subjects.xpu_kernels import CAPABILITIES, XpuKernelsLayers

SCHEMAS = Path(__file__).parents[2] / "fixtures" / "layers" / "schemas"
BF16 = torch.bfloat16


def subject():
    """The subject on a library that binds and computes nothing."""
    ops = SchemaLibrary(load_schemas("xpu_kernels", SCHEMAS))
    return XpuKernelsLayers(ops, ops), ops


@pytest.mark.parametrize("name", ["xpu_kernels", "collectives"])
def test_every_schema_parses(name):
    for operator, schema in load_schemas(name, SCHEMAS).items():
        assert schema.name.endswith(f"::{operator}")


def test_norm_and_rotary_calls_bind():
    me, ops = subject()
    x, weight = torch.zeros(2, 128, dtype=BF16), torch.zeros(128, dtype=BF16)
    query, key = torch.zeros(2, 256, dtype=BF16), torch.zeros(2, 128, dtype=BF16)
    cache = torch.zeros(8, 32, dtype=BF16)
    me.rms_norm(x, weight, 1e-6, torch.empty_like(x))
    me.add_rms_norm(x, x.clone(), weight, 1e-6)
    me.rotary(torch.tensor([1, 2]), query, key, 64, cache)
    me.mrope(torch.ones(3, 2, dtype=torch.long), query, key, 64, cache, (6, 5, 5))
    names = [name for name, _ in ops.calls]
    assert names == ["rms_norm", "fused_add_rms_norm", "rotary_embedding", "multimodal_rotary_embedding"]
    assert ops.calls[0][1]["epsilon"] == 1e-6
    assert ops.calls[3][1]["mrope_section"] == [6, 5, 5]
    assert ops.calls[3][1]["mrope_interleaved"] is True
    assert ops.calls[2][1]["is_neox"] is True


@pytest.mark.parametrize("layout", CAPABILITIES.weight_layouts)
def test_both_layouts_give_the_same_int4_call(layout, monkeypatch):
    """Inputs packed along K, transposed; scales [K/group, N]; the zero point 8."""
    me, ops = subject()
    g = torch.Generator().manual_seed(0)
    values = torch.randint(0, 16, (256, 64), generator=g).to(torch.int32)
    scales = torch.rand(2, 64, generator=g).to(BF16)
    weight = packing.pack_weight(values, scales, 128, layout)
    me._multiplied(torch.zeros(3, 256, dtype=BF16), weight)
    ((name, bound),) = ops.calls
    assert name == "int4_gemm_w4a16"
    assert bound["B"].shape == (32, 64)
    assert bound["B"].stride() == (1, 32), "the engine hands over a transposed view"
    assert torch.equal(bound["B"], packing.pack_weight(values, scales, 128, "gptq").qweight)
    assert torch.equal(bound["B_scale"], scales)
    assert bound["B_zp"].tolist() == [8]
    assert bound["group_size"] == 128


def test_a_wrong_list_is_refused():
    ops = SchemaLibrary(load_schemas("xpu_kernels", SCHEMAS))
    x = torch.zeros(1)
    with pytest.raises(BindingError, match="mrope_section"):
        ops.multimodal_rotary_embedding(x, x, x, 64, x, True, [1.5, 2, 3])


class _Recorded(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "c10d":
            self.calls.append((operator._schema.name.partition("::")[2], str(operator._schema), args))
        return operator(*args, **(kwargs or {}))


@pytest.fixture
def lonely_group():
    """A process group that talks to nobody."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_collectives_call_what_every_backend_implements(lonely_group):
    """The same two operators whatever the backend, gloo, NCCL or XCCL: their schemas are those that are recorded."""
    me, x = CollectiveOperations(0, 2), torch.zeros(4, 8)
    with _Recorded() as recorded:
        me.all_reduce(x, torch.empty_like(x))
        me.all_gather(x, torch.empty(4, 16))
    recorded_schemas = load_schemas("collectives", SCHEMAS)
    assert [name for name, _, _ in recorded.calls] == list(recorded_schemas)
    for name, live, args in recorded.calls:
        assert live == str(recorded_schemas[name])
        assert len(args) <= len(recorded_schemas[name].arguments)
    assert recorded.calls[1][2][0].shape == (8, 8)


def test_every_kind_of_device_has_its_backend():
    assert BACKENDS == {"cpu": dist.Backend.GLOO, "cuda": dist.Backend.NCCL, "xpu": dist.Backend.XCCL}


@pytest.mark.skipif(importlib.util.find_spec("vllm_xpu_kernels") is None, reason="needs vllm-xpu-kernels")
def test_the_live_schemas_are_the_recorded_ones():
    for library in ("_C", "_xpu_C"):
        importlib.import_module(f"vllm_xpu_kernels.{library}")
    for operator, schema in load_schemas("xpu_kernels", SCHEMAS).items():
        live = getattr(getattr(torch.ops, schema.name.partition("::")[0]), operator).default._schema
        arguments = [(a.name, str(a.type)) for a in live.arguments]
        assert arguments == [(a.name, str(a.type)) for a in schema.arguments], operator
