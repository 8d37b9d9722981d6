"""The benchmark compares clients that all read the whole stream; what they cost is printed, never
asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import receive
from benchmarks.client import SERVE, main
from benchmarks.contenders import CONTENDERS
from tests.unit.golden.script import script, stream, usage
from tests.unit.golden.server import GoldenServer


@pytest.mark.parametrize("name", [n for n in CONTENDERS if n != SERVE])
def test_every_contender_reads_every_event(name):
    with GoldenServer(script(stream([" word"] * 300, role_wait_s=0.0, usage=usage(3, 300)))) as server:
        outcome = CONTENDERS[name]()(server.base_url, 300)
    assert outcome.events == 300
    assert outcome.cpu_s > 0


def test_a_run_prints_its_machine_and_writes_every_round(tmp_path, capsys):
    only = ["draftproof", "bare socket read"]
    made = tmp_path / "b.json"
    options = ["--events", "300", "--rounds", "2", "--per-second", "3000", "--out", str(made)]
    status = main([*options, "--only", *only])
    printed = capsys.readouterr().out
    written = json.loads(made.read_text())
    assert status == 0
    assert written["machine"] in printed.replace("\n", "")
    assert [m["client"] for m in written["free"]] == [*only, *reversed(only)]
    assert [m["client"] for m in written["paced"]] == only
    for row in written["paced"]:
        assert len(row["delays_s"]) == 300
        assert min(row["delays_s"]) >= 0, "an id was received before the server sent it"


def test_receive_times_are_compared_with_the_servers_own_clock(tmp_path, capsys):
    made = tmp_path / "r.json"
    options = ["--answers", "1", "--ids", "100", "--per-second", "500", "--busy", "0"]
    status = receive.main([*options, "--out", str(made)])
    printed = capsys.readouterr().out
    written = json.loads(made.read_text())
    assert status == 0
    assert written["machine"] in printed.replace("\n", "")
    assert [(s["client"], s["thread"]) for s in written["seen"]] == [
        (client, thread) for thread in (False, True) for client in ("socket read", "kernel stamps", "reader")
    ]
    for seen in written["seen"]:
        assert len(seen["late_ns"]) == 100
        assert min(seen["late_ns"]) >= 0, "an id was received before the server sent it"
