"""The command that a finding prints: what it asks for is there, and what is not there is named."""

from __future__ import annotations

import os

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.client.metrics import Counters
from fixtures.diagnosis import replay
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput


def test_one_prompt_is_asked_alone_and_in_its_suite_where_requests_share_batches() -> None:
    alone, wanted = replay.select("canary-parity/count-3", 1)
    assert [p.id for p in alone.prompts] == [wanted] == ["count-3"]
    together, wanted = replay.select("canary-parity/count-3", 4)
    assert wanted == "count-3"
    assert len(together.prompts) == 64


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("count-3", "expected SUITE/PROMPT"),
        ("canary-parity/none", "has no prompt 'none'; it has sort-1"),
        ("nothing/count-3", "nothing"),
    ],
)
def test_what_is_not_there_is_named(named: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replay.select(named, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lane", "none", "canary-parity/count-3"],
        ["--stack", "none", "canary-parity/count-3"],
        ["--fault", "none", "canary-parity/count-3"],
        ["--programme", "none", "canary-parity/count-3"],
        ["--gpu-pool", "none", "canary-parity/count-3"],
    ],
)
def test_an_unknown_name_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        replay.main(arguments)
    assert ended.value.code == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "pool"), [({0}, "cpu:1"), ({0, 1}, "cpu:2"), (set(range(16)), "cpu:2")])
def test_the_pool_that_nobody_named_fits_the_machine(
    cores: set[int], pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine of one core the command that a report printed ended in a usage error."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores)
    assert replay.default_pool(load_lane("canary-cpu")) == pool
    assert replay.default_pool(load_lane("canary-cuda")) == "0-1"
    assert replay.default_pool(load_lane("canary-cuda-tp2")) == "0-3:2"


def test_a_server_that_is_dead_has_counted_nothing() -> None:
    """An engine that the prompt has killed is told as such, not as an error of the command."""
    nothing = Counters()
    assert replay._rounds_since(nothing, Endpoint("http://127.0.0.1:9", None, "model")) is None
