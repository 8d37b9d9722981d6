"""A packet with a broken part: every command ends in a sentence."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from judge_rows import packet_rows

from fixtures.evidence.__main__ import main
from fixtures.evidence.packet import PacketWriter


def rewritten(packet: Path, name: str, content: bytes) -> None:
    """Change a file of a packet, and its checksum with it."""
    (packet / name).write_bytes(content)
    files = sorted(p for p in packet.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(packet)}\n" for p in files]
    (packet / "SHA256SUMS").write_text("".join(sums))


BROKEN_PARTS = {
    "packet.json": (b"[1]", b"\xff\xfe\x00", b"[" * 50_000),
    "manifest.json": (b"\xff", b'{"rows": {"a": 3}, "torn": 5}', b"[]"),
    "identity.json": (b'{"lane": NaN}', b"3"),
    "verdict.json": (b"[]", b'{"outcome": [], "headline_tok_s": {"a": 1}}'),
    "findings.jsonl": (b"[1]\n3\n", b"\x00"),
    "rows/arm.jsonl": (b"[" * 50_000 + b"\n", b"\xff\n", b"1e999\n"),
}


@pytest.mark.parametrize(("name", "content"), [(n, c) for n, cs in BROKEN_PARTS.items() for c in cs])
@pytest.mark.parametrize("command", ["verify", "report", "compare", "index", "attest", "promote", "publish"])
def test_a_packet_with_a_broken_part_ends_in_a_sentence(
    tmp_path: Path, sealed_packet: Path, name: str, content: bytes, command: str
) -> None:
    packet = shutil.copytree(sealed_packet, tmp_path / "packet")
    rewritten(packet, name, content)
    words = [command, str(packet)]
    words += [str(sealed_packet)] if command == "compare" else []
    words += ["--output", str(tmp_path / "out")] if command != "verify" else []
    try:
        code = main(words)
    except SystemExit as misuse:  # a folder that is no packet at all
        code = 12 if misuse.code == 2 else 1
    assert code == 12 if command in ("verify", "attest", "promote", "publish") else code in (0, 12)


@pytest.fixture(scope="module")
def sealed_packet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sealed") / "packet"
    writer = PacketWriter.create(directory)
    for kind, rows in packet_rows().items():
        for row in rows:
            writer.append(kind, row)
    writer.finish()
    return directory
