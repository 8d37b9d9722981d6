"""Speed by prompt length, by requests at once and over time. Never a headline: shown apart, judged for what is said.

pytest -m curves                    ladder and concurrency on target-only and candidate, a soak of the candidate
pytest -m curves --soak-minutes 60
"""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import Suite
from fixtures.request import request_of
from fixtures.run.findings import Findings
from fixtures.workload import curves
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.curves


@pytest.fixture
def speed_suite(lane: Lane, recordings: Recordings) -> Suite:
    """The lane's speed suite: answers long enough for a rate."""
    assert lane.suites.perf is not None, f"lane {lane.name} has no perf suite"
    return recordings.suite(lane.suites.perf)


def test_every_step_of_the_context_ladder_retrieves_exactly(
    lane: Lane, arm: Arm, recordings: Recordings, findings: Findings
) -> None:
    """TTFT, prefill and decode rate by prompt length; a needle that is lost at some length is not a matter of speed."""
    suite = curves.ladder_suite(lane, recordings)
    curves.climb(recordings, arm, suite)
    findings.settle("curve.ladder", arms=[arm])


def test_every_user_of_many_gets_its_own_answer(
    lane: Lane, arm: Arm, recordings: Recordings, speed_suite: Suite, findings: Findings
) -> None:
    """Aggregate and per-user rate by requests at once; each answer has to be right for its own prompt."""
    for at_once in curves.at_once_levels(lane):
        curves.ask_at_once(recordings, arm, speed_suite, at_once)
    findings.settle("curve.concurrency", arms=[arm])


def test_the_rate_does_not_drift_away_during_a_soak(
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    speed_suite: Suite,
    findings: Findings,
    pytestconfig: pytest.Config,
) -> None:
    """The same requests for minutes: answers stay right, and the rate does not fall by more than the noise band."""
    minutes = request_of(pytestconfig).soak_minutes
    curves.soak(recordings, candidates[0], speed_suite, minutes)
    findings.settle("curve.soak", arms=candidates)
