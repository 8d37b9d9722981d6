"""Long steps say how far they are and what is left, on a terminal in one line; estimates come from earlier runs."""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY
from fixtures.progress import EVERY_S, SuiteProgress
from fixtures.request import RunRequest, parse
from fixtures.run.history import KEPT, START_S, History, in_words
from fixtures.run.plan import Collected, plan_of
from fixtures.run.plan_text import plan_lines
from fixtures.run.progress import SIGN_S, Live, TimeLeft


class Clock:
    """A clock that the test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fixtures.progress"]


def test_a_long_suite_logs_prompts_done_and_tok_s_so_far(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fixtures.progress")
    clock = Clock()
    progress = SuiteProgress("candidate#1: canary-parity", clock)
    for done in range(1, 31):
        clock.now_s += EVERY_S / 4
        progress(done, 30, done * 50)
    said = logged(caplog)
    assert said[0] == "candidate#1: canary-parity: 4 of 30 prompts, 40 tok/s so far"
    assert len(said) == 30 // 4, "one line every five seconds, not one a prompt"


def test_ids_that_are_not_counted_yet_are_no_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fixtures.progress")
    clock = Clock()
    progress = SuiteProgress("arm: suite", clock)
    clock.now_s += EVERY_S
    progress(7, 64, None)
    assert logged(caplog) == ["arm: suite: 7 of 64 prompts"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the live line."""
    made = Clock()
    monkeypatch.setattr("fixtures.run.progress.time.monotonic", made)
    return made


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("fixtures.arms.servers", logging.INFO, __file__, 1, text, None, None)


def test_on_a_terminal_there_is_one_line_that_is_cleared_before_pytest_writes(clock: Clock) -> None:
    written: list[str] = []
    live = Live(written.append, lambda: 0, is_terminal=True)
    live.wait_for("quality", "test_parity")
    live.emit(record("candidate#1: loading weights"))
    clock.now_s += 12
    live.draw()
    live.draw()
    live.clear()
    assert written == [
        "  [quality] candidate#1: loading weights (12 s)",
        "\r\x1b[2K  [quality] candidate#1: loading weights (12 s)",
        "\r\x1b[2K",
    ]


def test_without_a_terminal_each_step_is_a_line_and_silence_is_broken(clock: Clock) -> None:
    written: list[str] = []
    live = Live(written.append, lambda: 7, is_terminal=False)
    live.wait_for("endpoint", "test_smoke")
    live.emit(record("target#1: starting on cpu:0"))
    for _ in range(25):
        clock.now_s += 1
        live.draw()
    assert written[0] == "\n  target#1: starting on cpu:0\n", "pytest's own line is ended first, once"
    assert written[1:] == [
        f"  [endpoint] target#1: starting on cpu:0 ({seconds:.0f} s)\n" for seconds in (SIGN_S, 2 * SIGN_S)
    ]
    assert not any("\x1b" in text for text in written)


def asked() -> RunRequest:
    return parse(argparse.Namespace(stack=None, device=[]))


def test_what_is_left_shrinks_with_every_part_and_is_kept_for_the_next_run(tmp_path: Path) -> None:
    plan = plan_of(asked(), Collected(frozenset({"quality"})))
    left = TimeLeft(History(), plan, Counter(quality=4))
    before = left.seconds
    step = plan.steps[0]
    left.took(step, None, 40.0)
    assert left.seconds < before - 3 * (START_S - 40.0), "every later start is expected to take as long"
    left.took(step, step.sends[0], 20.0)
    left.ended("quality", 61.0)
    again = TimeLeft(left.history, plan, Counter(quality=4))
    assert again.seconds < before
    left.history.save(tmp_path / "history.json")
    assert History.load(tmp_path / "history.json").start_s(step) == 40.0


def test_the_estimate_is_the_median_of_the_last_runs() -> None:
    history = History()
    for seconds in (500.0, 9.0, 10.0, 30.0, 11.0, 12.0):
        history.add("start x", seconds)
    assert len(history.seconds["start x"]) == KEPT
    assert history.estimate("start x", 60.0) == 11.0
    assert history.estimate("start y", 60.0) == 60.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"start x": "soon"}'])
def test_a_damaged_file_of_times_is_no_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(text)
    assert History.load(tmp_path / "history.json").seconds == {}


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.0, "0 s"), (44.0, "40 s"), (100.0, "2 min"), (601.0, "10 min")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_a_printed_plan_names_every_start_and_suite_and_where_its_times_are_from() -> None:
    request = asked()
    found = Collected(frozenset({"quality", "perf"}), tests=Counter(quality=6, perf=2))
    plan, history = plan_of(request, found), History()
    lines = list(plan_lines(request, found, plan, history))
    assert lines[0] == "plan: lane canary-cpu, stack stock"
    assert sum(". start " in line for line in lines) == 4
    assert sum(" ask " in line for line in lines) == sum(len(step.sends) for step in plan.steps)
    assert lines[-1].startswith("times: 0 of ")
    for step in plan.steps:
        TimeLeft(history, plan).took(step, None, 30.0)
    assert not list(plan_lines(request, found, plan, history))[-1].startswith("times: 0 of ")


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_the_summary_names_verdict_time_packet_and_report_without_colours(
    workers: list[str], tmp_path: Path
) -> None:
    """Not a terminal: no escape sequence; and with workers the same lines, once."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/patches"]
    command += ["--evidence", str(tmp_path / "packet"), *workers]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert "\x1b[" not in done.stdout
    for line in (
        r"^verdict: (accepted|pending): \w",
        r"^time: \d+ s \(patches \d+ s\)$",
        rf"^packet: {tmp_path / 'packet'} \(\w+\)$",
        rf"^report: {tmp_path / 'packet' / 'report.html'}$",
    ):
        assert len(re.findall(line, done.stdout, re.M)) == 1, (line, done.stdout + done.stderr)
