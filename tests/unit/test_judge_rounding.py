"""The bound of a near tie: derived from the dtype, wide enough for what a residual stream really rounds, and no wider
than a small multiple of it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.judge.rounding import logit_of_best, rms_rounding, tie_bound, ulp

VOCABULARY, HIDDEN, WIDE = 640, 128, 256


@given(
    magnitude=st.floats(min_value=1e-3, max_value=1e3),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
)
def test_an_ulp_is_the_distance_to_the_next_number_of_the_dtype(magnitude: float, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    below = 2.0 ** math.floor(math.log2(magnitude))
    value = torch.tensor([below], dtype=dtype)
    following = torch.nextafter(value, torch.tensor([float("inf")], dtype=dtype))
    if below >= 2**-13:  # float16 has subnormal numbers below
        assert ulp(magnitude, name) == (following - value).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_rms_of_a_rounding_is_what_the_dtype_really_does(dtype: torch.dtype) -> None:
    exact = torch.exp(torch.empty(100_000, dtype=torch.float64).uniform_(0, 6, generator=seeded(1)))
    relative = (exact.to(dtype).double() - exact) / exact
    name = str(dtype).removeprefix("torch.")
    assert relative.square().mean().sqrt().item() == pytest.approx(rms_rounding(name), rel=0.02)


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def logits_of(layers: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Logits of a residual network whose weights are bf16 and which rounds every step to `dtype`: `[V]`."""
    g = seeded(seed)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g).div(shape[-1] ** 0.5).bfloat16()

    def product(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (w.double() @ x.double()).to(dtype)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return (x.double() / x.double().square().mean().sqrt()).to(dtype)

    x = torch.randn(HIDDEN, generator=g).bfloat16().to(dtype)
    for _ in range(2 * layers):
        inner = torch.nn.functional.silu(product(weight(WIDE, HIDDEN), norm(x)).double()).to(dtype)
        x = (x.double() + product(weight(HIDDEN, WIDE), inner).double()).to(dtype)
    # Head vectors of norm 4: the best of so many have the size that a language model's have.
    return product(weight(VOCABULARY, HIDDEN).mul(4), norm(x))


@pytest.mark.parametrize("depth", [2, 6, 24])
def test_the_hidden_share_covers_what_a_residual_network_rounds_and_is_no_blank_cheque(depth: int) -> None:
    errors, shares = [], []
    for seed in range(40):
        exact, rounded = logits_of(depth, seed, torch.float64), logits_of(depth, seed, torch.bfloat16)
        best = exact.topk(20)
        gaps = (exact[best.indices[:1]] - exact[best.indices[1:]]).double()
        said = (rounded[best.indices[:1]].double() - rounded[best.indices[1:]].double()).double()
        bound = tie_bound(torch.log_softmax(exact, 0)[best.indices].tolist(), "bfloat16", layers=depth,
                          magnitude=best.values[0].item())  # fmt: skip
        errors.append(said - gaps)
        shares.append(bound.hidden_nats)
    # One path against the exact one: half the variance of two paths, and the logits' own rounding beside it.
    measured = torch.stack(errors).square().mean().sqrt().item()
    derived = sum(shares) / len(shares) / 2**0.5
    assert measured < 1.5 * derived, (measured, derived)
    assert measured > derived / 6, (measured, derived)


def test_more_layers_and_larger_logits_widen_the_bound_and_a_finer_dtype_narrows_it() -> None:
    def nats(dtype: str = "bfloat16", magnitude: float = 20.0, layers: int | None = 6) -> float:
        return tie_bound([], dtype, magnitude=magnitude, layers=layers).nats

    assert nats() == pytest.approx(0.25 + 3 * 2 * 0.001659 * math.sqrt(12) * 20, rel=1e-3)
    assert nats(layers=64) > nats() > nats(layers=None)
    assert nats(magnitude=40.0) == pytest.approx(2 * nats())
    assert nats("float16") == pytest.approx(nats() / 8)
    assert nats("float32") < 1e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 12.0, 30.0])
def test_the_logits_size_is_read_from_the_grid_of_the_log_probabilities(dtype: str, shift: float) -> None:
    for seed in range(20):
        logits = torch.randn(VOCABULARY, generator=seeded(seed)).mul(4).add(shift)
        rounded = logits.to(getattr(torch, dtype)).float()
        best = torch.log_softmax(rounded, 0).topk(20).values.tolist()
        found, true = logit_of_best(best, dtype), rounded.max().item()
        assert found is not None
        assert true - 1e-6 <= found <= 2.1 * true


def test_log_probabilities_without_a_grid_leave_half_their_spread() -> None:
    smooth = (
        torch.log_softmax(torch.randn(VOCABULARY, generator=seeded(3)).mul(4), 0).topk(20).values.tolist()
    )
    assert logit_of_best(smooth, "bfloat16") is None
    bound = tie_bound(smooth, "bfloat16")
    assert bound.magnitude == pytest.approx(max((smooth[0] - smooth[-1]) / 2, 1.0))
    assert "at least" in str(bound)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int8"}, "bfloat16, float16, float32"),
        ({"dtype": "bfloat16", "magnitude": 0.0}, "positive and finite"),
        ({"dtype": "bfloat16", "magnitude": math.nan}, "positive and finite"),
        ({"dtype": "bfloat16", "layers": -1}, "0 or more"),
    ],
)
def test_what_no_bound_can_be_made_of_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tie_bound([-0.1, -2.0], **arguments)  # type: ignore[arg-type]
