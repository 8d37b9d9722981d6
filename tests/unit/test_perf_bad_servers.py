"""Servers that misbehave in the middle of a measurement: over the wire, to a named finding, and to no number."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from judge_rows import CLASSES, span

from fixtures.client.ask import run_suite
from fixtures.client.endpoint import Endpoint
from fixtures.client.transcript import Transcript
from fixtures.judge.finding import Outcome
from fixtures.judge.rows import Purpose
from fixtures.judge.trace import trace_row
from fixtures.judge.verdict import Verdict, derive
from fixtures.prompts.suite import Suite
from tests.unit.golden.script import MISSING, Script, Stream, script, stream, usage
from tests.unit.golden.server import GoldenServer

IDS = 110
SUITE = Suite.model_validate(
    {
        "schema": "draftproof-suite-1",
        "name": "suite",
        "description": "one prompt in each of five classes",
        "prompts": [
            {"id": f"p{n}", "class": c, "user": f"ask {n}", "max_tokens": 512} for n, c in enumerate(CLASSES)
        ],
    }
)


def answer(n: int, **changes: Any) -> Stream:
    """A whole, cold answer of `IDS` ids, those of no other prompt, a millisecond apart."""
    told = {"usage": usage(12, IDS), "first_id": 1000 * (n + 1), "wait_s": 0.0002} | changes
    return stream([f"w{i} " for i in range(IDS)], **told)


def good(n: int) -> Script:
    return script(answer(n))


@functools.cache
def said(bad: Callable[[int], Script] | None = None) -> tuple[Transcript, ...]:
    """What a server says to the suite; `bad` answers the third prompt."""
    scripts = [bad(n) if bad is not None and n == 2 else good(n) for n in range(len(SUITE.prompts))]
    with GoldenServer(scripts) as server:
        return run_suite(Endpoint(server.base_url, "key", "golden"), SUITE, arm="any")


def verdict_of(bad: Callable[[int], Script] | None) -> Verdict:
    """Two target-only starts, two candidate starts; the second candidate misbehaves."""
    rows: dict[str, list[Any]] = {kind: [] for kind in ("arm", "transcript", "trace", "counters")}
    for arm in ("target#1", "target#2", "candidate#1", "candidate#2"):
        role = arm.partition("#")[0]
        rows["arm"].append({"arm": arm, "role": role, "speculation": None})
        rows["counters"].append(span(arm).to_row())
        for t in said(bad if arm == "candidate#2" else None):
            named = Transcript(**{f: getattr(t, f) for f in t.__dataclass_fields__} | {"arm": arm})
            rows["transcript"].append(named.to_row() | {"purpose": "measured"})
            assert named.trace is not None
            rows["trace"].append(trace_row(named, named.trace, Purpose.MEASURED))
    rows["suite"] = [
        {
            "suite": "suite",
            "prompts": [{"id": p.id, "class": p.prompt_class, "expect": None} for p in SUITE.prompts],
        }
    ]
    rows["lane"] = [{"name": "lane", "thresholds": {"perf_min_ids": 100}}]
    return derive(rows)


def stops_streaming_ids(n: int) -> Script:
    whole, without = answer(n), answer(n, with_ids=False)
    return script(Stream(whole.events[:40] + without.events[40:]))


def null_usage(n: int) -> Script:
    return script(answer(n, usage=None))


def no_usage(n: int) -> Script:
    return script(answer(n, usage=MISSING))


def null_cached_tokens(n: int) -> Script:
    return script(answer(n, usage=usage(12, IDS, None)))


def no_cached_tokens(n: int) -> Script:
    return script(answer(n, usage=usage(12, IDS, MISSING)))


def warm(n: int) -> Script:
    return script(answer(n, usage=usage(12, IDS, 7)))


def repeats_its_ids(n: int) -> Script:
    whole = answer(n, finish_reason=None)
    return script(Stream(whole.events[:IDS] + answer(n).events))


def repeats_the_answer_before(n: int) -> Script:
    return script(answer(n - 1))


def closes_early(n: int) -> Script:
    return script(answer(n), stop_after=60)


def resets(n: int) -> Script:
    return script(answer(n), stop_after=60, reset=True)


def leaves_done_out(n: int) -> Script:
    return script(answer(n, done=False))


def answers_short(n: int) -> Script:
    return script(stream(["w "] * 20, first_id=9000, usage=usage(12, 20)))


CASES: list[tuple[Callable[[int], Script], str, Outcome, str]] = [
    (stops_streaming_ids, "freshness.complete", Outcome.INCONCLUSIVE, "no-ids: event 40 carried text without"),
    (null_usage, "freshness.ids_counted", Outcome.PENDING, "110 ids, usage has no completion_tokens"),
    (no_usage, "freshness.ids_counted", Outcome.PENDING, "110 ids, usage has no completion_tokens"),
    (null_cached_tokens, "freshness.cached_tokens", Outcome.PENDING, "usage has no cached_tokens, which is not zero"),
    (no_cached_tokens, "freshness.cached_tokens", Outcome.PENDING, "usage has no cached_tokens, which is not zero"),
    (warm, "freshness.cached_tokens", Outcome.REJECTED, "7 cached tokens"),
    (repeats_its_ids, "freshness.ids_counted", Outcome.REJECTED, "220 ids, usage says 110"),
    (repeats_the_answer_before, "freshness.repeated_answer", Outcome.PENDING, "the 110 ids of p1 again"),
    (closes_early, "freshness.complete", Outcome.INCONCLUSIVE, "closed-early: "),
    (resets, "freshness.complete", Outcome.INCONCLUSIVE, "closed-early: "),
    (leaves_done_out, "freshness.complete", Outcome.INCONCLUSIVE, "no-done: the stream ended without [DONE]"),
    (answers_short, "speed.headline", Outcome.PENDING, "1 of 5 answers do not have 100 timed ids, first p2 with 20"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "check", "outcome", "words"), CASES, ids=[c[0].__name__ for c in CASES])
def test_a_server_that_misbehaves_gets_a_named_finding_and_no_number(
    bad: Callable[[int], Script], check: str, outcome: Outcome, words: str
) -> None:
    verdict = verdict_of(bad)
    found = [f for f in verdict.findings if f.check == check and f.outcome is outcome]
    assert found, [
        (f.check, f.outcome, f.message) for f in verdict.findings if f.outcome is not Outcome.ACCEPTED
    ]
    assert words in found[0].message
    assert "p2" in found[0].message
    assert verdict.headline_tok_s is None
    assert verdict.outcome is not Outcome.ACCEPTED


def test_the_same_run_with_a_server_that_behaves_is_accepted_with_a_number() -> None:
    verdict = verdict_of(None)
    unsettled = [(f.check, f.message) for f in verdict.findings if f.outcome is not Outcome.ACCEPTED]
    # A loopback server can outrun a busy client; then no answer can be dated, and nothing else is wrong.
    assert all(
        check == "speed.headline" and "did not get the processor" in words for check, words in unsettled
    )
    assert verdict.headline_tok_s is not None or unsettled
