"""Faults that change numbers and not logic are seen where answers are not exact: by the gaps of all tokens.

On the real engine, lane `prose-cpu`: one candidate server says 65 answers of 48 tokens with each fault planted, one
target reads them all. The sound engine says them first, and no check of gaps may fire.
"""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arms
from fixtures.fault_injection.numeric import NumericTrials
from fixtures.fault_injection.variants import numeric_faults
from fixtures.judge.detection import SOUND
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.judges.gaps import GAPS
from fixtures.judge.run import Run
from fixtures.lanes.lane import load_lane

pytestmark = pytest.mark.faults

LANE = "prose-cpu"


@pytest.fixture(scope="module")
def trials(arms: Arms, request: pytest.FixtureRequest) -> NumericTrials:
    """What target-only says, and the candidate with each fault that is asked for; all of it read by the target."""
    found = NumericTrials(arms, load_lane(LANE))
    asked = {item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")}
    found.record([fault for fault in numeric_faults(found.lane) if fault in asked])
    return found


def found(trials: NumericTrials, fault: str) -> list[Finding]:
    """What the judge of gaps says of a candidate with a fault, or of the sound one."""
    findings = list(GAPS.findings(Run(trials.rows(fault).rows)))
    for finding in findings:
        print(f"{finding.outcome.value}: {finding.check}: {finding.message}")
    return findings


def test_the_sound_engine_is_accepted(trials: NumericTrials) -> None:
    """Its answers differ from target-only's at many places, and each token is the target's choice or a near tie."""
    assert {f.outcome for f in found(trials, SOUND)} == {Outcome.ACCEPTED}


@pytest.mark.parametrize("fault", numeric_faults(load_lane(LANE)))
def test_the_numeric_fault_is_killed_by_its_gaps(trials: NumericTrials, fault: str) -> None:
    """By a token beyond what rounding explains, or by the distribution of all gaps."""
    rejected = [f for f in found(trials, fault) if f.outcome is Outcome.REJECTED]

    assert {f.check for f in rejected} & {"gaps.wrong_token", "gaps.distribution"}, f"{fault} survives"
