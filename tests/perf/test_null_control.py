"""The A/B instrument tried on itself. Takes minutes and a machine of its own:

    pytest -m null_control                        10 comparisons of stock with stock, and one with a slower server
    pytest -m null_control --gpu-pool 'cpu*2'     both servers up at once, prompts in turns: less noise
    ... --null-rounds 20 --null-blocks 1          more comparisons, one pair of starts instead of two

Starts are kept over all comparisons, so the ten share what differs between starts; the prompts are new every time.
"""

from __future__ import annotations

import pytest

from fixtures.arms.arm import make_arm
from fixtures.lanes.lane import Lane
from fixtures.models.canary.fresh import write_fresh
from fixtures.request import request_of
from fixtures.run.findings import Findings
from fixtures.workload.null_run import NullRun
from fixtures.workload.recordings import Recordings

pytestmark = [pytest.mark.null_control, pytest.mark.usefixtures("null_run")]

SLOWER = "step-sleeps"
"""Every step takes a fifth longer."""
SLOWED = 1 / 1.2
"""What the rate falls to."""
SEED = 1


@pytest.fixture(scope="module")
def null_run(lane: Lane, recordings: Recordings, pytestconfig: pytest.Config) -> NullRun:
    """Starts of stock, of stock again, and of stock slowed down, all of them asked."""
    if not lane.is_canary:
        pytest.skip("not offered: new prompts for every comparison exist for the embedded model only")
    rounds = write_fresh(SEED, count=2, rounds=request_of(pytestconfig).null_rounds)
    (slow_round,) = write_fresh(SEED + 1, count=3, besides=rounds)
    blocks = range(1, 1 + request_of(pytestconfig).null_blocks)
    run = NullRun(
        recordings,
        one=[make_arm(lane, "one", replicate=n) for n in blocks],
        other=[make_arm(lane, "other", replicate=2 + n) for n in blocks],
        slow=[make_arm(lane, "slow", replicate=4 + n, faults=(SLOWER,)) for n in blocks],
        rounds=rounds,
        slow_round=slow_round,
        warmup=lane.suites.warmup,
        slowed=SLOWED,
    )
    run.record()
    return run


def test_the_same_stack_twice_is_inconclusive_every_time(findings: Findings) -> None:
    """An instrument that finds a difference between a thing and itself finds nothing."""
    findings.settle("null.answers", "null.same")


def test_a_server_that_sleeps_a_sixth_of_its_time_is_found_slower(findings: Findings) -> None:
    """The other way round: a loss of a sixth may not hide in the noise, and its size has to be about right."""
    findings.settle("null.answers", "null.slower")
