"""Graph replay: what is captured sees the inputs of the moment. Block tables, accepted counts, positions and rows
change between replays, as they do in a server, and every replay is compared over the whole pool.

Offered where a subject can capture: CUDA graphs on CUDA. On the CPU the contract is stated and not offered.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.gdn.cases import dtype_name
from fixtures.layers.operations import LayerOperation
from fixtures.layers.replay import (
    make_buffers,
    refill,
    require_replays,
    require_untouched_capture,
    require_verify_replays,
)

REPLAYS = 32


def test_every_replay_sees_new_tables_counts_positions_and_rows(layers):
    """All four change before every replay; padding rows come and go."""
    layers.needs(LayerOperation.STEP, LayerOperation.CAPTURE)
    require_replays(layers.subject, layers.device, layers.generator, REPLAYS)


@given(
    changed=st.sets(st.sampled_from(["table", "accepted", "positions", "rows"]), min_size=1, max_size=2),
    salt=st.integers(0, 999),
)
@settings(max_examples=12)
def test_each_input_alone_is_seen(layers, changed, salt):
    """One of them changes and the others stay: a value that was baked in cannot hide behind another."""
    layers.needs(LayerOperation.STEP, LayerOperation.CAPTURE)
    layers.reseed(salt)
    require_replays(layers.subject, layers.device, layers.generator, 4, tuple(sorted(changed)))


def test_capture_with_the_null_table_changes_nothing(layers):
    """Warm-up and capture run the step: with the null table no slot may change, the null slot included."""
    layers.needs(LayerOperation.STEP, LayerOperation.CAPTURE)
    buffers = make_buffers(layers.generator, layers.device)
    refill(buffers, layers.generator, ("table", "accepted", "positions", "rows"), live=0)
    require_untouched_capture(layers.subject, buffers, layers.device)


def test_two_captures_do_not_share_their_inputs(layers):
    """Graphs for two batch sizes live side by side."""
    layers.needs(LayerOperation.STEP, LayerOperation.CAPTURE)
    for requests in (2, 5):
        require_replays(layers.subject, layers.device, layers.generator, 6, requests=requests)


def test_an_eager_step_holds_on_any_device(layers):
    """The step itself, not captured: what replays are compared with is right."""
    layers.needs(LayerOperation.STEP)
    require_replays(layers.subject, layers.device, layers.generator, 6, captured=False)


@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16], ids=dtype_name)
def test_a_captured_verify_sees_new_tables_counts_and_rows(layers, state):
    """The engine's own packed verify: every replay equals the direct call, over the whole state pool."""
    layers.needs(LayerOperation.VERIFY_STEP, LayerOperation.CAPTURE)
    require_verify_replays(layers.subject, layers.device, layers.generator, 16, state)
