"""The command line becomes one frozen request; what is unknown or does not go together is a usage error in words."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import DEFAULT_LANE, REPOSITORY, load_lane
from fixtures.options import Once
from fixtures.parsing import BadInput
from fixtures.request import RunRequest, marks_in, parse
from fixtures.run.fail_closed import Seen, nothing_ran, unknown_marks


def request(**options: Any) -> RunRequest:
    """The request of a command line, by the names of its options."""
    return parse(argparse.Namespace(**({"stack": None, "device": [], "lane": None} | options)))


def test_without_options_the_default_lane_is_judged_on_its_own_stack() -> None:
    asked = request()
    assert (asked.lane.name, asked.stack, asked.starts) == (DEFAULT_LANE, "stock", 2)
    assert (asked.control, asked.external, asked.gate, asked.evidence) == (None, None, None, None)
    assert [slot.name for slot in asked.pool.slots] == ["cpu:0"]


def test_a_request_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        request().stack = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lane": "nonsense"}, "known lanes: "),
        ({"stack": "nonsense"}, "known"),
        ({"control": "nonsense"}, "known"),
        ({"gpu_pool": "nonsense"}, "--gpu-pool 'nonsense' is not understood"),
        ({"gate": "no-such-ref"}, "git diff failed"),
        ({"gate": "HEAD", "numprocesses": 2}, "leave out -n"),
        ({"gate": "HEAD", "lane": DEFAULT_LANE, "gate_lane": [DEFAULT_LANE]}, "give one of them"),
        ({"gate_lane": [DEFAULT_LANE]}, "--gate-lane goes with --gate"),
        ({"packets": ["evidence"]}, "--packets goes with --gate"),
        ({"blocks": 2}, "--blocks says how often"),
        ({"blocks": 3, "control": "stock"}, "--blocks 3: an even number"),
        ({"soak_minutes": 0}, "more than 0"),
        ({"api_key": "k"}, "--api-key belongs to --base-url"),
        ({"base_url": "http://x", "record": True}, "--record needs servers that this run starts"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        request(**options)
    assert words in str(caught.value)


def test_a_gate_requires_leaves_a_packet_and_judges_the_named_lane() -> None:
    asked = request(gate="HEAD", lane="canary-cpu-ragged", device=["cpu"])
    assert asked.gate is not None
    assert asked.gate.is_one
    assert (asked.lane.name, asked.require, asked.devices) == ("canary-cpu-ragged", True, ())
    assert asked.evidence is not None
    assert asked.evidence.name.startswith("gate-")


def test_one_run_judges_one_lane() -> None:
    """A second `--lane` would silently replace the first, and rows of two lanes cannot be judged together."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--lane", action=Once)
    assert parser.parse_args(["--lane", "a", "--lane", "a"]).lane == "a"
    with pytest.raises(SystemExit):
        parser.parse_args(["--lane", "a", "--lane", "b"])


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("quality", {"quality"}),
        ("contracts or (endpoint and not stress)", {"contracts", "endpoint", "stress"}),
        ("applies(speculation='mtp') and perf", {"applies", "perf"}),
        ("", set()),
        ("not (", set()),
    ],
)
def test_the_marks_that_an_expression_names(expression: str, marks: set[str]) -> None:
    assert marks_in(expression) == marks


def test_an_unknown_mark_is_named() -> None:
    asked = request(markexpr="qualty or perf")
    assert unknown_marks(asked, {"quality", "perf"}) == ["qualty"]
    assert unknown_marks(asked, {"qualty", "perf"}) == []


def seen(outcome: str, count: int = 3) -> Seen:
    """Contracts of the subject torch on one device."""
    found = Seen()
    for _ in range(count):
        reason = "not runnable: no XPU device for torch" if outcome == "not runnable" else ""
        found.add({"subject": "torch", "device": "xpu:0", "outcome": outcome, "reason": reason})
    return found


@pytest.mark.parametrize(("option", "name"), [("device", "xpu:0"), ("subject", "torch")])
def test_what_was_named_and_did_not_run_is_pending_with_the_reason(option: str, name: str) -> None:
    (finding,) = nothing_ran(request(**{option: [name]}), seen("not runnable"))
    assert finding.outcome is Outcome.PENDING
    assert finding.message == (
        f"--{option} {name}: nothing could run: not runnable: no XPU device for torch (3 contracts)"
    )


@pytest.mark.parametrize("outcome", ["passed", "failed", "error", "known deviation"])
def test_what_ran_is_not_pending(outcome: str) -> None:
    assert nothing_ran(request(device=["xpu:0"]), seen(outcome)) == []


def test_a_device_that_no_selected_test_uses_is_pending_too() -> None:
    (finding,) = nothing_ran(request(device=["cuda:0"]), seen("passed"))
    assert "no contract was selected" in finding.message


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "qualty", "tests/patches"], "-m qualty: no such mark; known: patches, contracts"),
        (["--lane", "canary-cpu", "--lane", "canary-cuda"], "one run judges one lane"),
        (["--subject", "nonsense", "tests/patches"], "known: torch"),
    ],
)
def test_a_usage_error_ends_with_4_and_names_what_is_known(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert words in done.stdout + done.stderr


@pytest.mark.parametrize("with_packet", [False, True])
def test_a_device_that_is_not_there_ends_with_11_and_the_reason(with_packet: bool, tmp_path: Any) -> None:
    """A machine without it skipped every contract and ended with 0."""
    more = ["--evidence", str(tmp_path / "packet")] if with_packet else []
    done = run("tests/contracts/test_slot_copy.py", "--device", "xpu:7", "--subject", "torch", *more)
    assert done.returncode == 11, done.stdout + done.stderr
    assert "--device xpu:7: nothing could run: not runnable: no XPU device for torch" in done.stdout


def test_a_lane_by_path_keeps_its_name() -> None:
    path = REPOSITORY / "fixtures" / "lanes" / "canary-cpu.toml"
    assert request(lane=str(path)).lane == load_lane("canary-cpu")


@pytest.mark.parametrize(("lane", "devices"), [("canary-xpu", (0,)), ("b70-tp2", (0, 1))])
def test_a_plan_is_made_without_the_devices_that_it_is_for(
    lane: str, devices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be asked can be read on any machine; a run needs what it runs on."""
    monkeypatch.setattr("fixtures.request.found_devices", lambda kind: ())
    planned = RunRequest(load_lane(lane), "stock", only_plan=True)
    assert [slot.devices for slot in planned.pool.slots] == [devices]
    with pytest.raises(
        BadInput, match=rf"needs {len(devices)} xpu device\(s\) for one server, and 0 were found"
    ):
        assert dataclasses.replace(planned, only_plan=False).pool
