"""A near tie, a wrong token and corruption, each planted into the real engine, each classified as what it is.

One candidate server runs all three, one after the other, through the switch that seeded faults use. Free text, which
the canary was not trained for, has the near ties; its own tasks, where every margin is wide, have the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.servers import Arms
from fixtures.client.ask import run_suite
from fixtures.client.transcript import Transcript
from fixtures.diagnosis.explaining import explain
from fixtures.engine.installed import installed_engine
from fixtures.engine.patch_sets import load_fault, load_stack
from fixtures.engine.stack import Stack
from fixtures.engine.switch import NOTHING, VARIABLE, Switch, plan_planting
from fixtures.judge.described import LaneRow, SuiteRow
from fixtures.judge.divergence import Kind
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.judges.parity import parity_report
from fixtures.judge.rows import Purpose, RowList
from fixtures.judge.run import Run
from fixtures.judge.thresholds import Thresholds
from fixtures.judge.verdict import Verdict, derive
from fixtures.lanes.lane import load_lane
from fixtures.prompts.suite import Suite, load_suite
from fixtures.report.terminal import show_divergence, worst_divergence
from fixtures.workload.shapes import sample

pytestmark = pytest.mark.examples

LANE = "canary-cpu"
FREE_TEXT_TOKENS = 112
"""Answers to free text go on behind their end of turn: the canary's own are short, and ties are rare. Much further on
the canary, which has nothing to say there, talks in loops."""
FREE_TEXT_PER_CLASS, TASKS_PER_CLASS = 2, 1


@dataclass(frozen=True)
class Example:
    """What is planted, on which suite it shows, and what it has to be called."""

    planted: Stack | None
    suite: str
    kind: Kind


EXAMPLES: Mapping[str, Example] = {
    "stock": Example(None, "chat-parity", Kind.NEAR_TIE),
    "near tie": Example(load_stack("tie-break-in-verify-rows"), "chat-parity", Kind.NEAR_TIE),
    "wrong token": Example(load_fault("runner-up-emitted"), "canary-parity", Kind.WRONG_TOKEN),
    "corruption": Example(load_fault("last-choice-emitted"), "canary-parity", Kind.CORRUPTION),
}


@pytest.fixture(scope="module")
def packets(arms: Arms) -> Mapping[str, RowList]:
    """The rows of each example: two starts of target-only, what the candidate said, the target's scores."""
    lane = load_lane(LANE)
    suites = {
        "chat-parity": sample(load_suite("chat-parity"), FREE_TEXT_PER_CLASS),
        "canary-parity": sample(load_suite("canary-parity"), TASKS_PER_CLASS),
    }
    switch = Switch(arms.folder / "switch")
    switched = lane.engine.model_copy(
        update={"environment": {**lane.engine.environment, VARIABLE: str(switch.control)}}
    )
    candidate = make_arm(lane.model_copy(update={"engine": switched}), "candidate")
    targets = [make_arm(lane, "target", replicate=n) for n in (1, 2)]
    answers = {s: _ask(arms, targets[0], suite) for s, suite in suites.items()}
    server, engine = arms.server(candidate), installed_engine(lane.engine.distribution)
    said: dict[str, Sequence[Transcript]] = {}
    for name, example in EXAMPLES.items():
        switch.plant(server, plan_planting([example.planted], engine) if example.planted else NOTHING)
        said[name] = _ask(arms, candidate, suites[example.suite])
    for s, suite in suites.items():
        answers[s] = [*answers[s], *_ask(arms, targets[1], suite)]
    return {
        name: _packet(
            arms, targets, candidate, example, answers[example.suite], said[name], suites[example.suite]
        )
        for name, example in EXAMPLES.items()
    }


def _ask(arms: Arms, arm: Arm, suite: Suite) -> Sequence[Transcript]:
    server = arms.server(arm)
    if suite.name != "chat-parity":
        return run_suite(server.endpoint, suite, arm=arm.label)
    endless = {"ignore_eos": True}
    return run_suite(server.endpoint, suite, arm=arm.label, max_tokens=FREE_TEXT_TOKENS, extra=endless)


def _packet(
    arms: Arms,
    targets: Sequence[Arm],
    candidate: Arm,
    example: Example,
    answers: Sequence[Transcript],
    said: Sequence[Transcript],
    suite: Suite,
) -> RowList:
    rows = RowList()
    limits = Thresholds(candidate_arms=1)
    rows.append("lane", LaneRow(LANE, "bfloat16", limits).to_row())
    for arm in targets:
        rows.append("arm", arms.row(arm))
    stack = example.planted.name if example.planted and not hasattr(example.planted, "kills") else "stock"
    faults = [example.planted.name] if example.planted and hasattr(example.planted, "kills") else []
    rows.append("arm", dict(arms.row(candidate)) | {"stack": stack, "faults": faults, "speculation": None})
    rows.append("suite", SuiteRow.of(suite, answers=False).to_row())
    compared = [*answers, *said]
    for transcript in compared:
        rows.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
    report = Run(rows.rows).once(parity_report)
    assert report is not None
    explain(rows, (targets[1].label, arms.server(targets[1])), report.to_explain(), compared, {})
    return rows


def judged(rows: RowList, *, allow_near_ties: bool) -> Verdict:
    """The verdict of an example's packet on a lane that is strict, or on one that accepts near ties."""
    limits = Thresholds(candidate_arms=1, allow_near_ties=allow_near_ties)
    return derive(rows.rows | {"lane": [LaneRow(LANE, "bfloat16", limits).to_row()]})


def divergences(verdict: Verdict) -> list[Finding]:
    """Findings about answers that diverge from target-only."""
    return [f for f in verdict.findings if f.details.get("class")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_classified_as_what_it_is(packets: Mapping[str, RowList], name: str) -> None:
    """Every divergence of an example is of the planted kind; the worst one is printed in full."""
    verdict = judged(packets[name], allow_near_ties=False)
    found = divergences(verdict)
    worst = worst_divergence(found)
    print(f"{name}: {len(found)} divergences", *(show_divergence(worst) if worst else []), sep="\n")
    assert {f.details["class"] for f in found} <= {EXAMPLES[name].kind.value}, [f.message for f in found]
    assert found or name == "stock", "the example did not show"
    assert verdict.outcome is (Outcome.REJECTED if found else Outcome.ACCEPTED), verdict.to_row()


def test_a_lane_that_accepts_near_ties_names_the_weaker_class(packets: Mapping[str, RowList]) -> None:
    """The same answers on a lane with `allow_near_ties = true`: accepted, and the verdict says as what."""
    verdict = judged(packets["near tie"], allow_near_ties=True)
    assert verdict.outcome is Outcome.ACCEPTED, verdict.to_row()
    assert "near ties accepted on" in verdict.weaker_class
    assert verdict.to_row()["weaker_class"] == verdict.weaker_class


@pytest.mark.parametrize("name", ["wrong token", "corruption"])
def test_no_lane_accepts_a_wrong_token_or_corruption(packets: Mapping[str, RowList], name: str) -> None:
    """The line in the TOML is about rounding and about nothing else."""
    verdict = judged(packets[name], allow_near_ties=True)
    assert verdict.outcome is Outcome.REJECTED
    assert verdict.weaker_class == ""
