"""Faults of the model's own drafter, which scripted drafts would replace: a server of the default lane for each.

pytest -m faults tests/faults/test_drafter_faults.py
"""

from __future__ import annotations

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.client.ask import run_suite
from fixtures.client.metrics import Counters, read_counters
from fixtures.engine.patch_sets import load_fault
from fixtures.fault_injection.variants import OWN_DRAFTER, drafter_faults
from fixtures.judge.counters import CounterSpan
from fixtures.judge.described import LaneRow
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose, RowList
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.workload.acceptance import load_reference, look_again

pytestmark = [pytest.mark.faults]


def test_the_drafter_fault_is_killed_by_its_detector(lane: Lane, arms: Arms, name: str) -> None:
    """Answers are right with and without it; what the server counts says that drafts are not what they were."""
    arm = make_arm(lane, "candidate", faults=(name,) if name != OWN_DRAFTER else ())
    sink = RowList()
    server = arms.server(arm, evidence=sink)
    suite = load_suite(lane.suites.parity)
    sink.append("lane", LaneRow(lane.name, lane.model.dtype, lane.thresholds).to_row())
    reference = load_reference(lane.name)
    assert reference is not None, f"{lane.name}: what stock accepts is not recorded"
    sink.append("acceptance_reference", reference.to_row())
    marks: list[Counters] = [read_counters(server.endpoint)]
    said = run_suite(
        server.endpoint,
        suite,
        arm=arm.label,
        progress=lambda *_: marks.append(read_counters(server.endpoint)),
    )
    for number, answer in enumerate(said):
        sink.append("transcript", answer.to_row() | {"purpose": Purpose.PARITY.value})
        one = CounterSpan(arm.label, marks[number], marks[number + 1], Purpose.PARITY.value, suite.name)
        sink.append("prompt_counters", one.to_row() | {"prompt_id": answer.prompt_id})
    for span in look_again(server.endpoint, arm.label, suite):
        sink.append("acceptance_span", span.to_row())
    wrong = [a.prompt_id for a, p in zip(said, suite.prompts, strict=True) if a.token_ids != p.answer_ids]
    assert not wrong, f"a fault of the drafter changes no answer: {wrong}"
    found = {f.check: f for f in derive(sink.rows).findings if f.check.startswith("acceptance.")}
    fired = {check for check, f in found.items() if f.outcome is Outcome.REJECTED}
    for check, finding in found.items():
        print(f"{finding.outcome.value}: {check}: {finding.message}")
    kills = set(load_fault(name, lane.engine).kills) if name != OWN_DRAFTER else set()
    assert fired >= kills, f"{name} survives: {kills - fired} did not fire"
    assert name != OWN_DRAFTER or not fired, f"the sound drafter is rejected by {fired}"


@pytest.fixture(params=[OWN_DRAFTER, *drafter_faults()])
def name(request: pytest.FixtureRequest) -> str:
    """The sound drafter first, then every fault of one."""
    return str(request.param)
