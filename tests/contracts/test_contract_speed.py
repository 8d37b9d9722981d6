"""Speed of the contracts' own machinery: cases per second, and how long the oracle takes against the subject's op.

Measured and printed, never asserted. `pytest -m bench_contracts -s`.
"""

from __future__ import annotations

import time

import pytest
import torch

from fixtures.gdn import cases, oracle, transaction
from fixtures.gdn.comparison import require_number
from fixtures.gdn.operations import Operation

BF16, FP32 = torch.bfloat16, torch.float32
BUDGET_S = 0.7


def rate(action) -> float:
    """Calls per second, after two that do not count."""
    action(), action()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < BUDGET_S:
        action()
        count += 1
    return count / (time.perf_counter() - start)


def report(stand, family, shape, subject_rate, oracle_rate, record_property):
    numbers = {
        "subject": stand.subject.name,
        "family": family,
        "shape": str(shape),
        "cases_per_s": round(1 / (1 / subject_rate + 1 / oracle_rate), 1),
        "subject_per_s": round(subject_rate, 1),
        "oracle_to_subject": round(subject_rate / oracle_rate, 2),
    }
    record_property("bench_contracts", numbers)
    print(f"\n{numbers}")
    require_number("rates were measured", int(subject_rate > 0 and oracle_rate > 0), 1)


@pytest.mark.bench_contracts
@pytest.mark.parametrize("family", ["decode", "packed", "prefill"])
@pytest.mark.parametrize("heads", [(2, 4, None), (16, 48, 128)], ids=["small", "qwen"])
def test_recurrence(stand, family, heads, record_property):
    needed = {"decode": Operation.DECODE, "packed": Operation.VERIFY, "prefill": Operation.PREFILL}[family]
    stand.needs(needed, input_dtype=BF16, state=FP32)
    g, shape = stand.generator, stand.shape(*heads)
    n, rows = 3, {"decode": 1, "packed": 4, "prefill": 16}[family]
    tokens = cases.make_tokens(g, shape, n * rows, BF16, stand.device)
    weights = cases.make_heads(g, shape, BF16, stand.device)
    pool = cases.make_pool(g, shape, 2 + n * rows, FP32, stand.device, stand.layout)
    table = cases.make_slots(g, 2 + n * rows, n, rows, stand.device)
    column0 = table[:, 0].contiguous()
    starts = cases.starts_of([rows] * n, stand.device)
    ones, old = (
        torch.ones(n, dtype=torch.int32, device=stand.device),
        torch.ones(n, dtype=torch.bool, device=stand.device),
    )
    actions = {
        "decode": lambda: stand.subject.decode(tokens, weights, pool, column0),
        "packed": lambda: stand.subject.verify(tokens, weights, pool, table, ones, starts),
        "prefill": lambda: stand.subject.prefill(tokens, weights, pool, column0, starts, old),
    }
    states = stand.vk(pool[column0.long()]).clone()
    report(
        stand,
        family,
        shape,
        rate(actions[family]),
        rate(lambda: oracle.trajectory(tokens, weights, states)),
        record_property,
    )


@pytest.mark.bench_contracts
@pytest.mark.parametrize("family", ["commit_pending", "copy_slots", "fork_commit"])
def test_transaction(stand, family, record_property):
    stand.needs(Operation(family))
    shape = stand.shape()
    ring = cases.make_ring(
        stand.generator, shape, 9, cache_len=8, spec_len=4, dtype=BF16, device=stand.device, spare=1
    )
    source, destination, counts = [1, 2, 3, 0], [5, 6, 7, 8], [1, 2, 3, 1]
    long = {"dtype": torch.int64, "device": stand.device}
    src, dst = torch.tensor(source, **long), torch.tensor(destination, **long)
    accepted = torch.tensor(counts, dtype=torch.int32, device=stand.device)
    actions = {
        "commit_pending": (
            lambda: (ring.pending.fill_(1), stand.subject.commit_pending(ring, accepted, dst)),
            lambda: transaction.commit_pending(ring, counts, destination),
        ),
        "copy_slots": (
            lambda: stand.subject.copy_slots(ring, src, dst),
            lambda: transaction.copy_slots(ring, source, destination),
        ),
        "fork_commit": (
            lambda: (ring.pending.fill_(1), stand.subject.fork_commit(ring, src, dst, accepted)),
            lambda: transaction.fork_commit(ring, source, destination, counts),
        ),
    }
    act, model = actions[family]
    subject_rate = rate(act)
    ring.pending.fill_(1)
    report(stand, family, shape, subject_rate, rate(model), record_property)
