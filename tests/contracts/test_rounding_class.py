"""Rounding class: rounding the state once a token and replaying several updates before rounding are different numbers.

A replay-class subject can pass its own transaction contracts and still not be exact against the target: this measures
the drift, and shows that each class stays within its own bound of the float64 truth.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import cases, oracle
from fixtures.gdn.comparison import require_within
from fixtures.gdn.operations import Operation, Rounding
from fixtures.gdn.routes import decode_rows

AXES = ("head", "value row", "key column")
BF16 = torch.bfloat16


@pytest.mark.parametrize("steps", [1, 16, 128, 512])
def test_per_token_and_replay_drift_within_their_bounds(under_test, steps, record_property):
    """The same tokens through decode and through the ReplaySSM ring, one row a step, all accepted."""
    under_test.needs(
        Operation.REPLAY_VERIFY, Operation.COMMIT_PENDING, Operation.DECODE, input_dtype=BF16, state=BF16
    )
    g, shape = under_test.generator, under_test.shape(1, 2)
    tokens = cases.make_tokens(g, shape, steps, BF16, under_test.device)
    heads = cases.make_heads(g, shape, BF16, under_test.device)
    pool = cases.make_pool(g, shape, 3, BF16, under_test.device, under_test.layout)
    path = oracle.trajectory(tokens, heads, under_test.vk(pool[1:2]))
    limit = oracle.error_bound(path, k_dim=shape.k_dim, state_dtype=BF16, output_dtype=BF16)
    serial = decode_rows(under_test.subject, tokens, heads, pool, [1], [steps])

    ring = cases.empty_ring(
        g, shape, 3, cache_len=8, spec_len=2, dtype=torch.float32, device=under_test.device
    )
    slot, one = (
        torch.tensor([1], device=under_test.device),
        torch.tensor([1], dtype=torch.int32, device=under_test.device),
    )
    conv_rows = cases.random_tensor(g, 1, shape.conv_dim, dtype=BF16, device=under_test.device)
    replayed = torch.empty_like(serial.outputs)
    for t in range(steps):
        replayed[t] = under_test.subject.replay_verify(
            tokens.take([t]),
            heads,
            pool,
            ring,
            conv_rows,
            slot.int(),
            cases.starts_of([1], under_test.device),
        )[0]
        under_test.subject.commit_pending(ring, one, slot)

    outputs = ("row", "head", "element")
    require_within("per-token outputs", serial.outputs, path.outputs[0], limit.outputs[0], outputs)
    require_within("replayed outputs", replayed, path.outputs[0], limit.outputs[0], outputs)
    state = limit.states[0, -1].unsqueeze(-1)
    require_within("per-token state", under_test.vk(serial.states[0][-1]), path.after(steps)[0], state, AXES)
    differing = int((serial.outputs != replayed).sum())
    drift = float((serial.outputs.double() - replayed.double()).abs().max())
    record_property(
        "drift",
        {"steps": steps, "outputs": serial.outputs.numel(), "differing outputs": differing, "largest": drift},
    )


def test_the_subject_declares_its_class(under_test):
    """A packed verify that publishes the same bytes as decode is per-token class; the report says which was shown."""
    under_test.needs(Operation.VERIFY, input_dtype=BF16, state=BF16)
    g, shape = under_test.generator, under_test.shape()
    tokens = cases.make_tokens(g, shape, 4, BF16, under_test.device)
    heads = cases.make_heads(g, shape, BF16, under_test.device)
    pool = cases.make_pool(g, shape, 6, BF16, under_test.device, under_test.layout)
    single = pool.clone()
    table = torch.tensor([[1, 2, 3, 4]], dtype=torch.int32, device=under_test.device)
    one = torch.tensor([1], dtype=torch.int32, device=under_test.device)
    under_test.subject.verify(tokens, heads, pool, table, one, cases.starts_of([4], under_test.device))
    for j in range(4):
        # Resume from the rounded state of the row before: the per-token class continues from what it published.
        step = torch.tensor([[j + 1, max(j, 1)]], dtype=torch.int32, device=under_test.device)
        two = torch.tensor([2], dtype=torch.int32, device=under_test.device)
        under_test.subject.verify(
            tokens.take([j]), heads, single, step, two, cases.starts_of([1], under_test.device)
        )
    per_token = under_test.subject.capabilities.rounding is Rounding.PER_TOKEN
    same = torch.equal(pool, single)
    from fixtures.gdn.comparison import require_number

    require_number("published rows are continued from their rounded state", int(same), int(per_token))
