"""The oracle against a second, independently written form; and the transaction model against its loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.gdn import cases, oracle, oracle_loops, strategies, transaction
from fixtures.gdn.operations import HeadWeights, Shape, Tokens
from fixtures.gdn.subjects.torch_reference import TorchSubject

CPU = torch.device("cpu")


@given(seed=st.integers(0, 2**16), heads=strategies.head_groupings(), steps=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_vectorised_recurrence_equals_the_plain_loop(seed, heads, steps):
    g = torch.Generator().manual_seed(seed)
    shape = Shape(*heads, k_dim=3, v_dim=5)
    tokens = cases.make_tokens(g, shape, steps, torch.float32, CPU)
    weights = cases.make_heads(g, shape, torch.float32, CPU)
    state = torch.randn(1, shape.v_heads, 5, 3, generator=g).double()
    path = oracle.trajectory(tokens, weights, state)
    group = shape.v_heads // shape.k_heads
    for head in range(shape.v_heads):
        outputs, final = oracle_loops.recur(
            tokens.q[:, head // group].double().tolist(),
            tokens.k[:, head // group].double().tolist(),
            tokens.v[:, head].double().tolist(),
            tokens.a[:, head].double().tolist(),
            tokens.b[:, head].double().tolist(),
            float(weights.A_log[head]),
            float(weights.dt_bias[head]),
            state[0, head].tolist(),
        )
        torch.testing.assert_close(
            path.outputs[0, :, head], torch.tensor(outputs, dtype=torch.float64), rtol=1e-11, atol=1e-12
        )
        torch.testing.assert_close(
            path.states[0, -1, head], torch.tensor(final, dtype=torch.float64), rtol=1e-11, atol=1e-12
        )


@given(
    seed=st.integers(0, 2**16),
    heads=strategies.head_groupings(),
    steps=st.integers(1, 70),
    a=st.floats(-60, 60),
)
@settings(max_examples=25, deadline=None)
def test_states_in_between_a_single_state_and_norms_are_of_one_path(seed, heads, steps, a):
    """The closed form against the recurrence that lays out every state; decays from nothing to all included."""
    g = torch.Generator().manual_seed(seed)
    shape = Shape(*heads, k_dim=4, v_dim=3)
    tokens = cases.make_tokens(g, shape, 2 * steps, torch.bfloat16, CPU)
    tokens.a[: steps // 2] = a
    weights = cases.make_heads(g, shape, torch.bfloat16, CPU)
    path = oracle.trajectory(tokens, weights, torch.randn(2, shape.v_heads, 3, 4, generator=g))
    for count in {0, 1, steps // 2, steps}:
        torch.testing.assert_close(path.after(count), path.states[:, count], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(path.norms, path.states.norm(dim=-1), rtol=1e-9, atol=1e-7)
    group = shape.v_heads // shape.k_heads
    q = oracle.normalise(tokens.q).repeat_interleave(group, dim=1).unflatten(0, (2, steps)) * 4**-0.5
    read = (path.states[:, 1:] @ q.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(path.outputs, read, rtol=1e-10, atol=1e-12)


@given(plan=strategies.ring_plans(), data=st.data())
@settings(max_examples=50, deadline=None)
def test_commit_model_equals_the_plain_loop(plan, data):
    g = torch.Generator().manual_seed(plan.seed)
    ring = cases.make_ring(
        g,
        Shape(1, 1, 1, 1),
        plan.slots,
        cache_len=plan.cache_len,
        spec_len=plan.spec_len,
        dtype=torch.float32,
        device=CPU,
        spare=1,
    )
    plan.write_cursors(ring)
    rows = data.draw(strategies.commit_rows(plan.slots, plan.spec_len))
    new = transaction.commit_pending(ring, [n for _, n in rows], [s for s, _ in rows])
    counts = {slot: n for slot, n in rows if 0 < slot < plan.slots and plan.pending[slot]}
    for slot in range(plan.slots):
        old = {
            "window": ring.conv_state[slot].tolist(),
            "pending_rows": ring.conv_pending[slot].tolist(),
            "pending_len": plan.pending_len[slot],
            "is_flush": plan.is_flush[slot],
            "cache_base": plan.cache_base[slot],
            "write_pos": plan.write_pos[slot],
            "pending": plan.pending[slot],
        }
        if slot in counts:
            old = oracle_loops.commit_row(
                old,
                counts[slot],
                cache_len=plan.cache_len,
                spec_len=plan.spec_len,
                base_len=ring.conv_base_len,
            )
        assert new.conv_state[slot].tolist() == old["window"]
        for name in ("cache_base", "write_pos", "is_flush", "pending"):
            assert int(getattr(new, name)[slot]) == old[name], (slot, name)


def test_the_bound_holds_for_a_sound_subject_and_is_not_vacuous():
    g = torch.Generator().manual_seed(5)
    shape = Shape()
    tokens = cases.make_tokens(g, shape, 6, torch.bfloat16, CPU)
    heads = cases.make_heads(g, shape, torch.bfloat16, CPU)
    pool = cases.make_pool(g, shape, 2, torch.bfloat16, CPU)
    path = oracle.trajectory(tokens, heads, pool[1:2])
    bound = oracle.error_bound(path, k_dim=16, state_dtype=torch.bfloat16, output_dtype=torch.bfloat16)
    slot = torch.tensor([1], dtype=torch.int32)
    for t in range(6):
        TorchSubject().decode(tokens.take([t]), heads, pool, slot)
    share = (pool[1].double() - path.states[0, -1]).abs() / bound.states[0, -1].unsqueeze(-1)
    assert 0.01 < float(share.max()) <= 1


@pytest.mark.parametrize("x", [-30.0, 0.0, 19.9, 20.1, 80.0])
def test_softplus_is_right_on_both_sides_of_its_threshold(x):
    weights = HeadWeights(torch.zeros(1), torch.zeros(1))
    log_decay, _ = oracle.decay_and_strength(torch.tensor([[x]]), torch.zeros(1, 1), weights)
    assert float(-log_decay) == pytest.approx(
        torch.nn.functional.softplus(torch.tensor(x).double()).item(), rel=1e-7
    )


def test_tokens_take_keeps_rows_together():
    g = torch.Generator().manual_seed(1)
    tokens = cases.make_tokens(g, Shape(), 4, torch.float32, CPU)
    picked = tokens.take([3, 1])
    assert isinstance(picked, Tokens)
    assert torch.equal(picked.v, tokens.v[[3, 1]])
    assert len(picked) == 2
