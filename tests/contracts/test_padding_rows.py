"""Padding rows: rows whose slot is the null slot or -1 belong to nobody. They read nothing, write nothing, and what
their inputs hold (NaN here, and in the null slot) reaches no other row.

Graphs are captured for round numbers of rows; every step in between is padded. What an operation does with such rows is
tried in a process of its own where a wrong access could end it.
"""

from __future__ import annotations

import pytest
import torch

from fixtures.gdn.batches import ALL, COLUMNS, PACKED, make_call
from fixtures.gdn.calls import forget_null_slot, padded, perform, require_ran, require_same, with_tail
from fixtures.gdn.comparison import require_equal
from fixtures.gdn.operands import NULL_SLOT
from fixtures.gdn.operations import Operation, PaddingResults

BF16, FP32 = torch.bfloat16, torch.float32
FULL_ONLY = (Operation.LAYER_VERIFY, Operation.CONV_VERIFY)
WHERE = {"first": [0], "middle": [1], "last": [3], "repeated": [1, 2], "everywhere": [0, 1, 2, 3]}
TABLES = (
    *(Operation.VERIFY, Operation.VERIFY_PREFIX_BASE),
    *(Operation.CONV_VERIFY_COLUMNS, Operation.LAYER_VERIFY),
)
marker = pytest.mark.parametrize("marker", [NULL_SLOT, -1], ids=["null", "negative"])
where = pytest.mark.parametrize("where", WHERE)


def arrange(under_test, operation, lengths):
    under_test.needs(operation, input_dtype=BF16, state=FP32)
    if operation in FULL_ONLY:
        lengths = [COLUMNS if length else 0 for length in lengths]
    return make_call(under_test.generator, under_test.sizes(), operation, lengths)


def require_zeros(under_test, outcome, rows):
    """Results of padding rows, where the subject promises what they are."""
    if under_test.bare.capabilities.padding_results is PaddingResults.ZEROS:
        for number, result in enumerate(outcome.results[:1]):
            seen = result[torch.tensor(rows, dtype=torch.int64, device=result.device)]
            axes = ("padding row", "i", "j")[: seen.dim()]
            require_equal(f"result {number} of padding rows", seen, torch.zeros_like(seen), axes)


def act(under_test, call, padding, marker):
    real = [r for r in range(len(call.lengths)) if r not in padding]
    calls = {where: padded(call, padding, marker, nan_in=where) for where in ("rows", "null slot")}

    outcomes = under_test.outcomes(list(calls.values()))

    for nan_in, outcome in zip(calls, outcomes, strict=True):
        # Without padding and without NaN: a subject that reads the null slot would spoil its own expectation.
        expected = perform(under_test.bare, call.only(real))
        require_ran("the call without padding", expected)
        require_ran(f"a padded call, NaN in the {nan_in}", outcome)
        if nan_in == "null slot":
            for state in expected.states.values():
                forget_null_slot(state)
        rows = [row for r in real for row in call.rows_of(r)]
        require_same(f"with padding, NaN in the {nan_in}", outcome, expected, rows)
        require_zeros(under_test, outcome, [row for r in padding for row in call.rows_of(r)])


@marker
@where
@pytest.mark.parametrize("operation", [o for o in ALL if o is not Operation.GATING], ids=str)
def test_padding_touches_nothing(under_test, operation, where, marker):
    """Rows of nobody between rows of requests: NaN in their inputs and in the null slot stays where it is."""
    padding = WHERE[where]
    act(under_test, arrange(under_test, operation, [3, 1, 2, 2]), padding, marker)


@where
@pytest.mark.parametrize("operation", [o for o in ALL if o is not Operation.GATING], ids=str)
def test_padding_leaves_the_requests_alone(under_test, operation, where):
    """Without the null slot itself: what a subject that writes it still has to hold."""
    call, padding = arrange(under_test, operation, [3, 1, 2, 2]), WHERE[where]
    real = [r for r in range(len(call.lengths)) if r not in padding]
    calls = [padded(call, padding, NULL_SLOT, nan_in=place) for place in ("rows", "null slot")]

    outcomes = under_test.outcomes(calls)

    for outcome in outcomes:
        expected = perform(under_test.bare, call.only(real))
        for state in (*outcome.states.values(), *expected.states.values()):
            state[NULL_SLOT] = 0
        require_ran("a padded call", outcome)
        rows = [row for r in real for row in call.rows_of(r)]
        require_same("requests beside padding", outcome, expected, rows)


@marker
@pytest.mark.parametrize("operation", [o for o in ALL if o in PACKED], ids=str)
def test_padding_without_rows_touches_nothing(under_test, operation, marker):
    """Requests of nobody that have no row either: the tail of a padded list of slots, starts repeated."""
    act(under_test, arrange(under_test, operation, [3, 0, 2, 0]), [1, 3], marker)


@pytest.mark.parametrize(
    "operation", [o for o in ALL if o in PACKED and o is not Operation.CONV_VERIFY], ids=str
)
def test_rows_behind_the_last_request_touch_nothing(under_test, operation):
    """More token rows than the starts count: the tail of a padded batch, all NaN."""
    call = arrange(under_test, operation, [3, 1, 2])
    expected, rows = perform(under_test.bare, call), sum(call.lengths)
    require_ran("the call without a tail", expected)

    (outcome,) = under_test.outcomes([with_tail(call, 3)])

    require_ran("a call with a tail", outcome)
    require_same("with a tail", outcome, expected, list(range(rows)))
    require_zeros(under_test, outcome, list(range(rows, rows + 3)))


@marker
@pytest.mark.parametrize("operation", TABLES, ids=str)
def test_columns_without_a_slot_are_not_published(under_test, operation, marker):
    """A table whose last columns are of nobody: rows go on and say what they would, and their states go nowhere."""
    call = arrange(under_test, operation, [COLUMNS - 1, 2, COLUMNS])
    table = call.tensors()["table"]
    call = call.change({"accepted": torch.ones_like(call.tensors()["accepted"])})
    expected = perform(under_test.bare, call)
    require_ran("the call with all columns", expected)
    short = table.clone()
    short[0, 2:] = short[2, 3:] = marker
    for path, state in expected.states.items():
        dropped = table[short != table].long()
        state[dropped] = call.states()[path][dropped]

    (outcome,) = under_test.outcomes([call.change({"table": short})])

    require_ran("a call with columns of nobody", outcome)
    require_same("with columns of nobody", outcome, expected)


@marker
@pytest.mark.parametrize("end", ["source", "destination"])
@pytest.mark.parametrize(
    "operation", [Operation.COMMIT_PREFIX, Operation.COPY_SLOTS, Operation.FORK_COMMIT], ids=str
)
def test_a_move_with_one_end_of_nobody_moves_nothing(under_test, operation, end, marker):
    """A source or a destination that is padding, the other end a request's own."""
    call = arrange(under_test, operation, [1, 1, 1])
    tensors = call.tensors()
    path = "table" if end == "source" and "table" in tensors else end
    changed = tensors[path].clone()
    changed[1] = marker
    expected = perform(under_test.bare, call.only([0, 2]))
    require_ran("the call without the pair", expected)

    (outcome,) = under_test.outcomes([call.change({path: changed})])

    require_ran("a call with one end of nobody", outcome)
    require_same("with one end of nobody", outcome, expected)
