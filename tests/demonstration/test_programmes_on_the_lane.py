"""Every pattern of acceptance on the lane and stack under test: `-m programmes --lane LANE --stack NAME`.

One server of the stack runs all draft programmes, one after the other; one that dies of a programme is followed by a
fresh one. Each programme is an arm of its own in the packet, named after the server and the programme, so that the
packet says which of them the stack gets through and which not. At the end target-only is asked what it thinks at the
divergences. With a stack that traces its rounds, a divergence is placed in its verifier round, and the place points at
a mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.instruments import TRACE_FILE
from fixtures.arms.servers import Arms
from fixtures.client.ask import run_suite
from fixtures.client.metrics import MetricsUnavailable, read_counters
from fixtures.client.transcript import Transcript
from fixtures.diagnosis.explaining import RoundSource, explain
from fixtures.engine.programmes import Script, answers_of, exhaustive, programme
from fixtures.engine.server import Server
from fixtures.engine.starting import StartFailed
from fixtures.evidence.plugin import Evidence, settle
from fixtures.judge.comparison import Comparison
from fixtures.judge.counters import CounterSpan
from fixtures.judge.described import LaneRow, ProgrammeRow, SuiteRow
from fixtures.judge.explanation import explain as classed
from fixtures.judge.finding import Outcome
from fixtures.judge.programmes import DraftProgrammeRow
from fixtures.judge.rows import Purpose, Row, RowList
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import Suite, load_suite
from fixtures.request import request_of
from fixtures.run.findings import Findings
from fixtures.workload.shapes import sample

pytestmark = [pytest.mark.programmes, pytest.mark.applies(speculation="scripted")]

PER_CLASS = 4
CONCURRENCY = 4
EXPLAINED = 3
"""Divergences of a programme that are scored: each costs a prefill, and their classes repeat."""
NAMES = tuple(p.name for p in sorted(exhaustive(3), key=lambda p: (min(p.steps) < 0, p.ragged)))
"""Those that engines have died of come last, so that the others share one server."""


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
    rows: RowList


@pytest.fixture(scope="module")
def oracle(lane: Lane, target: Arm, target_restart: Arm, arms: Arms, evidence: Evidence) -> Oracle:
    """Two fresh starts of target-only, four prompts of each class."""
    assert lane.speculation is not None
    assert sorted(p.name for p in exhaustive(lane.speculation.num_speculative_tokens)) == sorted(NAMES)
    suite, sink = sample(load_suite(lane.suites.parity), PER_CLASS), Both(RowList(), evidence)
    limits = lane.thresholds.model_copy(update={"candidate_arms": 1})
    sink.kept.append("lane", LaneRow(lane.name, lane.model.dtype, limits).to_row())
    sink.append("suite", SuiteRow.of(suite).to_row())
    said: list[Transcript] = []
    for arm in (target, target_restart):
        server = arms.server(arm)
        sink.kept.append("arm", arms.row(arm))
        for transcript in run_suite(server.endpoint, suite, arm=arm.label, concurrency=CONCURRENCY):
            sink.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
            said.append(transcript)
    return Oracle(suite, tuple(said), sink.kept)


@dataclass
class Series:
    """The servers that run the programmes one after the other, and the divergences that are explained at the end."""

    lane: Lane
    stack: str
    arms: Arms
    replicate: int = 1
    cells: list[Comparison] = field(default_factory=list)
    """Divergences of all programmes."""
    said: list[Transcript] = field(default_factory=list)
    sources: dict[str, RoundSource] = field(default_factory=dict)
    _up: set[str] = field(default_factory=set)

    def server(self) -> tuple[Arm, Server]:
        """A living server; where the last one has died of its programme, a fresh one."""
        while True:
            arm = make_arm(self.lane, "scripted", replicate=self.replicate, stack=self.stack)
            try:
                server = self.arms.server(arm, evidence=RowList())
            except StartFailed:
                if arm.spec.digest not in self._up:
                    raise
                self.replicate += 1
            else:
                self._up.add(arm.spec.digest)
                return arm, server


@pytest.fixture(scope="module")
def series(lane: Lane, arms: Arms, pytestconfig: pytest.Config) -> Series:
    """Filled by the tests, one programme after the other."""
    return Series(lane, request_of(pytestconfig).stack, arms)


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_target_onlys_whatever_is_drafted(
    lane: Lane, oracle: Oracle, arms: Arms, evidence: Evidence, series: Series, name: str
) -> None:
    """Greedy answers equal id by id, and the server accepts at each position what the programme forces."""
    arm, server = series.server()
    label = f"{arm.label}/{name}"
    sink = Both(RowList({kind: list(rows) for kind, rows in oracle.rows.rows.items()}), evidence)
    ran = programme(name)
    nothing_right = max(ran.steps) == 0
    # Where nothing can be accepted, the judge of acceptance has nothing to demand.
    facts = {"arm": label, "role": "candidate"} | ({"speculation": None} if nothing_right else {})
    sink.append("arm", {**arms.row(arm), **facts, "programme": name, "concurrency": CONCURRENCY})
    assert lane.speculation is not None
    k = lane.speculation.num_speculative_tokens
    evidence.append("draft_programme", DraftProgrammeRow(label, name, ran.steps, ran.ragged, k).to_row())
    script = Script(server.folder / "script.json")
    first = [t for t in oracle.said if t.arm == oracle.said[0].arm]
    script.write(ran, answers_of(first))
    before = read_counters(server.endpoint)
    said = run_suite(server.endpoint, oracle.suite, arm=label, concurrency=CONCURRENCY)
    for transcript in said:
        sink.append("transcript", transcript.to_row() | {"purpose": Purpose.PARITY.value})
    try:
        span = CounterSpan(
            label, before, read_counters(server.endpoint), Purpose.PARITY.value, oracle.suite.name
        )
    except MetricsUnavailable:
        pass  # an engine that died under its drafts is judged by what it said
    else:
        sink.append("counters", span.to_row())
        named = oracle.suite.name, Purpose.PARITY.value
        sink.append("programme", ProgrammeRow.of(label, *named, script.proposals(), k).to_row())
    verdict = derive(sink.kept.rows)
    assert verdict.parity is not None
    assert verdict.parity.against_target is not None
    compared = verdict.parity.against_target.cells[label].values()
    wrong = sum(c.outcome is Outcome.REJECTED for c in compared)
    unanswered = sum(c.outcome is Outcome.INCONCLUSIVE for c in compared)
    series.cells += [c for c in verdict.parity.divergences() if c.arm == label][:EXPLAINED]
    series.said += said
    series.sources[label] = RoundSource(server.folder / TRACE_FILE, k)
    counted = f"{wrong} wrong, {unanswered} without an answer, of {len(said)}"
    forced = [f.message for f in verdict.findings if f.check == "acceptance.programme"]
    print(f"{name}: {counted}", *forced, sep="\n")
    settle(verdict.findings)


def test_no_kind_of_round_is_behind_the_failures(
    lane: Lane,
    target_restart: Arm,
    arms: Arms,
    oracle: Oracle,
    evidence: Evidence,
    findings: Findings,
    series: Series,
) -> None:
    """What the programmes that failed have in common, and those that passed have not, names the mechanism."""
    if series.cells:
        scorer = target_restart.label, arms.server(target_restart)
        scores = explain(evidence, scorer, series.cells, [*oracle.said, *series.said], series.sources)
        for cell in series.cells:
            why = classed(cell, [*oracle.said, *series.said], scores, lane.model.dtype)
            print(
                f"{cell.arm}/{cell.prompt_id}: "
                + (f"{why.kind.value}: {why.reason}" if why else "not scored")
            )
    findings.settle("programmes.points_at")
