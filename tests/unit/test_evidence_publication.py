"""The lab's publication contract: gates follow from packets, each is bound by hash, and what is missing is named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from test_evidence_attestation import IDENTITY, packet, rows

from fixtures.evidence.__main__ import main
from fixtures.evidence.publication import GATES, promote, publish
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import REPOSITORY
from fixtures.parsing import BadInput


def lab_refuses(path: Path) -> list[str]:
    """What the lab's own validator holds against an attestation: its rules, from its public documentation."""
    data = json.loads(path.read_text())

    def wrong(item: dict[str, Any]) -> bool:
        file = path.parent / item["path"]
        return not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != item["sha256"]

    faults = [
        n for n in ("model_revision", "runtime_revision", "optimization_identity") if not data["identity"][n]
    ]
    faults += ["performance"] if wrong(data["performance_evidence"]) else []
    faults += [item["path"] for item in data["quality_evidence"] if wrong(item) or not item["supports"]]
    supported = {gate for item in data["quality_evidence"] for gate in item["supports"]}
    names = [gate.name for gate in GATES]
    return faults + [n for n in names if data["gates"].get(n) is not True or n not in supported]


def test_a_sound_result_passes_the_labs_rules(tmp_path: Path) -> None:
    made = promote(packet(tmp_path / "speed"), [], tmp_path / "promotion.json")
    assert lab_refuses(tmp_path / "promotion.json") == []
    assert (made["decision"], made["missing"]) == ("promote", [])
    assert made["featured_metric"] == pytest.approx(100.0)


def test_the_performance_file_is_in_the_labs_format_and_every_number_in_it_follows(tmp_path: Path) -> None:
    promote(packet(tmp_path / "speed"), [], tmp_path / "promotion.json")
    report = verify(tmp_path / "promotion.performance.json")
    assert report.kind == "the lab's realistic suite"
    assert report.numbers["class_balanced_interval_median_tok_s"] == pytest.approx(100.0)
    assert {f.check for f in report.findings if f.outcome is not Outcome.ACCEPTED} == {
        "foreign.parity",
        "foreign.restarts",
    }


def without(kind: str, keep: Any) -> dict[str, Any]:
    found = rows()
    found[kind] = [row for row in found[kind] if keep(row)]
    return found


@pytest.mark.parametrize(
    ("found", "identity", "gates"),
    [
        (without("transcript", lambda r: r["purpose"] != "canary"), {}, {"varied_task_quality_passed"}),
        (rows(), {"stack": {"name": "some-patches", "digest": "d"}}, {"target_model_unchanged"}),
    ],
    ids=["no canaries", "a patched target"],
)
def test_a_gate_that_no_packet_shows_is_false_and_named(
    tmp_path: Path, found: dict[str, Any], identity: dict[str, Any], gates: set[str]
) -> None:
    directory = packet(tmp_path / "speed", found, IDENTITY | identity)
    made = promote(directory, [], tmp_path / "promotion.json")
    assert gates <= {item["gate"] for item in made["missing"]}
    assert gates <= set(lab_refuses(tmp_path / "promotion.json"))
    assert (made["decision"], made["featured_metric"]) == ("strict headline pending", None)
    assert main(["promote", str(directory), "--output", str(tmp_path / "promotion.json")]) == 11


def test_an_unpatched_target_beside_a_patched_candidate_is_unchanged(tmp_path: Path) -> None:
    found = rows()
    for row in found["arm"]:
        row["stack"] = "stock" if row["role"] == "target" else "some-patches"
    made = promote(
        packet(tmp_path / "speed", found, IDENTITY | {"stack": {"name": "some-patches", "digest": "d"}}),
        [],
        tmp_path / "promotion.json",
    )
    assert made["gates"]["target_model_unchanged"] is True


def test_quality_of_another_identity_is_refused(tmp_path: Path) -> None:
    other = packet(tmp_path / "other", identity=IDENTITY | {"stack": {"name": "else", "digest": "e"}})
    with pytest.raises(BadInput, match=r"identity\.stack"):
        promote(packet(tmp_path / "speed"), [other], tmp_path / "promotion.json")


def test_a_recipe_is_a_draft_that_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = packet(tmp_path / "speed", identity=IDENTITY | {"stack": {"name": "gdn-ragged-drafts"}})
    target = tmp_path / "publication-manifest.json"
    assert (
        main(["publish", str(directory), "--guide", str(REPOSITORY / "README.md"), "--output", str(target)])
        == 11
    )
    made = json.loads(target.read_text())
    assert (made["format"], made["publication_status"]) == ("neural.download.recipe-publication.v1", "draft")
    assert made["guide"] == "README.md"
    inputs = {item["path"]: item["sha256"] for item in made["repository"]["immutable_inputs"]}
    assert "fixtures/lanes/canary-cpu.toml" in inputs
    for path, digest in inputs.items():
        assert hashlib.sha256((REPOSITORY / path).read_bytes()).hexdigest() == digest, path
    assert any(path.endswith(".patch") for path in inputs)
    out = capsys.readouterr().out
    for field in (
        "release.assets",
        "binary_sections",
        "repository.build_scripts",
        "validation.clean_source_build",
    ):
        assert f"missing: {field}: " in out
    assert "missing: guide" not in out
    assert made["validation"]["quality_gate"] is True


def test_a_guide_outside_of_the_checkout_is_refused(tmp_path: Path) -> None:
    directory = packet(tmp_path / "speed")
    with pytest.raises(BadInput, match="is not in"):
        publish(directory, tmp_path / "m.json", tmp_path / "guide.md", [], REPOSITORY)
