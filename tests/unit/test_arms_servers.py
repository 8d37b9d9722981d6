"""Run folders of the living and the killed, servers that die, and what comes after."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.arms import servers
from fixtures.arms.account import account_of_end
from fixtures.arms.arm import make_arm
from fixtures.engine.health import DeviceUnwell
from fixtures.engine.remains import survivors
from fixtures.engine.starting import StartFailed
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import load_lane
from fixtures.run import folder
from tests.unit.standin.launching import slots, start

pytest_plugins = "pytester"

HOLDER = """
import sys
from pathlib import Path
from fixtures.run import folder
folder.RUNS = Path(sys.argv[1])
print(folder.run_folder(), flush=True)
sys.stdin.read()
"""


def test_the_folder_of_a_killed_run_is_swept_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    theirs = Path(holder.stdout.readline().strip())
    monkeypatch.setattr(folder, "RUNS", tmp_path)
    first = folder.run_folder()
    assert theirs.is_dir(), "its process lives"
    holder.kill()
    holder.communicate()
    second = folder.run_folder()
    assert not theirs.exists(), "its process was killed"
    assert first.is_dir()
    assert second.is_dir()


def make_arms(folder: Path) -> tuple[servers.Arms, RowList]:
    """Arms that start nothing by themselves, and the rows that they write."""
    rows = RowList()
    return servers.Arms(slots(1), folder, rows, lambda secret: None), rows


def findings(rows: RowList, check: str, outcome: str) -> list[str]:
    """Messages of the findings of a check that came to an outcome."""
    return [
        str(f["message"])
        for f in rows.rows.get("finding", ())
        if (f["check"], f["outcome"]) == (check, outcome)
    ]


@pytest.mark.parametrize(
    ("left", "slow", "faults", "expected"),
    [
        (["process 1 is alive after SIGKILL"], ["process 1 was late"], [], [("server.teardown", "rejected")]),
        ([], ["process 1 outlived its grace of 10 s"], [], [("server.teardown", "accepted")]),
        ([], [], ["xe 0000:03:00.0: Engine reset"], [("device.health", "inconclusive")]),
        ([], [], [], []),
    ],
    ids=["left-behind", "slow", "device-fault", "in-peace"],
)
def test_what_is_left_behind_is_a_fault_and_what_was_slow_is_none(
    left: list[str], slow: list[str], faults: list[str], expected: list[tuple[str, str]]
) -> None:
    """A busy machine ends processes late: that says nothing about the server."""
    found = account_of_end("candidate#1", left, slow, faults)
    assert [(f.check, f.outcome) for f in found] == expected


def test_a_server_that_died_is_told_once_and_the_next_start_probes_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arm after a crash must not be blamed for a device that the crash took down."""
    monkeypatch.setattr("fixtures.engine.starting.GRACE_S", 0.3)
    running, rows = make_arms(tmp_path)
    arm = make_arm(load_lane("canary-cpu"), "target")
    lease = slots(1).acquire(timeout_s=0, folder=tmp_path)
    server = start(lease, tmp_path / "server")
    running._running[arm.spec.digest] = server
    running._leased[arm.spec.digest] = (arm.label, 0, 0)
    assert running.reap() == [], "it lives"
    for process in survivors(server.instance):
        process.kill()  # the supervisor among them: nobody has waited for the others when `stop` looks
    server.wait_for_end(20)
    (crash,) = running.reap()
    assert (crash.label, crash.failure.cause) == ("target#1", "killed")
    assert "Application startup complete" in crash.log
    assert running.reap() == [], "told once"
    assert findings(rows, "server.teardown", "rejected") == [], "who was killed may be slow to end"
    assert not survivors(server.instance)
    with pytest.raises(StartFailed, match="killed"):
        running.server(arm)  # the arm is not started again behind the user's back

    lease = slots(1).acquire(timeout_s=0, folder=tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho DEVICE_LOST >&2; exit 1\n")
    python.chmod(0o755)
    ill = dataclasses.replace(arm, spec=dataclasses.replace(arm.spec, python=str(python)))
    with pytest.raises(DeviceUnwell, match=r"cuda:0: exit code 1: DEVICE_LOST"):
        running._check_health(ill, lease, rows)
    assert lease.fds == [], "the slot is free again"
    assert len(findings(rows, "device.health", "inconclusive")) == 1
    python.write_text("#!/bin/sh\necho well\n")
    running._check_health(ill, lease, rows)
    python.write_text("#!/bin/sh\nexit 1\n")
    running._check_health(ill, lease, rows)  # probed once a crash, not before every start


HOOKED = """
import pytest
from fixtures.engine.starting import StartFailed
from fixtures.engine.startup import StartFailure
from fixtures.arms.account import Crash
from fixtures.judge.rows import RowList
from fixtures.run.plugin import pytest_runtest_makereport as held

FAILURE = StartFailure("device lost", "gone", ("a line",))

class Arms:
    def __init__(self):
        self.crashes = []
        self.evidence = RowList()
    def reap(self, *, waiting=False):
        told, self.crashes = self.crashes, []
        return told
    def logs(self):
        return []

@pytest.fixture
def arms():
    return Arms()

@pytest.fixture
def crash(arms):
    return lambda: arms.crashes.append(Crash("candidate#1", FAILURE, "log"))

pytest_runtest_makereport = held

def pytest_runtest_logreport(report):
    if report.when == "call":
        print("CALL", report.outcome, dict(report.user_properties).get("draftproof_outcome"))

@pytest.fixture(autouse=True)
def said(arms):
    yield
    print("DIED", [(r["check"], r["outcome"], r["message"]) for r in arms.evidence.rows.get("finding", ())])
"""


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("pass", "CALL passed None"),
        ("assert 0", "CALL failed None"),
        ("crash()", "CALL failed inconclusive"),
        ("crash(); assert 0", "CALL failed inconclusive"),
        ("raise StartFailed(FAILURE, 'log')", "CALL failed inconclusive"),
    ],
    ids=["passes", "fails", "dies-and-passes", "dies-and-fails", "does-not-start"],
)
def test_a_server_that_dies_in_a_test_makes_it_inconclusive(
    pytester: pytest.Pytester, body: str, call: str
) -> None:
    """Never passed, and never plainly failed."""
    pytester.makeconftest(HOOKED)
    pytester.makepyfile(f"from conftest import FAILURE, StartFailed\ndef test_it(arms, crash):\n    {body}\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-s")
    result.stdout.fnmatch_lines([f"*{call}"])
    if "crash()" in body:
        why = "candidate#1 died while it was asked: device lost: gone: a line"
        result.stdout.fnmatch_lines([f"*DIED *'server.died', 'inconclusive', '{why}'*"])
