"""Gating: decay and write strength, also where exp and softplus get extreme."""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_within
from fixtures.gdn.operands import HeadWeights
from fixtures.gdn.operations import Operation

INPUT = pytest.mark.parametrize(
    "inputs", [torch.bfloat16, torch.float16, torch.float32], ids=cases.dtype_name
)
AXES = ("token", "head")


@INPUT
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("heads", [4, 48])
def test_decay_and_strength_are_the_defined_ones(under_test, inputs, scale, heads):
    """Normal inputs, and inputs on both sides of softplus' threshold of 20."""
    under_test.needs(Operation.GATING, input_dtype=inputs)
    g = under_test.generator
    a, b = (
        cases.random_tensor(g, 33, heads, dtype=inputs, device=under_test.device, scale=scale)
        for _ in range(2)
    )
    weights = HeadWeights(
        A_log=cases.random_tensor(g, heads, dtype=torch.float32, device=under_test.device),
        dt_bias=cases.random_tensor(g, heads, dtype=inputs, device=under_test.device, scale=scale),
    )
    log_decay, strength = oracle.decay_and_strength(a, b, weights)
    got_decay, got_strength = under_test.subject.gating(a, b, weights)
    # fp32: two exponentials, a logarithm and a sum, an argument of size x costs x roundoffs in exp; a fast exp may
    # be off by 20 units. log1p of a small number computed as log(1 + y) loses everything below one roundoff of 1.
    x = (a.double() + weights.dt_bias.double()).abs() + weights.A_log.double().abs()
    rate = torch.exp(weights.A_log.double())
    slack = oracle.FP32_ROUNDOFF * (48 + 4 * x)
    require_within(
        "log decay", got_decay, log_decay, slack * log_decay.abs() + 4 * rate * oracle.FP32_ROUNDOFF, AXES
    )
    # A strength that is handed over in fp32 has not been rounded to the input dtype anywhere.
    rounded = (
        max(under_test.subject.capabilities.sigmoid_roundings, 1)
        if got_strength.dtype != torch.float32
        else 0
    )
    relative = rounded * oracle.roundoff(inputs) * 1.01 + oracle.FP32_ROUNDOFF * (48 + 4 * b.double().abs())
    require_within("write strength", got_strength, strength, relative * strength + 1e-7, AXES)
