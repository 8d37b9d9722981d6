"""A packet survives crashes and workers, refuses a second run, and shows where it was tampered with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judge_rows import packet_rows

from fixtures.evidence.files import canonical, file_sha256, link
from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.reading import InvalidEvidence, read_packet
from fixtures.judge.finding import Outcome
from fixtures.parsing import BadInput


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed packet of a sound run, made once: its report takes half a second."""
    directory = tmp_path_factory.mktemp("sealed") / "packet"
    writer = PacketWriter.create(directory)
    for kind, rows in packet_rows().items():
        for row in rows:
            writer.append(kind, row)
    writer.set_identity({"lane": "canary-cpu", "stack": "stock"})
    writer.add_log("server.log", "ready")
    assert writer.finish().outcome is Outcome.ACCEPTED
    return directory


@pytest.fixture
def packet(sealed: Path, tmp_path: Path) -> Path:
    """A copy of the sealed packet, to be attacked."""
    return shutil.copytree(sealed, tmp_path / "packet")


def problems(directory: Path) -> tuple[str, ...]:
    with pytest.raises(InvalidEvidence) as error:
        read_packet(directory)
    return error.value.problems


def reseal(directory: Path) -> None:
    """Rewrite SHA256SUMS, as somebody would who tampers with more than one file."""
    files = sorted(p for p in directory.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    sums = "".join(f"{file_sha256(p)}  {p.relative_to(directory)}\n" for p in files)
    (directory / "SHA256SUMS").write_text(sums)


def edit_line(path: Path, number: int, change: Any) -> None:
    lines = path.read_text().splitlines()
    changed = change(json.loads(lines[number - 1]))
    lines[number - 1 : number] = [] if changed is None else [canonical(changed)]
    path.write_text("\n".join(lines) + "\n")


def test_a_sealed_packet_reads_back_as_it_was_written(packet: Path) -> None:
    read = read_packet(packet)
    assert read.finished
    assert {k: len(v) for k, v in read.rows.items()} == {k: len(v) for k, v in packet_rows().items()}
    assert read.identity == {"lane": "canary-cpu", "stack": "stock"}
    assert read.stored_verdict["outcome"] == "accepted"


def test_sums_are_in_the_format_of_sha256sum(packet: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=packet, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_second_run_into_the_same_folder_is_refused(packet: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not empty"):
        PacketWriter.create(packet)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"not empty \(notes.txt\)"):
        PacketWriter.create(tmp_path / "other")


def test_a_worker_of_another_run_cannot_join(tmp_path: Path) -> None:
    PacketWriter.create(tmp_path / "packet", run_id="one")
    with pytest.raises(BadInput, match="belongs to run one, not to two"):
        PacketWriter.join(tmp_path / "packet", "two", "gw0")
    with pytest.raises(BadInput, match="not an evidence packet"):
        PacketWriter.join(tmp_path / "elsewhere", "one", "gw0")


def test_two_writers_with_one_worker_name_cannot_mix_their_rows(tmp_path: Path) -> None:
    PacketWriter.create(tmp_path / "packet", run_id="one")
    first = PacketWriter.join(tmp_path / "packet", "one", "gw0")
    second = PacketWriter.join(tmp_path / "packet", "one", "gw0")
    first.append("test", {"n": 1})
    with pytest.raises(FileExistsError):
        second.append("test", {"n": 2})


def test_rows_of_several_workers_are_merged_worker_by_worker(tmp_path: Path) -> None:
    main = PacketWriter.create(tmp_path / "packet", run_id="one")
    workers = [PacketWriter.join(tmp_path / "packet", "one", f"gw{n}") for n in (10, 2)]
    for n in range(3):
        for worker in workers:
            worker.append("note", {"worker": worker.worker, "n": n})
    for worker in workers:
        worker.close()
    main.finish()
    rows = read_packet(tmp_path / "packet").rows["note"]
    assert [(r["worker"], r["n"]) for r in rows] == [(w, n) for w in ("gw2", "gw10") for n in range(3)]
    assert [p.name for p in (tmp_path / "packet" / "rows").iterdir()] == ["note.jsonl"]


def test_rows_survive_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from fixtures.evidence.packet import PacketWriter\n"
        f"w = PacketWriter.create(Path({str(tmp_path / 'packet')!r}), run_id='one')\n"
        "for n in range(5): w.append('note', {'n': n})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == -9
    read = read_packet(tmp_path / "packet")
    assert not read.finished
    assert [r["n"] for r in read.rows["note"]] == list(range(5))


def test_a_row_that_was_cut_off_makes_the_run_inconclusive(tmp_path: Path) -> None:
    main = PacketWriter.create(tmp_path / "packet", run_id="one")
    for row in packet_rows()["contract"]:
        main.append("contract", row)
    dead = PacketWriter.join(tmp_path / "packet", "one", "gw0")
    dead.append("note", {"n": 0})
    dead.close()
    with (tmp_path / "packet" / "rows" / "note.gw0.jsonl").open("a") as file:
        file.write('{"worker":"gw0","seq":1,"ro')
    assert main.finish().outcome is Outcome.INCONCLUSIVE
    read = read_packet(tmp_path / "packet")
    assert (read.rows["note"], read.torn) == ([{"n": 0}], ("rows/note.gw0.jsonl:2",))


def test_finishing_twice_gives_the_same_verdict_and_later_rows_are_refused(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    assert writer.finish() is writer.finish()
    with pytest.raises(ValueError, match="finished"):
        writer.append("note", {})


def one_digit(line: dict[str, Any]) -> dict[str, Any]:
    line["row"]["receipt_ns"][50] += 1
    return line


def test_one_digit_of_one_time_is_placed_at_its_line(packet: Path) -> None:
    edit_line(packet / "rows" / "transcript.jsonl", 24, one_digit)
    found = problems(packet)
    assert any(p.startswith("rows/transcript.jsonl: does not match its SHA-256") for p in found)
    assert any(p.startswith("rows/transcript.jsonl:24: the row does not match its link") for p in found)


def test_one_digit_is_found_even_when_the_sums_are_rewritten(packet: Path) -> None:
    edit_line(packet / "rows" / "transcript.jsonl", 24, one_digit)
    reseal(packet)
    assert problems(packet)[0].startswith("rows/transcript.jsonl:24: the row does not match its link")


def test_a_removed_row_is_placed(packet: Path) -> None:
    edit_line(packet / "rows" / "transcript.jsonl", 7, lambda line: None)
    reseal(packet)
    assert problems(packet)[0].startswith(
        "rows/transcript.jsonl:7: row 7 of worker main where row 6 was expected"
    )


def test_rows_removed_from_the_end_are_missed_by_the_manifest(packet: Path) -> None:
    last = len((packet / "rows" / "transcript.jsonl").read_text().splitlines())
    edit_line(packet / "rows" / "transcript.jsonl", last, lambda line: None)
    reseal(packet)
    assert problems(packet) == (
        f"rows/transcript.jsonl: {last - 1} good rows of worker main, the manifest says {last}",
    )


def test_an_added_row_is_placed(packet: Path) -> None:
    path = packet / "rows" / "contract.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    line["seq"], line["link"] = 1, link(line["link"], line["row"])
    path.write_text(path.read_text() + canonical(line) + "\n")
    reseal(packet)
    assert problems(packet) == ("rows/contract.jsonl: 2 good rows of worker main, the manifest says 1",)


@pytest.mark.parametrize("where", ["envelope", "row"])
def test_an_added_passed_is_placed(packet: Path, where: str) -> None:
    def flatter(line: dict[str, Any]) -> dict[str, Any]:
        (line if where == "envelope" else line["row"])["passed"] = True
        return line

    edit_line(packet / "rows" / "contract.jsonl", 1, flatter)
    reseal(packet)
    assert problems(packet)[0].startswith("rows/contract.jsonl:1:")


@pytest.mark.parametrize("name", ["identity.json", "verdict.json", "findings.jsonl", "logs/server.log"])
def test_a_changed_file_is_named(packet: Path, name: str) -> None:
    (packet / name).write_text((packet / name).read_text() + " ")
    assert problems(packet)[0] == f"{name}: does not match its SHA-256: changed after the packet was sealed"


def test_added_missing_and_linked_files_are_named(packet: Path, tmp_path: Path) -> None:
    (packet / "logs" / "late.log").write_text("x")
    (packet / "identity.json").unlink()
    outside = tmp_path / "outside.log"
    outside.write_text("ready")
    (packet / "logs" / "server.log").unlink()
    (packet / "logs" / "server.log").symlink_to(outside)
    found = problems(packet)
    assert "logs/late.log: not listed in SHA256SUMS: added" in found
    assert "identity.json: listed in SHA256SUMS, but missing" in found
    assert "logs/server.log: a link, not a file" in found


def test_a_folder_that_is_no_packet_is_refused(tmp_path: Path) -> None:
    assert "not an evidence packet" in problems(tmp_path)[0]


def test_secrets_stay_out_of_every_file(tmp_path: Path) -> None:
    secret = "s3cr3t-value-of-this-run"
    writer = PacketWriter.create(tmp_path / "packet", secrets=[secret])
    writer.keep_secret("another-secret")
    writer.set_identity(
        {
            "environment": {"HF_TOKEN": "hf_abcdef", "VLLM_API_KEY": secret, "VLLM_CPU_KVCACHE_SPACE": "1"},
            "command": ["server", "--api-key", "k-123456", "--port", "1", f"--header=x:{secret}"],
        }
    )
    writer.append("arm", {"arm": "a", "note": f"started with another-secret and {secret}"})
    writer.add_log(
        "server.log", f"Authorization: Bearer abcdefghij\nOPENAI_API_KEY=sk-1234567 {secret}\nready"
    )
    writer.finish()
    text = "".join(p.read_text() for p in (tmp_path / "packet").rglob("*") if p.is_file())
    for gone in (secret, "another-secret", "hf_abcdef", "k-123456", "abcdefghij", "sk-1234567"):
        assert gone not in text
    assert '"VLLM_CPU_KVCACHE_SPACE": "1"' in text
    assert "ready" in text


def test_logs_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    assert [writer.add_log("a.log", str(n)).name for n in range(3)] == ["a.log", "a.log.1", "a.log.2"]
    with pytest.raises(ValueError, match="plain file name"):
        writer.add_log("../a.log", "x")


@pytest.mark.parametrize("kind", ["../x", "Test", "", "a b"])
def test_a_kind_is_a_plain_word(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match="kind: expected"):
        PacketWriter.create(tmp_path / "packet").append(kind, {})


def test_values_that_json_does_not_know_have_one_form_or_are_refused(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    writer.append("note", {"error": float("nan"), "path": Path("x"), "ids": (1, 2)})
    writer.finish()
    assert read_packet(tmp_path / "packet").rows["note"] == [{"error": "nan", "path": "x", "ids": [1, 2]}]
    with pytest.raises(TypeError, match="has no JSON form"):
        PacketWriter.create(tmp_path / "other").append("note", {"x": object()})


def test_rows_that_were_edited_while_the_run_went_on_are_never_sealed(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    writer.append("note", {"n": 1})
    path = tmp_path / "packet" / "rows" / "note.main.jsonl"
    path.write_text(path.read_text().replace('"n":1', '"n":2'))
    assert writer.finish().outcome is Outcome.INVALID
    assert problems(tmp_path / "packet")[0].startswith(
        "rows/note.main.jsonl:1: the row does not match its link"
    )


def test_logs_that_a_server_wrote_itself_are_redacted_before_sealing(tmp_path: Path) -> None:
    writer = PacketWriter.create(tmp_path / "packet")
    (writer.logs / "candidate").mkdir()
    log = writer.logs / "candidate" / "server.log"
    log.write_text("non-default args: {'api_key': ['k-42'], 'port': 0}\n")
    (writer.logs / "trace.bin").write_bytes(b"\xff\x00data")
    writer.finish()
    assert "k-42" not in log.read_text()
    assert read_packet(tmp_path / "packet").finished


@pytest.fixture(scope="module")
def small_packet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sealed packet, for many small attacks."""
    writer = PacketWriter.create(tmp_path_factory.mktemp("evidence") / "packet")
    for row in packet_rows()["contract"]:
        writer.append("contract", row)
    writer.set_identity({"lane": "canary-cpu"})
    writer.add_log("server.log", "ready")
    writer.finish()
    return writer.directory


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_changed_byte_anywhere_is_found(small_packet: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(p for p in small_packet.rglob("*") if p.is_file())))
    before = path.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != before[at]))
    path.write_bytes(before[:at] + bytes([byte]) + before[at + 1 :])
    try:
        assert problems(small_packet)
    finally:
        path.write_bytes(before)
    assert read_packet(small_packet).finished


def test_a_row_with_a_number_that_json_does_not_know_is_refused(packet: Path) -> None:
    path = packet / "rows" / "contract.jsonl"
    path.write_text(path.read_text().replace('"max_abs_error":0.0', '"max_abs_error":NaN'))
    reseal(packet)
    assert problems(packet)[0] == "rows/contract.jsonl:1: not JSON"


def test_a_packet_is_concluded_and_sealed_without_a_page(tmp_path: Path) -> None:
    """What is written between is sealed with it: a page, whoever draws it."""
    writer = PacketWriter.create(tmp_path / "packet")
    writer.set_identity({"lane": "canary-cpu"})
    for kind, rows in packet_rows().items():
        for row in rows:
            writer.append(kind, row)
    with pytest.raises(ValueError, match="after it was concluded"):
        writer.seal()
    assert writer.conclude().outcome is Outcome.ACCEPTED
    assert not (tmp_path / "packet" / "SHA256SUMS").exists()
    assert not list((tmp_path / "packet").glob("report.*"))
    (tmp_path / "packet" / "report.html").write_text("a page")
    writer.seal()
    assert read_packet(tmp_path / "packet").finished
    (tmp_path / "packet" / "report.html").write_text("another page")
    (problem,) = problems(tmp_path / "packet")
    assert problem.startswith("report.html: does not match its SHA-256")


def test_servers_that_nobody_describes_accept_nothing(tmp_path: Path) -> None:
    """Without an identity two results cannot be told apart; contracts of a subject say it in their rows."""
    for name, kinds, outcome in (
        ("served", ("arm", "transcript", "counters", "suite", "lane"), Outcome.PENDING),
        ("contracts", ("contract",), Outcome.ACCEPTED),
    ):
        writer = PacketWriter.create(tmp_path / name)
        for kind in kinds:
            for row in packet_rows()[kind]:
                writer.append(kind, row)
        verdict = writer.finish()
        assert verdict.outcome is outcome, [f.message for f in verdict.deciding]
        assert ("evidence.identity" in {f.check for f in verdict.findings}) == (outcome is Outcome.PENDING)
