"""Offsets beyond 2**31 elements: a pool of a large server is longer than 32 bits can count, and so are token rows times
their stride. One product in int32, and another slot is read, or the process ends.

Entries are moved apart in untouched address space: nothing is paid but the pages that are used.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import layout
from fixtures.gdn.batches import ALL, moved_tensors, ragged_call
from fixtures.gdn.calls import perform, require_ran, require_refused, require_same
from fixtures.gdn.layout import Layout

BF16, FP32 = torch.bfloat16, torch.float32
PARAMETERS = ("heads", "conv", "layer")


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        pytest.param(operation, path, id=f"{operation}-{path}")
        for operation in ALL
        for path in moved_tensors(operation)
        if path.partition(".")[0] not in PARAMETERS
    ],
)
def test_offsets_may_be_larger_than_32_bits(under_test, operation, path):
    """The same call with the entries of one tensor 2**30 elements apart, so that also the product of an unsigned index
    wraps."""
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    rule = layout.beyond_31_bits
    call = ragged_call(under_test.generator, under_test.sizes(), operation)
    under_test.needs_memory(call.tensors()[path], rule)
    expected = perform(under_test.bare, call)

    (outcome,) = under_test.outcomes([call], [Layout(rule.__name__, {path: rule})])

    if outcome.error and path in under_test.bare.capabilities.prepared.get(operation, {}):
        require_refused(path, outcome)
        return
    require_ran(f"{path} far apart", outcome)
    require_same(f"{path} far apart", outcome, expected)
