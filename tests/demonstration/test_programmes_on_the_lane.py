"""Every pattern of acceptance on the lane and stack under test: `-m programmes --lane LANE --stack NAME`.

One server of the stack runs all draft programmes, one after the other. Each is an arm of its own in the packet, named
after the server and the programme, so that the packet says which of them the stack gets through and which not. With a
stack that traces its rounds, a divergence is placed in its verifier round, and the place points at a mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fixtures.client.ask import run_suite
from fixtures.client.metrics import MetricsUnavailable, read_counters
from fixtures.client.transcript import Transcript
from fixtures.engine.programmes import Script, answers_of, exhaustive, programme
from fixtures.engine.server import Server
from fixtures.evidence.plugin import Evidence, settle
from fixtures.judge.acceptance import judge_programme
from fixtures.judge.counters import CounterSpan
from fixtures.judge.programmes import judge_programmes
from fixtures.judge.rows import Purpose, Row
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import Suite, load_suite
from fixtures.session.arms import TRACE_FILE, Arm, Arms, make_arm
from fixtures.session.explaining import RoundSource, explain
from fixtures.session.plugin import stack_name
from fixtures.session.recordings import forced_acceptance
from fixtures.session.shapes import sample
from fixtures.session.trial import RowList

pytestmark = [pytest.mark.programmes, pytest.mark.applies(speculation="scripted")]

PER_CLASS = 4
CONCURRENCY = 4
NAMES = tuple(p.name for p in exhaustive(3))


@dataclass(frozen=True)
class Both:
    """A sink that keeps rows for the test and passes them on to the packet."""

    kept: RowList
    packet: Evidence

    def append(self, kind: str, row: Row) -> None:
        """Keep and pass on."""
        self.kept.append(kind, row)
        self.packet.append(kind, row)


@dataclass(frozen=True)
class Oracle:
    """Target-only on the same stack, from two starts: what it said, and the rows that say so."""

    suite: Suite
    said: tuple[Transcript, ...]
    label: str
    server: Server
    rows: RowList


@pytest.fixture(scope="module")
def oracle(
    lane: Lane, target: Arm, target_restart: Arm, arms: Arms, evidence: Evidence, pytestconfig: pytest.Config
) -> Oracle:
    """Two fresh starts of target-only, four prompts of each class."""
    assert lane.speculation is not None
    assert tuple(p.name for p in exhaustive(lane.speculation.num_speculative_tokens)) == NAMES
    suite, sink = sample(load_suite(lane.suites.parity), PER_CLASS), Both(RowList(), evidence)
    prompts = [{"id": p.id, "class": p.prompt_class, "expect": p.expect} for p in suite.prompts]
    sink.append("suite", {"suite": suite.name, "prompts": prompts})
    said: list[Transcript] = []
    for arm in (target, target_restart):
        server = arms.server(arm)
        sink.kept.append("arm", arms.row(arm))
        for transcript in run_suite(server.endpoint, suite, arm=arm.label, concurrency=CONCURRENCY):
            sink.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
            said.append(transcript)
    return Oracle(suite, tuple(said), arm.label, server, sink.kept)


@pytest.fixture(scope="module")
def wrong() -> dict[str, int]:
    """Answers that are not the target's, by programme; filled by the tests."""
    return {}


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_target_onlys_whatever_is_drafted(
    lane: Lane,
    oracle: Oracle,
    arms: Arms,
    evidence: Evidence,
    name: str,
    wrong: dict[str, int],
    pytestconfig: pytest.Config,
) -> None:
    """Greedy answers equal id by id, and the server accepts at each position what the programme forces."""
    arm = make_arm(lane, "scripted", stack=stack_name(pytestconfig))
    server, label = arms.server(arm, evidence=RowList()), f"{arm.label}/{name}"
    sink = Both(RowList({kind: list(rows) for kind, rows in oracle.rows.rows.items()}), evidence)
    nothing_right = max(programme(name).steps) == 0
    # Where nothing can be accepted, the judge of acceptance has nothing to demand.
    facts = {"arm": label, "role": "candidate"} | ({"speculation": None} if nothing_right else {})
    sink.append("arm", {**arms.row(arm), **facts})
    script = Script(server.folder / "script.json")
    first = [t for t in oracle.said if t.arm == oracle.said[0].arm]
    script.write(programme(name), answers_of(first))
    before = read_counters(server.endpoint)
    said = run_suite(server.endpoint, oracle.suite, arm=label, concurrency=CONCURRENCY)
    for transcript in said:
        sink.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
    assert lane.speculation is not None
    k = lane.speculation.num_speculative_tokens
    try:
        span = CounterSpan(label, before, read_counters(server.endpoint), Purpose.PARITY.value)
    except MetricsUnavailable:
        pass  # an engine that died under its drafts is judged by what it said
    else:
        sink.append("counters", span.to_row())
        sink.append("finding", judge_programme(span, forced_acceptance(script.proposals(), k)).to_row())
    verdict = derive(sink.kept.rows)
    assert verdict.parity is not None
    if cells := verdict.parity.divergences():
        source = RoundSource(server.folder / TRACE_FILE, k, stream_counts=False)
        explain(sink, (oracle.label, oracle.server), cells, [*oracle.said, *said], {label: source})
        verdict = derive(sink.kept.rows)
    wrong[name] = len([c for c in cells if c.arm == label])
    print(f"{name}: {len(said) - wrong[name]} of {len(said)} answers are target-only's")
    settle(verdict.findings)


def test_no_kind_of_round_is_behind_the_failures(
    lane: Lane, evidence: Evidence, wrong: dict[str, int]
) -> None:
    """What the programmes that failed have in common, and those that passed have not, names the mechanism."""
    assert lane.speculation is not None
    ran = {name: (programme(name).steps, programme(name).ragged) for name in wrong}
    finding = judge_programmes(ran, wrong, lane.speculation.num_speculative_tokens)
    evidence.append("finding", finding.to_row())
    settle([finding])
