"""Values at the ends of their range: whatever a checkpoint or a prompt makes of gates, keys and values, the result is
that of the definition, and finite wherever the float64 truth is.

Published checkpoints of this family have A_log up to 4.9 (https://github.com/RightNow-AI/lattice, pull 426); a trained
dt_bias and a gate of an unusual token go further. The last cases are bounded by nothing but the oracle itself.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_equal, require_within
from fixtures.gdn.operands import HeadWeights
from fixtures.gdn.operations import ContractViolation, Operation
from fixtures.gdn.routes import bound_on

BF16, FP32 = torch.bfloat16, torch.float32
INPUT = pytest.mark.parametrize("inputs", [BF16, torch.float16, FP32], ids=cases.dtype_name)
ROUTES = {"decode": Operation.DECODE, "packed": Operation.VERIFY, "prefill": Operation.PREFILL}
HEADS = 8
ROWS = {"decode": 1, "packed": 4, "prefill": 9}


def spread(low, high, tensor):
    """Values from `low` to `high` over the last dimension, the same for every token."""
    line = torch.linspace(low, high, tensor.shape[-1], dtype=torch.float64)
    return line.expand(tensor.shape).to(tensor)


def alternating(values, tensor):
    """The given values by token and head, so that each meets each parameter of a head."""
    index = torch.arange(tensor.shape[0]).unsqueeze(1) + torch.arange(tensor.shape[1])
    return torch.tensor(values, dtype=torch.float64)[index % len(values)].to(tensor)


def largest(tensor):
    return torch.finfo(tensor.dtype).max


def forget_one(t, h):
    middle = (torch.arange(len(t)) == len(t) // 2).unsqueeze(1)
    a = torch.where(middle, 100.0, -3.0).expand(t.a.shape)
    return {"a": a.to(t.a), "q": t.k.clone()}, {"A_log": spread(3, 5, h.A_log)}


def gates_at_the_end(t, h):
    a = alternating([-largest(t.a), largest(t.a), 0], t.a)
    b = alternating([largest(t.b), -largest(t.b), largest(t.b)], t.b)
    return {"a": a, "b": b, "q": t.k.clone()}, {}


def scaled(factor, names):
    def change(t, h):
        by = factor(t.v.dtype) if callable(factor) else factor
        return {name: getattr(t, name) * by for name in names}, {}

    return change


def signs(names, share):
    """The largest number of the dtype, or a share of it, with the signs of the drawn inputs."""
    return lambda t, h: ({name: getattr(t, name).sign() * (largest(t.v) / share) for name in names}, {})


def smallest(dtype):
    return torch.finfo(dtype).smallest_normal


CASES = {
    "decay-of-published-checkpoints": lambda t, h: ({}, {"A_log": spread(-12, 5, h.A_log)}),
    "steps-at-both-ends": lambda t, h: (
        {"a": alternating([-30, 25, 8, -8, 20], t.a)},
        {"A_log": spread(-12, 5, h.A_log)},
    ),
    "bias-at-both-ends": lambda t, h: ({}, {"dt_bias": spread(-15, 15, h.dt_bias)}),
    "strength-zero-and-one": lambda t, h: ({"b": alternating([-120, 120, -20, 20, 0], t.b)}, {}),
    "one-token-forgets": forget_one,
    "every-token-forgets": lambda t, h: (
        {"a": torch.full_like(t.a, 60)},
        {"A_log": torch.full_like(h.A_log, 5)},
    ),
    "nothing-is-forgotten": lambda t, h: (
        {"a": torch.full_like(t.a, -60)},
        {"A_log": torch.full_like(h.A_log, -12)},
    ),
    "keys-of-zero": lambda t, h: (
        {"k": t.k * (torch.arange(len(t)) % 2).view(-1, 1, 1).to(t.k), "q": torch.zeros_like(t.q)},
        {},
    ),
    "large-keys": scaled(2.0**12, "kq"),
    "large-values": scaled(2.0**10, "v"),
    "small-values": scaled(smallest, "v"),
    "denormals": scaled(lambda dtype: 0.1 * smallest(dtype), "qkv"),
}
"""Changed fields of tokens and of the weights of the heads."""
BEYOND = {
    "decay-far-beyond-any-checkpoint": lambda t, h: (
        {"a": alternating([-200, -100, -20, 0], t.a)},
        {"A_log": spread(20, 100, h.A_log)},
    ),
    "gates-at-the-end-of-the-dtype": gates_at_the_end,
    "keys-at-the-end-of-the-dtype": signs("kq", 2),
    "values-at-the-end-of-the-dtype": signs("v", 64),
}


def with_values(tokens, heads, case):
    of_tokens, of_heads = case(tokens, heads)
    return dataclasses.replace(tokens, **of_tokens), dataclasses.replace(heads, **of_heads)


def act(under_test, route, inputs, case):
    """One request by one route from a poisoned slot: outputs and final state against the float64 truth."""
    under_test.needs(ROUTES[route], input_dtype=inputs, state=FP32)
    if route == "prefill" and inputs is FP32 and under_test.subject.capabilities.chunk_roundings:
        pytest.skip(f"not offered: {under_test.name} has no fp32 inputs in its chunked prefill")
    g, shape, rows, device = under_test.generator, under_test.shape(4, HEADS), ROWS[route], under_test.device
    tokens, heads = with_values(
        cases.make_tokens(g, shape, rows, inputs, device), cases.make_heads(g, shape, inputs, device), case
    )
    pool = cases.make_pool(g, shape, 6, FP32, device, under_test.layout)
    before = pool.clone()
    path = oracle.trajectory(tokens, heads, under_test.vk(pool[3:4]))
    assert bool(path.outputs.isfinite().all()), "the oracle itself ended: not a case"
    bound = bound_on(route, under_test.subject.capabilities, path, tokens, inputs=inputs, state=FP32)
    starts, slots = cases.starts_of([rows], device), torch.tensor([3], dtype=torch.int32, device=device)
    if route == "decode":
        out, last = under_test.subject.decode(tokens, heads, pool, slots), 3
    elif route == "packed":
        table = torch.tensor([[3, 1, 2, 5]], dtype=torch.int32, device=device)
        out, last = under_test.subject.verify(tokens, heads, pool, table, torch.ones_like(slots), starts), 5
    else:
        going_on = torch.tensor([True], device=device)
        out, last = under_test.subject.prefill(tokens, heads, pool, slots, starts, going_on), 3
    require_finite("outputs", out)
    require_finite("state", pool[last])
    require_within("outputs", out, path.outputs[0], bound.outputs[0], ("row", "head", "element"))
    state, limit = path.after(rows)[0], bound.states[0, -1].unsqueeze(-1)
    require_within("state", under_test.vk(pool[last]), state, limit, ("head", "value row", "key column"))
    require_equal("slots of nobody", pool[[0, 4]], before[[0, 4]], ("slot", "head", "row", "column"))


def require_finite(what, tensor):
    """NaN or infinity where the truth is finite."""
    if not bool(tensor.isfinite().all()):
        count = int((~tensor.isfinite()).sum())
        raise ContractViolation(
            f"{what}: {count} of {tensor.numel()} elements are not finite, and the truth is"
        )


@INPUT
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", CASES)
def test_values_at_the_ends_of_their_range_stay_within_the_bound(under_test, inputs, route, name):
    """Decays, steps and biases of checkpoints and beyond, keys of zero, denormals, a token that forgets everything."""
    act(under_test, route, inputs, CASES[name])


@INPUT
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", BEYOND)
def test_values_are_bounded_by_the_oracle_alone(under_test, inputs, route, name):
    """To the end of the dtype: as long as the definition has a finite answer in float64, so has the subject."""
    act(under_test, route, inputs, BEYOND[name])


@INPUT
@pytest.mark.parametrize("name", [*CASES, *BEYOND])
def test_gates_are_finite_wherever_the_truth_is(under_test, inputs, name):
    """Log decay and write strength of the same cases; what is beyond fp32 is its lowest number or less."""
    under_test.needs(Operation.GATING, input_dtype=inputs)
    g, shape, device = under_test.generator, under_test.shape(4, HEADS), under_test.device
    tokens, heads = with_values(
        cases.make_tokens(g, shape, 7, inputs, device),
        cases.make_heads(g, shape, inputs, device),
        {**CASES, **BEYOND}[name],
    )
    truth, strength = oracle.decay_and_strength(tokens.a, tokens.b, heads)
    lowest = float(torch.finfo(FP32).min)

    got_decay, got_strength = under_test.subject.gating(tokens.a, tokens.b, heads)

    beyond = truth < lowest
    require_finite("log decay", got_decay[~beyond])
    require_finite("write strength", got_strength)
    got = got_decay.double().clamp(min=lowest)
    require_within(
        "log decay", got, truth.clamp(min=lowest), slack_of(tokens, heads, truth), ("token", "head")
    )
    u = oracle.roundoff(inputs)
    rounded = max(under_test.subject.capabilities.sigmoid_roundings, 1) if got_strength.dtype != FP32 else 0
    # exp of a rounded argument: an fp32 roundoff of its size, as long as the result is no denormal.
    relative = rounded * u * 1.01 + oracle.FP32_ROUNDOFF * (48 + 4 * tokens.b.double().abs().clamp(max=120))
    require_within("write strength", got_strength, strength, relative * strength + 1e-7, ("token", "head"))


def slack_of(tokens, heads: HeadWeights, truth):
    """As in the contract of gating: exponentials, a logarithm and a sum in fp32, an argument costs its size."""
    x = (tokens.a.double() + heads.dt_bias.double()).abs().clamp(max=300) + heads.A_log.double().abs()
    lowest = -float(torch.finfo(FP32).min)
    rate = torch.exp(heads.A_log.double())
    slack = oracle.FP32_ROUNDOFF * (48 + 4 * x) * truth.abs().clamp(max=lowest)
    return slack + 4 * rate.clamp(max=1e4) * oracle.FP32_ROUNDOFF
