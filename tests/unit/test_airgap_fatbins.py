"""Erasing machine code: what is kept is kept byte for byte, what goes is zero, and a broken container is an error."""

from __future__ import annotations

import struct

import pytest

from tools.airgap.fatbins import MACHINE_CODE, PTX, entries, erase_all_but


def entry(kind: int, architecture: int, payload: bytes) -> bytes:
    head = struct.pack("<HHIQ", kind, 1, 64, len(payload))
    return head.ljust(28, b"\0") + struct.pack("<I", architecture) + bytes(32) + payload


def fat_binary(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


OBJECT = (
    b"\x7fELF data in front"
    + fat_binary(
        entry(MACHINE_CODE, 80, b"eighty80"),
        entry(MACHINE_CODE, 90, b"hopper!!"),
        entry(PTX, 90, b"ptxtext."),
    )
    + b"between"
    + fat_binary(entry(MACHINE_CODE, 90, b"more hopper code"))
    + b"behind"
)


def test_entries_are_found_in_every_container() -> None:
    found = [(e.kind, e.architecture, OBJECT[e.start : e.end]) for e in entries(OBJECT)]
    assert found == [
        (MACHINE_CODE, 80, b"eighty80"),
        (MACHINE_CODE, 90, b"hopper!!"),
        (PTX, 90, b"ptxtext."),
        (MACHINE_CODE, 90, b"more hopper code"),
    ]


def test_only_the_named_architectures_machine_code_is_left() -> None:
    image = bytearray(OBJECT)
    assert erase_all_but(image, [90]) == {"sm_80": 8, "ptx": 8}
    assert bytes(image) == OBJECT.replace(b"eighty80", bytes(8)).replace(b"ptxtext.", bytes(8))


def test_an_object_without_code_for_the_host_is_refused_unless_it_may_be_a_shell() -> None:
    with pytest.raises(ValueError, match=r"no machine code for \[100\]; there is: ptx, sm_80, sm_90"):
        erase_all_but(bytearray(OBJECT), [100])
    image = bytearray(OBJECT)
    assert erase_all_but(image, [100], may_be_shell=True) == {"sm_80": 8, "sm_90": 24, "ptx": 8}
    assert len(image) == len(OBJECT)


def test_an_object_without_fat_binaries_is_left_alone() -> None:
    image = bytearray(b"nothing here, not even " + struct.pack("<I", 0xBA55ED50))
    before = bytes(image)
    assert erase_all_but(image, [90]) == {}
    assert bytes(image) == before


def test_an_entry_that_does_not_fit_is_an_error_not_a_guess() -> None:
    broken = bytearray(OBJECT)
    at = OBJECT.index(b"hopper!!") - 64
    struct.pack_into("<Q", broken, at + 8, 10_000)
    with pytest.raises(ValueError, match="does not fit into its container"):
        erase_all_but(broken, [90])
