"""The oracle against a second, independently written form; and the transaction model against its loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.gdn import cases, oracle, oracle_loops, strategies, transaction
from fixtures.gdn.operands import HeadWeights, LayerShape, Tokens
from fixtures.gdn.subjects.torch_reference import TorchSubject

CPU = torch.device("cpu")


@given(seed=st.integers(0, 2**16), heads=strategies.head_groupings(), steps=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_vectorised_recurrence_equals_the_plain_loop(seed, heads, steps):
    g = torch.Generator().manual_seed(seed)
    shape = LayerShape(*heads, k_dim=3, v_dim=5)
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
    shape = LayerShape(*heads, k_dim=4, v_dim=3)
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
        LayerShape(1, 1, 1, 1),
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


@given(seed=st.integers(0, 2**16), scale=st.sampled_from([1.0, 8.0, 30.0]), heads=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_gates_equal_the_plain_loop(seed, scale, heads):
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(5, heads, generator=g) * scale for _ in range(2))
    weights = HeadWeights(torch.randn(heads, generator=g), torch.randn(heads, generator=g) * scale)
    log_decay, strength = oracle.decay_and_strength(a, b, weights)
    for t in range(5):
        for head in range(heads):
            numbers = (float(x) for x in (a[t, head], b[t, head], weights.A_log[head], weights.dt_bias[head]))
            plain = oracle_loops.gate(*numbers)
            assert float(log_decay[t, head]) == pytest.approx(plain[0], rel=1e-12, abs=1e-300)
            assert float(strength[t, head]) == pytest.approx(plain[1], rel=1e-12, abs=1e-300)


@given(seed=st.integers(0, 2**16), steps=st.integers(1, 9), width=st.integers(2, 5), biased=st.booleans())
@settings(max_examples=40, deadline=None)
def test_convolution_and_window_equal_the_plain_loop(seed, steps, width, biased):
    g = torch.Generator().manual_seed(seed)
    x, history = torch.randn(steps, 3, generator=g), torch.randn(3, width - 1, generator=g)
    weight = torch.randn(3, width, generator=g)
    bias = torch.randn(3, generator=g) if biased else None
    y = oracle.convolve(x, history, weight, bias)
    stream = torch.cat([history, x.T], dim=1)
    for channel in range(3):
        outputs, window = oracle_loops.convolve(
            x[:, channel].double().tolist(),
            history[channel].double().tolist(),
            weight[channel].double().tolist(),
            float(bias[channel]) if bias is not None else 0.0,
        )
        plain = torch.tensor(outputs, dtype=torch.float64)
        torch.testing.assert_close(y[:, channel], plain, rtol=1e-12, atol=1e-12)
        assert stream[channel, -(width - 1) :].double().tolist() == window


@given(
    seed=st.integers(0, 2**16), cuts=st.lists(st.integers(1, 5), min_size=1, max_size=4), fresh=st.booleans()
)
@settings(max_examples=25, deadline=None)
def test_prefill_in_chunks_equals_the_plain_loop(seed, cuts, fresh):
    """The truth at every boundary, from nothing or from an initial state, against the loop chunk by chunk."""
    g = torch.Generator().manual_seed(seed)
    shape = LayerShape(1, 2, k_dim=3, v_dim=2)
    tokens = cases.make_tokens(g, shape, sum(cuts), torch.bfloat16, CPU)
    weights = cases.make_heads(g, shape, torch.float32, CPU)
    state = torch.zeros(1, 2, 2, 3) if fresh else torch.randn(1, 2, 2, 3, generator=g)
    path = oracle.trajectory(tokens, weights, state)
    for head in range(2):
        mine, first = state[0, head].double().tolist(), 0
        for length in cuts:
            part = tokens.take(slice(first, first + length))
            outputs, mine = oracle_loops.recur(
                part.q[:, 0].double().tolist(),
                part.k[:, 0].double().tolist(),
                part.v[:, head].double().tolist(),
                part.a[:, head].double().tolist(),
                part.b[:, head].double().tolist(),
                float(weights.A_log[head]),
                float(weights.dt_bias[head]),
                mine,
            )
            first += length
            plain = torch.tensor(mine, dtype=torch.float64)
            torch.testing.assert_close(path.after(first)[0, head], plain, rtol=1e-10, atol=1e-12)
            last = torch.tensor(outputs[-1], dtype=torch.float64)
            torch.testing.assert_close(path.outputs[0, first - 1, head], last, rtol=1e-10, atol=1e-12)


CURSORS = ("write_pos", "cache_base", "is_flush", "pending", "pending_len")
CACHES = {
    "window": "conv_state",
    "pending_rows": "conv_pending",
    "d": "d_cache",
    "k": "k_cache",
    "g": "g_cache",
}


def plain_slots(ring):
    """A ring as Python values, one dict a slot."""
    names = {**{name: name for name in CURSORS}, **CACHES}
    return [
        {plain: getattr(ring, name)[slot].tolist() for plain, name in names.items()}
        for slot in range(ring.slots)
    ]


def random_ring(plan):
    ring = cases.make_ring(
        torch.Generator().manual_seed(plan.seed),
        LayerShape(1, 2, 2, 1),
        plan.slots,
        cache_len=plan.cache_len,
        spec_len=plan.spec_len,
        dtype=torch.float32,
        device=CPU,
        spare=1,
    )
    plan.write_cursors(ring)
    return ring


@given(plan=strategies.ring_plans(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_slot_copies_equal_the_plain_loop(plan, data):
    ring, pairs = random_ring(plan), data.draw(strategies.copy_pairs(plan.slots))
    source, destination = [s for s, _ in pairs], [d for _, d in pairs]
    for window in (False, True):
        copied = transaction.copy_slots(ring, source, destination, window=window)
        assert plain_slots(copied) == oracle_loops.copy(plain_slots(ring), pairs, window=window)


@given(plan=strategies.ring_plans(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_forks_equal_the_plain_loop(plan, data):
    ring, pairs = random_ring(plan), data.draw(strategies.copy_pairs(plan.slots))
    accepted = [data.draw(st.integers(-2, plan.spec_len + 2)) for _ in pairs]
    forked = transaction.fork_commit(ring, [s for s, _ in pairs], [d for _, d in pairs], accepted)
    sizes = {"cache_len": plan.cache_len, "spec_len": plan.spec_len, "base_len": ring.conv_base_len}
    rows = [(s, d, n) for (s, d), n in zip(pairs, accepted, strict=True)]
    assert plain_slots(forked) == oracle_loops.fork(plain_slots(ring), rows, **sizes)


@given(seed=st.integers(0, 2**16), requests=st.integers(1, 3), columns=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_prefix_commits_equal_the_plain_loop(seed, requests, columns):
    """Destinations may be prefixes of other requests: all reads before all writes."""
    g = torch.Generator().manual_seed(seed)
    pool = torch.randn(20, 2, generator=g)
    table = cases.make_slots(g, 20, requests, columns, CPU)
    accepted = torch.randint(0, columns, (requests,), generator=g).tolist()
    destination = (torch.randperm(19, generator=g)[:requests] + 1).tolist()
    rows = list(zip(table.tolist(), accepted, destination, strict=True))
    plain = oracle_loops.commit_prefixes(pool.tolist(), rows)
    assert transaction.commit_prefix(pool, table.tolist(), accepted, destination).tolist() == plain


@given(
    scheduled=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    visible=st.lists(st.sampled_from([-1, 1, 2, 3]), max_size=8),
    flags=st.tuples(st.booleans(), st.booleans()),
)
@settings(max_examples=300, deadline=None)
def test_row_to_prefix_equals_the_plain_table(scheduled, visible, flags):
    try:
        rows = transaction.visible_prefix(visible, scheduled, draft_only=flags[0], tail_suppressed=flags[1])
    except ValueError:
        rows = None
    assert rows == oracle_loops.visible_prefix(visible, scheduled, *flags)


def test_the_bound_holds_for_a_sound_subject_and_is_not_vacuous():
    g = torch.Generator().manual_seed(5)
    shape = LayerShape()
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
    tokens = cases.make_tokens(g, LayerShape(), 4, torch.float32, CPU)
    picked = tokens.take([3, 1])
    assert isinstance(picked, Tokens)
    assert torch.equal(picked.v, tokens.v[[3, 1]])
    assert len(picked) == 2
