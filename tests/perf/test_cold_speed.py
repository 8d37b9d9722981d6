"""Cold speed: fresh servers, every prompt once, nothing cached, ids counted, and parity of the very same answers."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.diagnosis.explaining import explain_divergences
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.perf


@pytest.fixture(scope="module")
def measured(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
) -> None:
    """The speed suite on every arm, sent while its server was fresh; the target first, then the A/B window if any."""
    assert lane.suites.perf is not None, f"lane {lane.name} has no perf suite"
    recordings.of(target, lane.suites.perf, Purpose.MEASURED)
    for arm in (*candidates, target_restart):
        recordings.of(arm, lane.suites.perf, Purpose.MEASURED)


@pytest.mark.usefixtures("measured")
def test_every_measured_request_was_cold_and_complete(findings: Findings) -> None:
    """`cached_tokens` 0 on each request, no prefix-cache hit, each prompt once, the full suite, ids counted."""
    findings.settle("freshness.*")


@pytest.mark.timed
@pytest.mark.usefixtures("measured")
def test_the_speed_is_that_of_the_target_models_answers(
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    findings: Findings,
) -> None:
    """A headline exists only beside coldness and token-exact parity of the same transcripts, over two starts."""
    explain_divergences(recordings, findings, candidates, target_restart)
    findings.settle("speed.headline", "speed.arm", "speed.reference")
