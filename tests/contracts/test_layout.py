"""Layout: where a tensor lies in memory changes nothing. Slots are columns of a block table, gates views of one
projection, states lie in pages that hold something else too; a kernel that reads them with unit stride answers for
somebody else.

Every tensor of every operation is moved alone, into storage whose gaps are poison. What servers hand over has to be
taken; what no protocol promises has to be read rightly or refused, and nothing is written either way.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn import layout
from fixtures.gdn.arguments import is_state
from fixtures.gdn.batches import ALL, moved_tensors, ragged_call
from fixtures.gdn.calls import perform, require_near, require_ran, require_refused, require_same
from fixtures.gdn.layout import Layout

BF16, FP32 = torch.bfloat16, torch.float32
PARAMETERS = ("heads", "conv", "layer")
PROMISED = (layout.wider, layout.gapped, layout.offset)
FREE = (layout.odd_offset, layout.inner_step, layout.middle_gap, layout.middle_out, layout.transposed)
REORDERS = (layout.odd_offset, layout.middle_out, layout.transposed)
"""A kernel may have other code for what lies on no boundary of a vector load, or for a dimension that lies elsewhere in
memory, and sum in another order there."""
INTEGERS = (layout.other_integers, layout.other_integers_apart)


def free_rules(path, tensor):
    """Placements that no protocol promises, as far as they make sense for a tensor."""
    if tensor.dim() == 1:
        return (layout.odd_offset, layout.inner_step)
    return FREE if tensor.dim() > 2 else tuple(rule for rule in FREE if rule is not layout.middle_gap)


def tensors(keep=lambda path, tensor: True):
    """Operation and path of every tensor that a call has."""
    return [
        pytest.param(operation, path, id=f"{operation}-{path}")
        for operation in ALL
        for path, tensor in moved_tensors(operation).items()
        if keep(path, tensor)
    ]


def act(under_test, operation, path, rules, *, may_refuse):
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    call = ragged_call(under_test.generator, under_test.sizes(), operation)
    expected = perform(under_test.bare, call)
    require_ran("the call as it comes", expected)
    rules = rules(call.tensors()[path]) if callable(rules) else rules
    may_refuse = may_refuse or path in under_test.bare.capabilities.prepared.get(operation, {})

    outcomes = under_test.outcomes([call], [Layout(rule.__name__, {path: rule}) for rule in rules])

    for rule, outcome in zip(rules, outcomes, strict=True):
        what = f"{path}: {rule.__doc__.splitlines()[0]}"
        if outcome.error and may_refuse:
            require_refused(what, outcome)
            continue
        require_ran(what, outcome)
        (require_near if rule in REORDERS else require_same)(what, outcome, expected)


@pytest.mark.parametrize(
    ("operation", "path"), tensors(lambda path, _: path.partition(".")[0] not in PARAMETERS)
)
def test_entries_may_lie_apart(under_test, operation, path):
    """Columns of wider tables, slices with an offset, slots with a gap: the same results and states, bit for bit."""
    act(under_test, operation, path, PROMISED, may_refuse=False)


@pytest.mark.parametrize(("operation", "path"), tensors())
def test_any_stride_is_read_rightly_or_refused(under_test, operation, path):
    """Gaps in inner dimensions, another order of dimensions, a base on no boundary of a vector load."""
    free = not under_test.bare.capabilities.any_strides
    act(under_test, operation, path, lambda tensor: free_rules(path, tensor), may_refuse=free)


@pytest.mark.parametrize(
    ("operation", "path"),
    tensors(lambda path, tensor: tensor.dtype in (torch.int32, torch.int64) and not is_state(path)),
)
def test_the_other_index_dtype_is_read_rightly_or_refused(under_test, operation, path):
    """int64 where int32 is usual and the other way round, also as a column of a wider table."""
    promised = {torch.int32, torch.int64} <= set(under_test.bare.capabilities.index_dtypes)
    act(under_test, operation, path, INTEGERS, may_refuse=not promised)


@pytest.mark.parametrize("operation", ALL, ids=str)
@pytest.mark.parametrize("arrangement", [layout.ENGINE, layout.SCATTERED], ids=lambda a: a.name)
def test_all_tensors_lie_elsewhere_at_once(under_test, operation, arrangement):
    """Everything as servers hand it over; and, of a subject that takes any stride, with gaps in every dimension."""
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    if arrangement is layout.SCATTERED and not under_test.bare.capabilities.any_strides:
        pytest.skip(f"not offered: {under_test.name} does not promise any strides")
    call = ragged_call(under_test.generator, under_test.sizes(), operation)
    expected = perform(under_test.bare, call)
    prepared = frozenset(under_test.bare.capabilities.prepared.get(operation, {}))

    (outcome,) = under_test.outcomes([call], [arrangement.except_for(prepared)])

    require_ran(f"the layout {arrangement.name!r}", outcome)
    require_same(f"the layout {arrangement.name!r}", outcome, expected)
