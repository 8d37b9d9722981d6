"""Parity: the candidate says, token for token, what the target model says alone; and says it after every start."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.diagnosis.explaining import explain_divergences
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.run.findings import Findings
from fixtures.workload.recordings import Recordings, require_recorded_answers
from fixtures.workload.shapes import Shapes

pytestmark = pytest.mark.quality


@pytest.fixture(scope="module")
def answers(
    lane: Lane, target: Arm, target_restart: Arm, candidates: tuple[Arm, ...], recordings: Recordings
) -> None:
    """Greedy answers of all arms to the parity suite, recorded without asking for log-probabilities."""
    for arm in (target, *candidates, target_restart):
        recordings.of(arm, lane.suites.parity, Purpose.PARITY)


@pytest.fixture(scope="module")
def explained(
    answers: None,
    shapes: Shapes,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    findings: Findings,
) -> None:
    """Every divergence, other orders and batch shapes among them, with what the target thinks there."""
    explain_divergences(recordings, findings, candidates, target_restart)


def test_target_only_says_what_it_has_always_said(
    lane: Lane, target: Arm, recordings: Recordings, findings: Findings
) -> None:
    """The target's ids equal those in the suite, which were recorded from the model itself.

    Without this a patch that changes the target in both arms alike would pass parity.
    """
    require_recorded_answers(recordings.suite(lane.suites.parity))
    recordings.of(target, lane.suites.parity, Purpose.PARITY)
    findings.settle("parity.recorded", arms=[target])


@pytest.mark.usefixtures("explained")
def test_every_candidate_start_equals_target_only(findings: Findings) -> None:
    """Token-exact over the whole answer, every prompt, two fresh starts; each divergence is explained by the target."""
    findings.settle("parity.*")


@pytest.mark.usefixtures("explained")
def test_other_orders_and_batch_shapes_keep_requests_apart(findings: Findings) -> None:
    """Reversed, 4 and 16 at once: each answer is right for its own prompt; whether it equals the one alone is told."""
    findings.settle("batch.*")


@pytest.mark.usefixtures("answers")
def test_acceptance_is_plausible(candidates: tuple[Arm, ...], findings: Findings) -> None:
    """Drafts were drafted, some were accepted and some were not: a head that accepts nothing or everything hides."""
    findings.settle("acceptance.rate", "acceptance.counters", "counters.generated", arms=candidates)


@pytest.mark.applies(speculation="scripted")
@pytest.mark.usefixtures("answers")
def test_the_server_accepts_what_the_programme_forces(
    candidates: tuple[Arm, ...], findings: Findings
) -> None:
    """Accepted drafts by position, as the server counts them, equal what the scripted drafter made right."""
    findings.settle("acceptance.programme", arms=candidates)
