"""A suite is sent to an arm once, whether the lane names it or gives its path, also in the lab's format."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judge_rows import transcript

from fixtures.arms.arm import Arm, make_arm
from fixtures.client.metrics import Counters
from fixtures.judge.rows import Purpose, RowList
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput
from fixtures.prompts.suite import load_suite
from fixtures.workload import recordings as module
from fixtures.workload.caller import Caller
from fixtures.workload.recordings import Recordings

LANE = load_lane("canary-cpu")
ARM = make_arm(LANE, "target")


class Server:
    """Stands in for the arms of a run: one server, and the prompts that it was sent."""

    external = True
    """No gauges are read of a server that is not ours."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[str] = []
        self.folder = folder

    def server(self, arm: Arm) -> SimpleNamespace:
        return SimpleNamespace(endpoint=None, ledger=None, folder=self.folder)

    def answer(self, endpoint: object, suite: Any, *, arm: str, **_: Any) -> tuple[Any, ...]:
        self.sent += [p.id for p in suite.prompts]
        return tuple(transcript(p.id, arm, suite=suite.name) for p in suite.prompts)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(tmp_path)
    monkeypatch.setattr(module, "run_suite", made.answer)
    monkeypatch.setattr(module, "read_counters", lambda endpoint: Counters())
    return made


def lab_suite(path: Path, *prompts: str, name: str = "lab-suite") -> str:
    """A suite file in the lab's own format."""
    data = {"suite_id": name, "version": 2, "prompts": [{"id": p, "prompt": f"Say {p}."} for p in prompts]}
    path.write_text(json.dumps(data))
    return str(path)


def test_a_suite_by_path_in_the_labs_format_is_sent_once_and_kept_by_its_own_name(
    server: Server, tmp_path: Path
) -> None:
    path, rows = lab_suite(tmp_path / "b70.json", "a", "b"), RowList()
    recordings = Recordings(server, rows)  # type: ignore[arg-type]
    said = recordings.of(ARM, path, Purpose.PARITY)
    assert [t.prompt_id for t in said] == ["a", "b"]
    assert recordings.of(ARM, path, Purpose.PARITY) == said
    assert recordings.of(ARM, "lab-suite", Purpose.PARITY) == said
    assert server.sent == ["a", "b"]
    assert [row["suite"] for row in rows.rows["suite"]] == ["lab-suite"]


def test_two_suites_of_one_name_are_refused(server: Server, tmp_path: Path) -> None:
    """Their answers could not be told apart in the packet."""
    recordings = Recordings(server, RowList())  # type: ignore[arg-type]
    recordings.of(ARM, lab_suite(tmp_path / "one.json", "a"), Purpose.PARITY)
    with pytest.raises(BadInput, match="two suites are called lab-suite"):
        recordings.of(ARM, lab_suite(tmp_path / "two.json", "b"), Purpose.PARITY)


def test_what_needs_recorded_answers_is_not_offered_where_a_suite_has_none(tmp_path: Path) -> None:
    suites = LANE.suites.model_copy(update={"canaries": lab_suite(tmp_path / "own.json", "a")})
    lane = LANE.model_copy(update={"suites": suites})
    caller = Caller(None, make_arm(lane, "target"))  # type: ignore[arg-type]
    with pytest.raises(pytest.skip.Exception, match=r"^not offered: own\.json.* 'copy' .*recorded answer"):
        caller.canary("copy")
    assert Caller(None, ARM).canary("copy").answer_ids  # type: ignore[arg-type]


def test_a_relative_path_is_looked_up_in_the_checkout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_suite("fixtures/prompts/canary-parity.json") == load_suite("canary-parity")
