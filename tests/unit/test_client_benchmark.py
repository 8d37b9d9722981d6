"""The benchmark compares clients that all read the whole stream; what they cost is printed, never
asserted."""

from __future__ import annotations

import json

import pytest

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
