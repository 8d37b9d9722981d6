"""Row-count invariance: row r of a call with four rows equals the call with row r alone, bit for bit. The verify batch
must say what decode says; a subject that chooses another arithmetic for another number of rows can hold every bound and
still say something else at a near tie. Its own class: a subject may hold the bounds and not this."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn.cases import dtype_name
from fixtures.gdn.comparison import require_equal
from fixtures.layers import oracle, packing
from fixtures.layers.operations import LayerOperation

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
ROWS = 4
EPS = 1e-6
AXES = ("row", "element")


def require_rows_alone(act, *inputs):
    """`act` on all rows, and on each row alone: the same bits."""
    together = act(*(x.clone() for x in inputs))
    alone = torch.cat([act(*(x[r : r + 1].clone() for x in inputs)) for r in range(ROWS)])
    require_equal("rows together against rows alone", together, alone, AXES)


@DTYPE
@pytest.mark.parametrize("width", [128, 2560, 5120])
def test_rms_norm(layers, dtype, width):
    layers.needs(LayerOperation.RMS_NORM, dtype=dtype)
    weight = layers.draw(width, dtype=dtype)

    def act(x):
        out = torch.empty_like(x)
        layers.subject.rms_norm(x, weight, EPS, out)
        return out

    require_rows_alone(act, layers.draw(ROWS, width, dtype=dtype))


@DTYPE
def test_add_rms_norm(layers, dtype):
    layers.needs(LayerOperation.ADD_RMS_NORM, dtype=dtype)
    weight = layers.draw(2560, dtype=dtype)

    def act(x, residual):
        layers.subject.add_rms_norm(x, residual, weight, EPS)
        return torch.cat([x, residual], dim=1)

    require_rows_alone(act, *(layers.draw(ROWS, 2560, dtype=dtype) for _ in range(2)))


@DTYPE
def test_gated_norm(layers, dtype):
    """Heads are rows here: 48 heads of a token."""
    layers.needs(LayerOperation.GATED_NORM, dtype=dtype)
    weight = layers.draw(128, dtype=dtype)

    def act(x, gate):
        out = torch.empty_like(x.view(-1, 128))
        layers.subject.gated_norm(x.view(-1, 128), gate.view(-1, 128), weight, EPS, out)
        return out.view(x.shape)

    require_rows_alone(act, *(layers.draw(ROWS, 48 * 128, dtype=dtype) for _ in range(2)))


@DTYPE
def test_rotary(layers, dtype):
    layers.needs(LayerOperation.ROTARY, dtype=dtype)
    cache = oracle.rotary_cache(64, 32, 10_000.0, dtype).to(layers.device)

    def act(query, key, positions):
        layers.subject.rotary(positions.flatten(), query, key, 64, cache)
        return torch.cat([query, key], dim=1)

    positions = torch.randint(0, 64, (ROWS, 1), generator=layers.generator).to(layers.device)
    require_rows_alone(
        act, layers.draw(ROWS, 256, dtype=dtype), layers.draw(ROWS, 128, dtype=dtype), positions
    )


@DTYPE
def test_mrope(layers, dtype):
    layers.needs(LayerOperation.MROPE, dtype=dtype)
    cache = oracle.rotary_cache(64, 32, 10_000.0, dtype).to(layers.device)

    def act(query, key, positions):
        layers.subject.mrope(positions.T.contiguous(), query, key, 64, cache, (6, 5, 5))
        return torch.cat([query, key], dim=1)

    positions = torch.randint(0, 64, (ROWS, 3), generator=layers.generator).to(layers.device)
    require_rows_alone(
        act, layers.draw(ROWS, 256, dtype=dtype), layers.draw(ROWS, 128, dtype=dtype), positions
    )


@DTYPE
def test_qk_norm_rotary(layers, dtype):
    layers.needs(LayerOperation.QK_NORM_ROTARY, dtype=dtype)
    cache = oracle.rotary_cache(64, 32, 10_000.0, dtype).to(layers.device)
    weights = [layers.draw(64, dtype=dtype) for _ in range(2)]

    def act(projected, positions):
        made = layers.subject.qk_norm_rotary(projected, *weights, EPS, positions.flatten(), cache, (4, 2))
        return torch.cat([x.flatten(1) for x in made], dim=1)

    positions = torch.randint(0, 64, (ROWS, 1), generator=layers.generator).to(layers.device)
    require_rows_alone(act, layers.draw(ROWS, 12 * 64, dtype=dtype), positions)


@DTYPE
@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
def test_head(layers, dtype, kind):
    operation = {
        "int8": LayerOperation.HEAD_INT8,
        "int4": LayerOperation.HEAD_INT4,
        "fp8": LayerOperation.HEAD_FP8,
    }[kind]
    layers.needs_product(operation, dtype=dtype)
    dense = layers.draw(384, 256, dtype=dtype)
    make = {
        "int8": packing.quantise_int8,
        "int4": packing.quantise_int4,
        "fp8": lambda weight: packing.quantise_fp8(weight, torch.bfloat16),
    }[kind]
    weights = make(dense)
    require_rows_alone(lambda x: layers.subject.head(x, weights), layers.draw(ROWS, 256, dtype=dtype))


@DTYPE
@pytest.mark.parametrize(("inputs", "outputs"), [(256, 128), (2560, 384)])
def test_w4a16(layers, dtype, inputs, outputs):
    layers.needs_product(LayerOperation.W4A16, dtype=dtype)
    values = torch.randint(0, 16, (inputs, outputs), generator=layers.generator).to(torch.int32)
    scales = (torch.rand(inputs // 128, outputs, generator=layers.generator) * 0.03 + 0.01).to(dtype)
    layout = layers.subject.capabilities.weight_layouts[0]
    weight = packing.pack_weight(values.to(layers.device), scales.to(layers.device), 128, layout)

    def act(x):
        out = torch.empty(x.shape[0], outputs, dtype=dtype, device=layers.device)
        layers.subject.product(x, weight, out)
        return out

    require_rows_alone(act, layers.draw(ROWS, inputs, dtype=dtype))


def test_routed_w4a16(layers):
    """A row's neighbours share its experts or do not: its product is the same."""
    layers.needs_product(LayerOperation.W4A16_ROUTED, dtype=torch.bfloat16)
    layout = layers.subject.capabilities.weight_layouts[0]
    made = []
    for _ in range(4):
        values = torch.randint(0, 16, (256, 64), generator=layers.generator).to(torch.int32)
        scales = (torch.rand(2, 64, generator=layers.generator) * 0.03 + 0.01).to(torch.bfloat16)
        made.append(packing.pack_weight(values.to(layers.device), scales.to(layers.device), 128, layout))
    experts = packing.PackedExperts(tuple(made))

    def act(x, chosen):
        out = torch.empty(x.shape[0], 2, 64, dtype=torch.bfloat16, device=layers.device)
        layers.subject.routed_product(x, experts, chosen, out)
        return out.flatten(1)

    chosen = torch.tensor([[0, 1], [1, 2], [0, 2], [1, 0]], dtype=torch.int32, device=layers.device)
    require_rows_alone(act, layers.draw(ROWS, 256, dtype=torch.bfloat16), chosen)
