"""Weight-only INT4 products, group 128, symmetric: every checkpoint layout gives the same product, at any number of
rows, and routing puts every row's product where the row asked for it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn.cases import dtype_name
from fixtures.gdn.comparison import require_within
from fixtures.layers import oracle, packing
from fixtures.layers.cases import guarded, require_guards
from fixtures.layers.operations import LayerOperation

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
LAYOUT = pytest.mark.parametrize("layout", packing.LAYOUTS)
ROWS = ("row", "output")
GROUP = 128


def make_weight(layers, inputs, outputs, dtype, layout):
    """All sixteen values, scales that differ between groups and outputs by up to a factor of four."""
    g = layers.generator
    values = torch.randint(0, 16, (inputs, outputs), generator=g).to(torch.int32)
    scales = (torch.rand(inputs // GROUP, outputs, generator=g) * 0.03 + 0.01).to(dtype)
    return packing.pack_weight(values.to(layers.device), scales.to(layers.device), GROUP, layout)


def require_product(layers, x, weight, dtype):
    """Product within the bound, memory around it untouched."""
    storage, out = guarded(x.shape[0], weight.outputs, dtype, layers.device)
    layers.subject.product(x, weight, out)
    truth, bound = oracle.int4_product(x, weight.exact, dtype, layers.roundings(LayerOperation.W4A16))
    require_within("product", out, truth, bound, ROWS)
    require_guards(storage, out)


@DTYPE
@LAYOUT
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 128), (512, 384)])
def test_the_product_is_that_of_the_dequantised_weight(layers, dtype, layout, rows, inputs, outputs):
    """Several groups, outputs that are no power of two (multiples of 128, which some kernels ask for)."""
    layers.needs_product(LayerOperation.W4A16, dtype=dtype)
    layers.needs_layout(layout)
    x = layers.draw(rows, inputs, dtype=dtype)
    require_product(layers, x, make_weight(layers, inputs, outputs, dtype, layout), dtype)


@DTYPE
@LAYOUT
def test_one_hot_rows_read_single_weights(layers, dtype, layout):
    """A unit row gives one row of the weight: a permuted layout has the right values in the wrong place, which sums
    over random rows show only as noise, and this shows as what it is."""
    layers.needs_product(LayerOperation.W4A16, dtype=dtype)
    layers.needs_layout(layout)
    weight = make_weight(layers, 256, 128, dtype, layout)
    chosen = torch.randperm(256, generator=layers.generator)[:16]
    x = torch.zeros(16, 256, dtype=dtype)
    x[torch.arange(16), chosen] = 1
    storage, out = guarded(16, 128, dtype, layers.device)
    x = x.to(layers.device)
    layers.subject.product(x, weight, out)
    truth, bound = oracle.int4_product(x, weight.exact, dtype, layers.roundings(LayerOperation.W4A16))
    require_within("weights", out, truth, bound, ROWS)
    require_guards(storage, out)


@LAYOUT
def test_no_rows_write_nothing(layers, layout):
    """A step without rows for this layer."""
    layers.needs_product(LayerOperation.W4A16, dtype=torch.bfloat16)
    layers.needs_layout(layout)
    weight = make_weight(layers, 128, 128, torch.bfloat16, layout)
    storage, out = guarded(0, 128, torch.bfloat16, layers.device)
    layers.subject.product(layers.draw(0, 128, dtype=torch.bfloat16), weight, out)
    require_guards(storage, out)


@given(
    chosen=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True), min_size=1, max_size=6),
    layout=st.sampled_from(packing.LAYOUTS),
    salt=st.integers(0, 999),
)
def test_routed_rows_get_the_product_of_their_own_experts(layers, chosen, layout, salt):
    """Any routing of up to six rows over five experts, of which the last never gets a row."""
    layers.needs_product(LayerOperation.W4A16_ROUTED, dtype=torch.bfloat16)
    known = layers.subject.capabilities.weight_layouts
    layout = layout if layout in known else known[0]
    layers.reseed(salt)
    dtype = torch.bfloat16
    experts = packing.PackedExperts(tuple(make_weight(layers, 256, 64, dtype, layout) for _ in range(5)))
    x = layers.draw(len(chosen), 256, dtype=dtype)
    ids = torch.tensor(chosen, dtype=torch.int32, device=layers.device)
    storage, out = guarded(len(chosen) * 2, 64, dtype, layers.device)
    layers.subject.routed_product(x, experts, ids, out.view(len(chosen), 2, 64))
    roundings = layers.roundings(LayerOperation.W4A16_ROUTED)
    for j in range(2):
        pairs = [
            oracle.int4_product(x[m : m + 1], experts.experts[chosen[m][j]].exact, dtype, roundings)
            for m in range(len(chosen))
        ]
        truth, bound = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
        require_within(f"products of choice {j}", out[j::2], truth, bound, ROWS)
    require_guards(storage, out)


def test_an_expert_without_rows_changes_nothing(layers):
    """All rows to one expert: the same product as without routing, in the place of each row."""
    layers.needs_product(LayerOperation.W4A16_ROUTED, LayerOperation.W4A16, dtype=torch.bfloat16)
    dtype = torch.bfloat16
    layout = layers.subject.capabilities.weight_layouts[0]
    experts = packing.PackedExperts(tuple(make_weight(layers, 128, 64, dtype, layout) for _ in range(4)))
    x = layers.draw(3, 128, dtype=dtype)
    ids = torch.full((3, 1), 2, dtype=torch.int32, device=layers.device)
    out = torch.full((3, 1, 64), float("nan"), dtype=dtype, device=layers.device)
    layers.subject.routed_product(x, experts, ids, out)
    roundings = layers.roundings(LayerOperation.W4A16_ROUTED)
    truth, bound = oracle.int4_product(x, experts.experts[2].exact, dtype, roundings)
    require_within("products of expert 2", out[:, 0], truth, bound, ROWS)
    storage, none = guarded(0, 64, dtype, layers.device)
    layers.subject.routed_product(x[:0], experts, ids[:0], none.view(0, 1, 64))
    require_guards(storage, none)
