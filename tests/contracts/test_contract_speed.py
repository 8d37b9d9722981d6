"""Speed of the contracts' own machinery: cases per second, and how long the oracle takes against the subject's own
operation, for each family and subject. Measured and printed, never asserted.

    pytest -m bench_contracts tests/contracts

On the CPU both are CPU time of the calling thread, the best of many calls, so that a busy machine changes little. With
`--evidence DIR` the rows are in the packet, and `python -m fixtures.docs keep DIR` makes the page of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fixtures.gdn import cases, clock, oracle, transaction
from fixtures.gdn.comparison import require_number
from fixtures.gdn.operations import Operation
from fixtures.request import request_of

ROOT = Path(__file__).parents[2]
BF16, FP32 = torch.bfloat16, torch.float32
BUDGET_S = 0.4
LAYERS = {"small": (2, 4, None), "qwen": (16, 48, 128)}
RECURRENT = {
    "decode": (Operation.DECODE, 1),
    "packed": (Operation.VERIFY, 4),
    "prefill": (Operation.PREFILL, 16),
}
CONVOLUTIONS = {
    "conv decode": (Operation.CONV_DECODE, 1),
    "conv packed": (Operation.CONV_VERIFY, 4),
    "conv prefill": (Operation.CONV_PREFILL, 16),
}


@pytest.fixture(scope="module")
def measured(evidence):
    """Rows of all families; they go into the packet."""
    rows = []
    yield rows
    for row in rows:
        evidence.append("contract-speed", row)


def best_s(under_test, action) -> float:
    """Seconds of one call: the best of as many as fit into the budget. CPU time of this thread on the CPU."""
    on_cpu = under_test.device.type == "cpu"
    now = time.thread_time if on_cpu else time.perf_counter

    def once() -> float:
        start = now()
        action()
        if not on_cpu:
            torch.get_device_module(under_test.device).synchronize()
        return now() - start

    once()
    best, until = once(), time.perf_counter() + BUDGET_S
    while time.perf_counter() < until:
        best = min(best, once())
    return best


def report(under_test, family, layer, act, truth, measured, record_property):
    subject_s, oracle_s = best_s(under_test, act), best_s(under_test, truth)
    numbers = {
        "subject": under_test.subject.name,
        "family": family,
        "layer": layer,
        "cases_per_s": round(1 / (subject_s + oracle_s), 1),
        "subject_us": round(subject_s * 1e6, 1),
        "oracle_us": round(oracle_s * 1e6, 1),
        "oracle_to_subject": round(oracle_s / subject_s, 2),
    }
    measured.append(numbers)
    record_property("bench_contracts", numbers)
    print(f"\n{numbers}")
    require_number("both were measured", int(subject_s > 0 and oracle_s > 0), 1)


def ragged(under_test, rows, requests=3):
    """Starts, counts of one and initial flags of three requests of equal length."""
    return (
        cases.starts_of([rows] * requests, under_test.device),
        torch.ones(requests, dtype=torch.int32, device=under_test.device),
        torch.ones(requests, dtype=torch.bool, device=under_test.device),
    )


@pytest.mark.bench_contracts
@pytest.mark.parametrize("family", RECURRENT)
@pytest.mark.parametrize("layer", LAYERS)
def test_recurrence(under_test, family, layer, measured, record_property):
    operation, rows = RECURRENT[family]
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    g, shape, n = under_test.generator, under_test.shape(*LAYERS[layer]), 3
    tokens = cases.make_tokens(g, shape, n * rows, BF16, under_test.device)
    weights = cases.make_heads(g, shape, BF16, under_test.device)
    pool = cases.make_pool(g, shape, 2 + n * rows, FP32, under_test.device, under_test.layout)
    table = cases.make_slots(g, 2 + n * rows, n, rows, under_test.device)
    column0 = table[:, 0].contiguous()
    starts, ones, old = ragged(under_test, rows)
    actions = {
        "decode": lambda: under_test.subject.decode(tokens, weights, pool, column0),
        "packed": lambda: under_test.subject.verify(tokens, weights, pool, table, ones, starts),
        "prefill": lambda: under_test.subject.prefill(tokens, weights, pool, column0, starts, old),
    }
    states = under_test.vk(pool[column0.long()]).clone()

    def truth():
        path = oracle.trajectory(tokens, weights, states)
        # What a contract reads: every published state of a verify, the last one of anything else.
        return path.states if family == "packed" else path.after(rows)

    report(under_test, family, layer, actions[family], truth, measured, record_property)


@pytest.mark.bench_contracts
@pytest.mark.parametrize("family", CONVOLUTIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_convolution(under_test, family, layer, measured, record_property):
    operation, rows = CONVOLUTIONS[family]
    under_test.needs(operation, input_dtype=BF16)
    g, shape, n = under_test.generator, under_test.shape(*LAYERS[layer]), 3
    conv = cases.make_conv(g, shape, BF16, under_test.device)
    pool = cases.make_window_pool(g, shape, 8, 3, BF16, under_test.device, under_test.channels_last)
    x = cases.random_tensor(g, n * rows, shape.conv_dim, dtype=BF16, device=under_test.device)
    slots = cases.make_slots(g, 8, n, 1, under_test.device).flatten()
    starts, ones, old = ragged(under_test, rows)
    actions = {
        "conv decode": lambda: under_test.subject.conv_decode(x, conv, pool, slots),
        "conv packed": lambda: under_test.subject.conv_verify(x, conv, pool, slots, ones, starts),
        "conv prefill": lambda: under_test.subject.conv_prefill(x, conv, pool, slots, starts, old),
    }
    history = pool[slots[0].long(), :, : shape.conv_width - 1].clone()

    def truth():
        return [oracle.convolve(part, history, conv.weight, conv.bias) for part in x.split(rows)]

    report(under_test, family, layer, actions[family], truth, measured, record_property)


@pytest.mark.bench_contracts
def test_gating(under_test, measured, record_property):
    under_test.needs(Operation.GATING, input_dtype=BF16)
    g, shape = under_test.generator, under_test.shape(*LAYERS["small"])
    tokens = cases.make_tokens(g, shape, 33, BF16, under_test.device)
    weights = cases.make_heads(g, shape, BF16, under_test.device)
    report(
        under_test,
        "gating",
        "small",
        lambda: under_test.subject.gating(tokens.a, tokens.b, weights),
        lambda: oracle.decay_and_strength(tokens.a, tokens.b, weights),
        measured,
        record_property,
    )


@pytest.mark.bench_contracts
@pytest.mark.parametrize("family", ["commit_pending", "copy_slots", "fork_commit"])
def test_transaction(under_test, family, measured, record_property):
    under_test.needs(Operation(family))
    shape = under_test.shape()
    ring = cases.make_ring(
        under_test.generator, shape, 9, cache_len=8, spec_len=4, dtype=BF16, device=under_test.device, spare=1
    )
    source, destination, counts = [1, 2, 3, 0], [5, 6, 7, 8], [1, 2, 3, 1]
    long = {"dtype": torch.int64, "device": under_test.device}
    src, dst = torch.tensor(source, **long), torch.tensor(destination, **long)
    accepted = torch.tensor(counts, dtype=torch.int32, device=under_test.device)
    actions = {
        "commit_pending": (
            lambda: (ring.pending.fill_(1), under_test.subject.commit_pending(ring, accepted, dst)),
            lambda: (ring.pending.fill_(1), transaction.commit_pending(ring, counts, destination)),
        ),
        "copy_slots": (
            lambda: under_test.subject.copy_slots(ring, src, dst),
            lambda: transaction.copy_slots(ring, source, destination),
        ),
        "fork_commit": (
            lambda: (ring.pending.fill_(1), under_test.subject.fork_commit(ring, src, dst, accepted)),
            lambda: (ring.pending.fill_(1), transaction.fork_commit(ring, source, destination, counts)),
        ),
    }
    report(under_test, family, "small", *actions[family], measured, record_property)


@pytest.mark.bench_contracts
def test_share_of_the_oracle(request, measured, tmp_path):
    """One run of the contracts themselves under the clock: what of their time is spent in the oracle?"""
    target = tmp_path / "shares.jsonl"
    command = [sys.executable, "-m", "pytest", *sorted(map(str, Path(__file__).parent.glob("test_*.py")))]
    command += ["-m", "contracts", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-p", "fixtures.gdn.clock"]
    command += [word for name in request_of(request.config).subjects for word in ("--subject", name)]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, clock.TARGET: str(target), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, f"the contracts themselves did not hold:\n{run.stdout[-3000:]}"
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert rows, "the clock saw no contract"
    measured += rows
    print("\n".join(run.stdout.splitlines()[-30:]))
