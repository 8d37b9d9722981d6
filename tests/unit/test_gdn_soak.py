"""The soak itself: a sound subject raises no alarm, a faulty one does, and every pass has inputs of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.gdn import soak
from fixtures.gdn.soak import Pass, main, read_log, summary
from fixtures.parsing import BadInput

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "tests" / "contracts" / "test_row_to_prefix.py")


def run(*arguments):
    command = [sys.executable, "-m", "fixtures.gdn.soak", "--profile", "dev", *arguments, SMALL]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)


def test_a_sound_subject_raises_no_alarm_with_fresh_seeds(tmp_path):
    log = tmp_path / "soak.jsonl"
    done = run("--runs", "2", "--log", str(log))
    assert done.returncode == 0, done.stderr
    assert "2 runs, 26 contracts, 0 alarms" in done.stdout
    passes = read_log(log)
    assert len({p.seed for p in passes}) == 2
    assert [p.passed for p in passes] == [13, 13]


def test_a_fault_raises_alarms_that_name_their_seed():
    done = run("--runs", "1", "--subject", "torch!replacement-row-committed", "--seed", "7")
    assert done.returncode == 1
    assert "seed 7: tests/contracts/test_row_to_prefix.py::" in done.stdout


def test_a_run_that_checks_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(soak.pytest, "main", lambda *_, **__: pytest.ExitCode.NO_TESTS_COLLECTED)
    with pytest.raises(RuntimeError, match="seed 3: pytest ended with 5"):
        soak.run_once(3, subject="torch", profile="dev", files=[SMALL])


def test_a_log_is_added_up(tmp_path, capsys):
    log = tmp_path / "soak.jsonl"
    rows = [Pass(1, "deep", "torch", 10, 2, [], 4.0), Pass(2, "deep", "torch", 9, 2, ["t.py::x"], 6.0)]
    log.write_text("".join(json.dumps(vars(row)) + "\n" for row in rows))
    assert summary(read_log(log)) == "2 runs, 23 contracts, 1 alarms, 5.0 s a run\nseed 2: t.py::x"
    assert main(["--read", str(log)]) == 1
    assert "1 alarms" in capsys.readouterr().out


def test_a_torn_log_is_refused(tmp_path):
    log = tmp_path / "soak.jsonl"
    log.write_text('{"seed": 1')
    with pytest.raises(BadInput, match=r"soak\.jsonl:1: not a pass"):
        read_log(log)
