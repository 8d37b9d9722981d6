"""Empty sequences: a request without a row in this step keeps its state, and nobody else notices that it is there.

Graphs pad a batch with them, ragged drafts leave some, and a scheduler may hand over a request that got no token.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn.batches import ALL, COLUMNS, PACKED, make_call
from fixtures.gdn.calls import Outcome, perform, require_ran, require_same
from fixtures.gdn.operations import Operation

BF16, FP32 = torch.bfloat16, torch.float32
FULL_ONLY = (Operation.LAYER_VERIFY, Operation.CONV_VERIFY)
"""Their requests have as many rows as the table has columns, or none."""
LENGTHS = [[2, 0, 3], [0, 2, 3], [2, 3, 0], [0, 0, 2, 0], [1, 0, 0, 4], [0, 0, 0]]
operations = pytest.mark.parametrize("operation", [o for o in ALL if o in PACKED], ids=str)


def arrange(under_test, operation, lengths, has_initial):
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    if operation in FULL_ONLY:
        lengths = [COLUMNS if length else 0 for length in lengths]
    initial = [has_initial] * len(lengths)
    return make_call(under_test.generator, under_test.sizes(), operation, lengths, initial)


@operations
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda v: "".join(map(str, v)))
@pytest.mark.parametrize("has_initial", [True, False], ids=["goes-on", "fresh"])
def test_an_empty_sequence_changes_nothing(under_test, operation, lengths, has_initial):
    """States and results as if the empty sequences were not there; their own slots stay, fresh or not."""
    call = arrange(under_test, operation, lengths, has_initial)
    others = [r for r, length in enumerate(call.lengths) if length]
    alone = perform(under_test.bare, call.only(others)) if others else untouched(call)
    require_ran("the call without them", alone)

    (outcome,) = under_test.outcomes([call])

    require_ran("a call with empty sequences", outcome)
    if not others:
        assert all(len(result) == 0 for result in outcome.results)
        outcome = Outcome(states=outcome.states)
    require_same("with empty sequences", outcome, alone)


def untouched(call):
    """What a call leaves behind that has nothing to do."""
    return Outcome(states=call.states())


@pytest.mark.parametrize("operation", [o for o in ALL if o is not Operation.GATING], ids=str)
def test_a_call_without_requests_changes_nothing(under_test, operation):
    """Every list is empty: a step in which all requests are of the other kind."""
    call = arrange(under_test, operation, [1, 1], True).only([])
    (outcome,) = under_test.outcomes([call])
    require_ran("a call without requests", outcome)
    require_same("without requests", Outcome(states=outcome.states), untouched(call))
