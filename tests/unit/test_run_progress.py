"""Long steps say how far they are, to people and not to logs; the summary says what a person asks first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY
from fixtures.run.plugin import Speaker
from fixtures.run.progress import EVERY_S, Pace


class Clock:
    """A clock that the test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_long_suite_says_prompts_done_and_tok_s_so_far() -> None:
    said: list[str] = []
    clock = Clock()
    pace = Pace("candidate#1: canary-parity", said.append, clock)
    for done in range(1, 31):
        clock.now_s += EVERY_S / 4
        pace(done, 30, done * 50)
    assert said[0] == "candidate#1: canary-parity: 4 of 30 prompts, 40 tok/s so far"
    assert len(said) == 30 // 4, "one line every five seconds, not one a prompt"


def test_ids_that_are_not_counted_yet_are_no_rate() -> None:
    said: list[str] = []
    clock = Clock()
    pace = Pace("arm: suite", said.append, clock)
    clock.now_s += EVERY_S
    pace(7, 64, None)
    assert said == ["arm: suite: 7 of 64 prompts"]


@pytest.mark.parametrize(
    ("options", "environment", "speaks"),
    [([], {}, True), (["-q"], {}, False), ([], {"CI": "true"}, False), (["-q"], {"CI": "true"}, False)],
)
def test_progress_is_quiet_under_ci_and_with_q(
    options: list[str],
    environment: dict[str, str],
    speaks: bool,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pytestconfig.option, "verbose", -1 if "-q" in options else 0)
    monkeypatch.delattr(pytestconfig, "workerinput", raising=False)
    lines: list[str] = []
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    if (
        terminal is None
    ):  # an xdist worker has no terminal: a speaker that speaks would find nobody to write to
        terminal = type("Terminal", (), {"ensure_newline": lambda self: None})()
        monkeypatch.setattr(pytestconfig.pluginmanager, "getplugin", {"terminalreporter": terminal}.get)
    monkeypatch.setattr(terminal, "write_line", lines.append, raising=False)
    Speaker(pytestconfig)("candidate#1: starting on cpu:0")
    assert lines == (["  candidate#1: starting on cpu:0"] if speaks else [])


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
