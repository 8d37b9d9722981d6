"""The A/A run: new prompts for every comparison, none twice on one server, and servers kept as long as they may be."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from judge_rows import span, transcript

from fixtures.arms.arm import Arm, make_arm
from fixtures.client.transcript import Transcript
from fixtures.engine.pool import Slot, parse_pool
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import load_lane
from fixtures.models.canary.fresh import write_fresh, write_ladder
from fixtures.prompts.suite import Suite, known_suites, load_suite
from fixtures.workload import null_run
from fixtures.workload.null_run import NullRun

LANE = load_lane("canary-cpu")


class Engines:
    """Stands in for recordings and arms: answers every prompt rightly, one id every 10 ms, 12 ms where slowed."""

    def __init__(self, pool: str) -> None:
        self.pool = parse_pool(pool, kind="cuda", cores=[0, 1])
        self.arms = self
        self.up: dict[str, Arm] = {}
        self.slots: dict[str, str] = {}
        self.sent: list[tuple[str, str]] = []
        self.clock_ns = itertools.count(1, 10**11)

    def server(self, arm: Arm, on: Slot | None = None) -> SimpleNamespace:
        if arm.label not in self.slots:
            assert on is not None
            self.up = {slot: a for slot, a in self.up.items() if slot != on.name} | {on.name: arm}
            self.slots[arm.label] = on.name
        assert any(a.label == arm.label for a in self.up.values()), f"{arm.label} is gone"
        return SimpleNamespace(endpoint=None, ledger=None)

    def row(self, arm: Arm) -> dict[str, str]:
        return {"slot": self.slots[arm.label]}

    def answer(self, part: Suite, arm: str) -> tuple[Transcript, ...]:
        said = []
        for prompt in part.prompts:
            self.sent.append((arm, prompt.user))
            made = transcript(
                prompt.id, arm, gap_s=0.012 if "step-sleeps" in arm else 0.010, suite=part.name,
                prompt_class=prompt.prompt_class, content=prompt.expect,
            )  # fmt: skip
            later_ns = next(self.clock_ns)
            asked = {"messages": prompt.messages, "max_tokens": prompt.max_tokens}
            times = tuple(t + later_ns for t in made.receipt_ns)
            sent_ns, done_ns = made.sent_ns + later_ns, made.done_ns + later_ns
            changed = dataclasses.replace(
                made, request=asked, sent_ns=sent_ns, done_ns=done_ns, receipt_ns=times
            )
            said.append(changed)
        return tuple(said)

    def take(self, suite: Suite) -> Suite:
        return suite

    def suite(self, name: str) -> Suite:
        return load_suite(name)

    def next_order(self, arm: Arm, count: int) -> int:
        return 0

    def keep(self, *_: Any) -> None: ...


@pytest.fixture
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[NullRun, Engines]:
    """A finished run on the pool and with the blocks of the parameter."""
    pool, blocks = request.param
    engines = Engines(pool)
    monkeypatch.setattr(null_run, "run_suite", lambda _, part, *, arm, **more: engines.answer(part, arm))
    monkeypatch.setattr(null_run, "read_counters", lambda _: span().before)
    places, rounds = range(1, blocks + 1), write_fresh(1, rounds=3)
    made = NullRun(
        engines,  # type: ignore[arg-type]
        one=[make_arm(LANE, "one", replicate=n) for n in places],
        other=[make_arm(LANE, "other", replicate=2 + n) for n in places],
        slow=[make_arm(LANE, "slow", replicate=4 + n, faults=("step-sleeps",)) for n in places],
        rounds=rounds,
        slow_round=write_fresh(2, count=2, besides=rounds)[0],
        warmup="canary-warmup",
        band=0.015,
    )
    made.record()
    made.record()
    return made, engines


WAYS = [("cpu:1", 2), ("cpu:2", 2), ("0-1", 2), ("cpu*2", 2), ("cpu*2", 1)]


@pytest.mark.parametrize("run", WAYS, indirect=True, ids=[f"{pool} {blocks}" for pool, blocks in WAYS])
def test_equal_servers_are_equal_a_slowed_one_is_found_and_no_prompt_comes_twice(
    run: tuple[NullRun, Engines],
) -> None:
    made, engines = run
    for suite in made.rounds:
        finding = made.compare(made.one, made.other, suite)
        assert finding.outcome is Outcome.INCONCLUSIVE, finding.message
        assert finding.details["ratio"] == pytest.approx(1)
    slow = made.compare(made.slow, made.other, made.slow_round)
    assert slow.outcome is Outcome.REJECTED, slow.message
    assert slow.details["ratio"] == pytest.approx(1 / 1.2, rel=1e-3)
    assert len(engines.sent) == len(set(engines.sent))


@pytest.mark.parametrize("run", [("cpu*2", 1)], indirect=True)
def test_a_wrong_answer_gives_no_ratio(run: tuple[NullRun, Engines]) -> None:
    made, _ = run
    suite = made.rounds[0]
    said = made.said[made.one[0].label, suite.name]
    said[2] = dataclasses.replace(said[2], content="nonsense")
    finding = made.compare(made.one, made.other, suite)
    assert (finding.outcome, finding.message) == (Outcome.PENDING, "no ratio: every answer is rejected")


def test_one_block_in_turns_is_refused() -> None:
    alone = [make_arm(LANE, "one")]
    made = NullRun(Engines("cpu:1"), alone, alone, alone, [], load_suite("canary-warmup"), None, 0.015)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order and effect cannot be told apart"):
        made.record()


def test_fresh_prompts_are_in_no_suite_and_long_enough_for_the_window() -> None:
    known = {p.user for name in known_suites() for p in load_suite(name).prompts}
    rounds = write_fresh(1, rounds=10)
    drawn = [p for suite in (*rounds, *write_fresh(2, count=3, besides=rounds)) for p in suite.prompts]
    assert len({p.user for p in drawn}) == len(drawn) == 65
    assert known.isdisjoint(p.user for p in drawn)
    assert min(p.max_tokens for p in drawn) - 24 >= 128
    assert write_fresh(1)[0].classes == ("copy", "repeat", "count", "parity", "sum")


def test_the_ladder_has_five_lengths_and_three_depths() -> None:
    lengths = [p.meta["prompt_tokens"] for p in write_ladder(1).prompts]
    for place, rung in enumerate((64, 128, 256, 512, 1024)):
        assert all(rung <= tokens < 2 * rung for tokens in lengths[3 * place : 3 * place + 3])


def test_only_lanes_of_the_embedded_model_have_fresh_prompts() -> None:
    assert LANE.is_canary
    assert not load_lane("b70-tp2").is_canary
