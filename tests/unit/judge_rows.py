"""Rows with known contents for the tests of judge and evidence: every field says what a test needs it to
say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from fixtures.client.metrics import Counters
from fixtures.client.transcript import Transcript, Usage
from fixtures.judge.counters import CounterSpan

CLASSES = ("code", "prose", "json", "count", "copy")


def transcript(
    prompt_id: str = "p0",
    arm: str = "candidate#1",
    *,
    ids: Sequence[int] | None = None,
    gap_s: float = 0.01,
    order: int = 0,
    prompt_class: str = "code",
    suite: str = "suite",
    content: str | None = None,
    **changes: Any,
) -> Transcript:
    """A complete, cold, streamed answer: 120 ids (unlike those of other prompts), one every `gap_s`
    seconds."""
    if ids is None:
        ids = [1 + (7 * i + sum(map(ord, prompt_id))) % 400 for i in range(120)]
    sent_ns = 1_000_000_000 + order * 100_000_000_000
    receipt_ns = tuple(sent_ns + 50_000_000 + round(i * gap_s * 1e9) for i in range(len(ids)))
    made = Transcript(
        suite=suite,
        prompt_id=prompt_id,
        prompt_class=prompt_class,
        arm=arm,
        request={"model": "canary", "max_tokens": 512, "messages": [{"role": "user", "content": prompt_id}]},
        token_ids=tuple(ids),
        receipt_ns=receipt_ns,
        sent_ns=sent_ns,
        done_ns=(receipt_ns[-1] if receipt_ns else sent_ns) + 1_000_000,
        content=" ".join(map(str, ids)) if content is None else content,
        usage=Usage(prompt_tokens=40, completion_tokens=len(ids), cached_tokens=0),
        finish_reason="stop",
        event_count=len(ids),
        saw_done=True,
        http_status=200,
        order=order,
    )
    return dataclasses.replace(made, **changes)


def suite_of(arm: str, *, prompts: int = 10, gap_s: float = 0.01) -> list[Transcript]:
    """One cold pass over a suite of `prompts` prompts in five classes."""
    return [
        transcript(f"p{n}", arm, order=n, gap_s=gap_s, prompt_class=CLASSES[n % len(CLASSES)])
        for n in range(prompts)
    ]


def span(arm: str = "candidate#1", purpose: str = "measured", **after: Any) -> CounterSpan:
    """Counters of a cold arm that drafts 3 tokens a round with falling acceptance."""
    zero = Counters(0, 0, 0, (0, 0, 0), 0, 0, 0, 0, 0)
    end = Counters(100, 300, 150, (80, 50, 20), 400, 0, 0, 400, 1200)
    return CounterSpan(arm, zero, dataclasses.replace(end, **after), purpose)


def packet_rows(
    *,
    targets: Iterable[str] = ("target#1", "target#2"),
    candidates: Iterable[str] = ("candidate#1", "candidate#2"),
    prompts: int = 10,
) -> dict[str, list[dict[str, Any]]]:
    """All rows of a sound run: parity, cold speed, canaries, acceptance, a contract, tests and stages."""
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("arm", "transcript", "counters")}
    for arm in targets:
        rows["arm"].append({"arm": arm, "role": "target", "speculation": None})
        rows["transcript"] += [t.to_row() | {"purpose": "parity"} for t in suite_of(arm, prompts=prompts)]
    for arm in candidates:
        rows["arm"].append({"arm": arm, "role": "candidate", "speculation": {"method": "mtp"}})
        rows["transcript"] += [t.to_row() | {"purpose": "measured"} for t in suite_of(arm, prompts=prompts)]
        rows["counters"].append(span(arm).to_row())
        for n in range(2):
            said = transcript(
                "colours", arm, suite="canaries", ids=[5, 6, 7], content="blue, green, red", order=900 + n
            )
            rows["transcript"].append(said.to_row() | {"purpose": "canary"})
    rows["suite"] = [
        {
            "suite": "suite",
            "prompts": [{"id": f"p{n}", "class": CLASSES[n % 5], "expect": None} for n in range(prompts)],
        },
        {"suite": "canaries", "prompts": [{"id": "colours", "class": "sort", "expect": "blue, green, red"}]},
    ]
    rows["lane"] = [
        {"name": "canary-cpu", "dtype": "bfloat16", "thresholds": {"canary_repeats": 2, "perf_min_ids": 100}}
    ]
    rows["contract"] = [
        {
            "subject": "torch",
            "contract": "accepted-prefix-commit",
            "case": "k3-bf16",
            "compared": 4096,
            "mismatches": 0,
            "max_abs_error": 0.0,
            "bound": None,
        }
    ]
    rows["test"] = [
        {"nodeid": "tests/quality/test_parity.py::test_exact", "stage": "quality", "outcome": "passed"}
    ]
    rows["stage"] = [
        {"name": n, "state": "reached"} for n in ("contracts", "server", "canaries", "parity", "speed")
    ]
    return rows
