"""Packed weights stand for what they say they stand for."""

from __future__ import annotations

import pytest
import torch

from fixtures.layers import packing


def unpacked(words):
    """int32 words [..., n] -> values [..., n * 8], one by one in Python integers."""
    return [
        [(int(word) & 0xFFFFFFFF) >> (4 * i) & 15 for word in row for i in range(8)] for row in words.tolist()
    ]


def weight(layout):
    g = torch.Generator().manual_seed(0)
    values = torch.randint(0, 16, (128, 16), generator=g).to(torch.int32)
    scales = torch.rand(1, 16, generator=g).to(torch.bfloat16)
    return values, scales, packing.pack_weight(values, scales, 128, layout)


def test_gptq_packs_inputs_lowest_bits_first_and_stores_zeros_less_one():
    values, scales, packed = weight("gptq")
    assert torch.tensor(unpacked(packed.qweight.T)).T.tolist() == values.tolist()
    assert set(unpacked(packed.qzeros)[0]) == {7}
    assert torch.equal(packed.exact, (values.double() - 8) * scales.double())


def test_awq_packs_outputs_in_its_own_order():
    values, _, packed = weight("awq")
    stored = torch.tensor(unpacked(packed.qweight))
    for place, source in enumerate(packing.AWQ_ORDER):
        assert torch.equal(stored[:, place::8], values[:, source::8].long())
    assert set(unpacked(packed.qzeros)[0]) == {8}


def test_compressed_is_output_major_and_has_no_zeros():
    values, scales, packed = weight("compressed")
    assert torch.tensor(unpacked(packed.qweight)).T.tolist() == values.tolist()
    assert torch.equal(packed.scales, scales.T)
    assert packed.qzeros is None


def test_an_unknown_layout_names_the_known_ones():
    with pytest.raises(ValueError, match="gptq, awq, compressed"):
        packing.pack_weight(torch.zeros(128, 8, dtype=torch.int32), torch.ones(1, 8), 128, "marlin")


@pytest.mark.parametrize(
    ("quantise", "step"),
    [
        (packing.quantise_int8, 1 / 127),
        (packing.quantise_int4, 1 / 7),
        (lambda w: packing.quantise_fp8(w, torch.float32), 2**-3),
        (lambda w: packing.quantise_fp8(w, torch.bfloat16), 2**-3),
    ],
    ids=["int8", "int4", "fp8-fp32", "fp8-bf16"],
)
def test_heads_lose_at_most_half_a_step_of_their_largest_weight(quantise, step):
    dense = torch.randn(256, 256, generator=torch.Generator().manual_seed(1))
    lost = (quantise(dense).exact - dense.double()).abs()
    assert float(lost.max()) > 0
    assert bool((lost <= 0.51 * step * dense.double().abs().max()).all())


def test_fp8_blocks_end_at_the_edges_of_the_head():
    dense = torch.randn(200, 130, generator=torch.Generator().manual_seed(1))
    head = packing.quantise_fp8(dense, torch.float32)
    assert head.scales.shape == (2, 2)
    assert packing.spread_blocks(head.scales, 200, 130)[199, 129] == head.scales[1, 1]
