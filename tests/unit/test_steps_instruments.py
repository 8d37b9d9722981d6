"""The instruments of scheduled steps see what they are for: the reference with one thing wrong, each seen by name."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fixtures.gdn.operations import ContractViolation
from fixtures.steps.lives import Lives
from fixtures.steps.operations import Row
from fixtures.steps.reference import TorchSteps

CPU = torch.device("cpu")


def lives(subject, **arguments):
    return Lives(subject, torch.Generator().manual_seed(3), CPU, **arguments)


def whole_life(subject):
    """Two requests; a verify of either; a third one in the slots of the first; a step of all."""
    bench = lives(subject)
    first, second = bench.arrive(4), bench.arrive(5)
    bench.step({first: 4, second: 3})
    bench.step({first: 4, second: 2}, {first: 2})
    bench.step({first: 4, second: 4}, {first: 4, second: 3}, padding=1)
    bench.finish(first)
    third = bench.arrive(3)
    bench.step({second: 4, third: 3}, {second: 1})
    bench.step({second: 4, third: 1})
    return bench


class Changed(TorchSteps):
    """The reference, handed rows that are not those of the step."""

    def __init__(self, change):
        self.change = change

    def step(self, inputs, layer, windows, pool, step):
        rows = tuple(self.change(row) for row in step.rows)
        return super().step(inputs, layer, windows, pool, dataclasses.replace(step, rows=rows))


def test_the_reference_lives_whole_lives():
    assert whole_life(TorchSteps()).steps == 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: dataclasses.replace(r, accepted=1), "behind 2 accepted"),
        (
            lambda r: dataclasses.replace(r, accepted=min(r.accepted + 1, len(r.slots))),
            "state after packed row 0",
        ),
        (
            lambda r: dataclasses.replace(r, computed=max(r.computed, 1)) if not r.is_verify else r,
            "first chunk",
        ),
        (lambda r: dataclasses.replace(r, computed=0) if not r.is_verify else r, "short chunk"),
        (lambda r: dataclasses.replace(r, slots=r.slots[::-1]), "state after the last token"),
        (lambda r: dataclasses.replace(r, slots=(r.slots[0] % 12 + 1, *r.slots[1:])), "slot"),
    ],
    ids=[
        "one accepted",
        "one too late",
        "not zeroed",
        "chunk starts anew",
        "columns reversed",
        "another slot",
    ],
)
def test_a_row_that_is_taken_for_another_is_seen_by_name(change, says):
    with pytest.raises(ContractViolation, match=says):
        whole_life(Changed(change))


def test_a_write_into_a_slot_of_nobody_is_seen():
    class Careless(TorchSteps):
        def step(self, inputs, layer, windows, pool, step):
            out = super().step(inputs, layer, windows, pool, step)
            pool[0, 0, 0, 0] += 1
            return out

    with pytest.raises(ContractViolation, match=r"slots of others, states.*\n.*slot 0, the null slot"):
        whole_life(Careless())


def test_a_subject_that_refuses_a_legal_step_breaks_the_contract():
    class Refusing(TorchSteps):
        def step(self, inputs, layer, windows, pool, step):
            raise IndexError("no such row")

    with pytest.raises(ContractViolation, match="refuses a legal call: IndexError: no such row"):
        whole_life(Refusing())


def test_a_preempted_request_is_computed_again_from_its_own_tokens():
    bench = lives(TorchSteps())
    request = bench.arrive(4)
    bench.prefill(request, 4)
    bench.step({request: 4}, {request: 3})
    had = [part.qkvz.clone() for part in bench.live[request].known]
    bench.preempt(request)
    assert bench.resume() == request
    assert bench.live[request].behind == 7
    bench.prefill(request, 5, 2)
    again = [part.qkvz for part in bench.live[request].known]
    assert all(torch.equal(one, other) for one, other in zip(had, again, strict=True))


@pytest.mark.parametrize(
    ("row", "kind", "region"),
    [
        (Row(0, (1, 2, 3, 4), 0, 1, 5, 5), "first chunk", 3),
        (Row(0, (1, 2, 3, 4), 3, 1, 5, 5), "short chunk", 1),
        (Row(0, (1, 2), 3, 3, 9, 9), "long chunk", 2),
        (Row(0, (1, 2, 3, 4), 5, 4, 5, 5), "verify", 0),
        (Row(0, (1, 2, 3, 4), 5, 2, 5, 9), "short chunk", 0),
        (Row(0, (1, 2), 5, 3, 5, 9), "long chunk", 2),
    ],
)
def test_rows_are_told_apart_and_sorted_as_the_runner_does(row, kind, region):
    assert (row.kind, row.region) == (kind, region)
