"""Statistics of gaps: sign flips are exact, and a shift of the stated size is seen."""

from __future__ import annotations

import itertools
import random

import pytest

from fixtures.judge.gap_statistics import (
    ALLOWANCE,
    FALSE_ALARM_RATE,
    paired_shift,
    sign_flip_p,
)


def test_sign_flips_are_counted_exactly():
    values = [0.5, 1.0, -0.25, 2.0, 0.75, 0.1, -0.3]
    exact = sum(
        sum(s * abs(v) for s, v in zip(signs, values, strict=True)) >= sum(values) - 1e-9
        for signs in itertools.product((1, -1), repeat=len(values))
    ) / 2 ** len(values)

    assert sign_flip_p(values) == pytest.approx(exact, abs=2**-7)
    assert sign_flip_p(values) >= exact
    assert sign_flip_p([1.0] * 40) == pytest.approx(2.0**-40)
    assert sign_flip_p([0.0, 0.0]) == 1.0


def test_a_shift_of_the_stated_size_is_seen_and_the_allowance_is_not():
    rng = random.Random(4)
    null = [float(sum(rng.random() < 0.02 for _ in range(200))) for _ in range(65)]
    level = FALSE_ALARM_RATE / 3
    stated = paired_shift(null, null, (13_000, 13_000), level).smallest

    larger = [float(sum(rng.random() < stated for _ in range(200))) for _ in range(65)]
    allowed = [float(sum(rng.random() < 0.02 * ALLOWANCE for _ in range(200))) for _ in range(65)]

    assert paired_shift(larger, null, (13_000, 13_000), level).significant
    assert not paired_shift(allowed, null, (13_000, 13_000), level).significant
    with pytest.raises(ValueError, match="0 sums"):
        paired_shift([], [], (1, 1), level)
