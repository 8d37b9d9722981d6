"""Calls in a process of their own: on processors in forks, on accelerators in a server that is started anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fixtures.gdn.calls import Call, Outcome
from fixtures.gdn.layout import ALONE
from fixtures.gdn.operations import Operation
from fixtures.gdn.worker import Worker
from tests.unit.standin.mortal import COMPUTES, DIES, HANGS, LEAVES, REFUSES, SPOILS, load


@pytest.fixture(params=[True, False], ids=["forks", "itself"], scope="module")
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """A worker in both ways; a call may take two seconds."""
    made = Worker(load, "mortal", torch.device("cpu"), forks=request.param, deadline_s=2)
    yield made
    made.close()


def ask(worker: Worker, *inputs: int) -> list[Outcome]:
    """The outcomes of one message of calls."""
    calls = [Call(Operation.GATING, {"a": torch.tensor([float(n)])}) for n in inputs]
    return worker.run([(call, ALONE) for call in calls])


def test_what_is_computed_comes_back(worker: Worker) -> None:
    first, second = ask(worker, COMPUTES, COMPUTES)
    assert (first.died, first.error, first.results[0][1].item()) == ("", "", 2 * COMPUTES)
    assert first.results[0][0] == second.results[0][0], "one message, one process"


def test_a_refusal_ends_nothing(worker: Worker) -> None:
    refused, computed = ask(worker, REFUSES, COMPUTES)
    assert refused.error == "ValueError: not with ones"
    assert not computed.error


@pytest.mark.parametrize(
    ("what", "said"), [(DIES, "SIGSEGV"), (HANGS, "no result within 2 s"), (LEAVES, "exit status 7")]
)
def test_what_ends_its_process_is_named_and_the_others_are_asked_all_the_same(
    worker: Worker, what: int, said: str
) -> None:
    before, ended, after = ask(worker, COMPUTES, what, COMPUTES)
    assert (before.died, ended.died, after.died) == ("", said, "")
    (later,) = ask(worker, COMPUTES)
    assert later.results, "the worker goes on"


def test_a_server_that_makes_the_calls_itself_lives_as_long_as_nothing_goes_wrong() -> None:
    """Its device's context costs seconds to make: one for all calls, and a new one after an end."""
    worker = Worker(load, "mortal", torch.device("cpu"), forks=False, deadline_s=2)
    try:
        pids = [int(ask(worker, COMPUTES)[0].results[0][0]) for _ in range(3)]
        assert len(set(pids)) == 1
        ask(worker, DIES)
        assert int(ask(worker, COMPUTES)[0].results[0][0]) not in pids
    finally:
        worker.close()


def test_what_the_device_says_afterwards_ends_the_server() -> None:
    """An error that shows when results are brought to the host is there for every later call."""
    worker = Worker(load, "mortal", torch.device("cpu"), forks=False)
    try:
        (pid,) = {int(ask(worker, COMPUTES)[0].results[0][0])}
        (spoilt,) = ask(worker, SPOILS)
        assert spoilt.died == "RuntimeError: an illegal memory access"
        assert int(ask(worker, COMPUTES)[0].results[0][0]) != pid
    finally:
        worker.close()
