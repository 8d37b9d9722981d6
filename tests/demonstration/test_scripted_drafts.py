"""The demonstration: same model, same prompts; stock is rejected, the repaired stack is accepted, faults are killed.

Everything is real: the pinned engine, the canary, processes, HTTP. Only the drafts are scripted, so that rounds of
every length and every number of right drafts occur. All prompts are greedy; target-only is the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.servers import Arms
from fixtures.diagnosis.trial import Trial, wrong_answers
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose
from fixtures.judge.verdict import Verdict
from fixtures.lanes.lane import Lane, load_lane
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.demonstration

REPAIR = "gdn-ragged-drafts"


@pytest.fixture(scope="module")
def trial(lane: Lane, recordings: Recordings, arms: Arms) -> Iterator[Trial]:
    """Target-only answers of stock, from two starts, to at least 40 prompts."""
    suite = recordings.suite(lane.suites.parity)
    assert len(suite.prompts) >= 40
    targets = [make_arm(lane, "target", replicate=n) for n in (1, 2)]
    said = {arm.label: recordings.of(arm, suite.name, Purpose.PARITY) for arm in targets}
    return Trial(arms, suite, said)


def scripted(stack: str = "stock", *faults: str) -> Arm:
    """The scripted lane on a stack, with seeded faults."""
    return make_arm(load_lane("canary-cpu-uniform"), "scripted", stack=stack, faults=faults)


def rejecting(verdict: Verdict) -> set[str]:
    """Names of the checks that reject."""
    return {f.check for f in verdict.findings if f.outcome is Outcome.REJECTED}


def test_stock_is_accepted_with_uniform_drafts(trial: Trial) -> None:
    """The quiet side: three drafts every round, of which 0 to 3 are right, change nothing on the stock engine."""
    verdict = trial.verdict(scripted(), "uniform")
    assert verdict.outcome is Outcome.ACCEPTED, verdict.to_row()
    assert verdict.exit_code == 0


def test_stock_is_rejected_with_ragged_drafts(trial: Trial) -> None:
    """Drafts of different lengths corrupt most answers silently: HTTP 200, healthy acceptance, wrong text."""
    arm = scripted()
    verdict = trial.verdict(arm, "ragged")
    wrong = wrong_answers(verdict, arm.label)
    print(
        f"stock, ragged drafts: {len(trial.suite.prompts) - len(wrong)} of {len(trial.suite.prompts)} right"
    )
    assert verdict.outcome is Outcome.REJECTED
    assert verdict.exit_code == 1
    assert any(check.startswith("parity.") for check in rejecting(verdict)), rejecting(verdict)
    assert len(wrong) > len(trial.suite.prompts) // 4, wrong


@pytest.mark.parametrize("programme", ["ragged", "empty"])
def test_the_repaired_stack_is_accepted(trial: Trial, programme: str) -> None:
    """One line repaired in an overlay: ragged drafts, and rounds without any draft, change nothing any more."""
    verdict = trial.verdict(scripted(REPAIR), programme)
    assert verdict.outcome is Outcome.ACCEPTED, verdict.to_row()


@pytest.mark.parametrize("fault", ["accepted-count-one", "one-draft-too-many"])
def test_a_seeded_acceptance_fault_is_rejected_by_parity(trial: Trial, fault: str) -> None:
    """The accepted count feeds the state that the next round starts from; a wrong one must not get through."""
    arm = scripted("stock", fault)
    verdict = trial.verdict(arm, "uniform")
    wrong = wrong_answers(verdict, arm.label)
    print(f"{fault}: {len(trial.suite.prompts) - len(wrong)} of {len(trial.suite.prompts)} right")
    assert verdict.outcome is Outcome.REJECTED, verdict.to_row()
    assert any(check.startswith("parity.") for check in rejecting(verdict)), rejecting(verdict)
