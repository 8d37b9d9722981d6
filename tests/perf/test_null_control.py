"""The A/B instrument tried on itself. Takes minutes and a machine of its own:

    pytest -m null_control                        10 comparisons of stock with stock, and one with a slower server
    pytest -m null_control --gpu-pool 'cpu*2'     both servers up at once, prompts in turns: less noise
    ... --null-rounds 20 --null-blocks 1          more comparisons, one pair of starts instead of two

Starts are kept over all comparisons, so the ten share what differs between starts; the prompts are new every time.
"""

from __future__ import annotations

import pytest

from fixtures.arms.arm import make_arm
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import Lane
from fixtures.models.canary.fresh import write_fresh
from fixtures.request import request_of
from fixtures.workload.null_run import NullRun
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.null_control

SLOWER = "step-sleeps"
"""Every step takes a fifth longer: the rate falls to 1/1.2."""
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
        band=lane.thresholds.same_window_band,
    )
    run.record()
    return run


def test_the_same_stack_twice_is_inconclusive_every_time(null_run: NullRun) -> None:
    """An instrument that finds a difference between a thing and itself finds nothing."""
    found = [null_run.compare(null_run.one, null_run.other, suite) for suite in null_run.rounds]
    for number, finding in enumerate(found, 1):
        print(f"A/A {number}: {finding.outcome.value}: {finding.message}")
    assert [f.outcome for f in found] == [Outcome.INCONCLUSIVE] * len(null_run.rounds)


def test_a_server_that_sleeps_a_sixth_of_its_time_is_found_slower(null_run: NullRun) -> None:
    """The other way round: a loss of a sixth may not hide in the noise, and its size has to be about right."""
    finding = null_run.compare(null_run.slow, null_run.other, null_run.slow_round)
    print(f"slowed down: {finding.outcome.value}: {finding.message}")
    assert finding.outcome is Outcome.REJECTED, finding.message
    assert (
        finding.details["low"] < 1 / 1.2 < finding.details["high"]
        or abs(finding.details["ratio"] * 1.2 - 1) < 0.05
    )
