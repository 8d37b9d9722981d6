"""CUDA fat binaries inside a shared object: which machine code they hold, and erasing what a host cannot run.

A fat binary is a container (magic, version, header size, size of what follows) of entries: PTX or machine code (ELF)
for one architecture each. Erasing overwrites an entry's payload with zeros and leaves every header, offset and size as
it was, so that the object stays loadable, keeps its size, and compresses to what is left. An erased kernel fails at its
first launch with "no kernel image is available"; it does not compute something else.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_CONTAINER = struct.Struct("<IHHQ")
"""Magic, version, header size in bytes, bytes that follow the header."""
_ENTRY = struct.Struct("<HHIQ")
"""Kind, version, header size in bytes, payload size in bytes (padding included)."""
_MAGIC, _VERSION, _HEADER_BYTES = 0xBA55ED50, 1, 16
_ARCHITECTURE_OFFSET = 28
PTX, MACHINE_CODE = 1, 2


@dataclass(frozen=True)
class Entry:
    """One entry: `architecture` is 90 for sm_90 and sm_90a alike; `start` and `end` bound the payload, in bytes."""

    kind: int
    architecture: int
    start: int
    end: int


def entries(image: bytes | bytearray) -> Iterator[Entry]:
    """Every entry of every fat binary in a object's bytes; what only looks like a magic number is passed over."""
    magic = struct.pack("<I", _MAGIC)
    at = image.find(magic)
    while at >= 0:
        resume = at + len(magic)
        if at + _CONTAINER.size <= len(image):
            _, version, header, size = _CONTAINER.unpack_from(image, at)
            end = at + header + size
            if version == _VERSION and header == _HEADER_BYTES and end <= len(image):
                yield from _entries_of(image, at + header, end)
                resume = end
        at = image.find(magic, resume)


def _entries_of(image: bytes | bytearray, at: int, end: int) -> Iterator[Entry]:
    while at + _ARCHITECTURE_OFFSET + 4 <= end:
        kind, _, header, size = _ENTRY.unpack_from(image, at)
        (architecture,) = struct.unpack_from("<I", image, at + _ARCHITECTURE_OFFSET)
        payload_end = at + header + size
        if header < _ARCHITECTURE_OFFSET + 4 or payload_end > end:
            raise ValueError(f"fat binary: the entry at byte {at} does not fit into its container")
        yield Entry(kind, architecture, at + header, payload_end)
        at = payload_end


def erase_all_but(
    image: bytearray, architectures: Collection[int], *, may_be_shell: bool = False
) -> dict[str, int]:
    """Erase, in place, PTX and the machine code of other architectures; returns the bytes erased, by `ptx`, `sm_NN`.

    Raises:
        ValueError: a container that does not hold together, or nothing would be left for these architectures in an
            object that has fat binaries at all, unless it `may_be_shell`: importable, without a kernel.
    """
    found = list(entries(image))
    kept = [e for e in found if e.kind == MACHINE_CODE and e.architecture in architectures]
    if found and not kept and not may_be_shell:
        held = ", ".join(sorted({_name(e) for e in found}))
        raise ValueError(f"no machine code for {sorted(architectures)}; there is: {held}")
    erased: dict[str, int] = {}
    for entry in found:
        if entry in kept:
            continue
        image[entry.start : entry.end] = bytes(entry.end - entry.start)
        erased[_name(entry)] = erased.get(_name(entry), 0) + entry.end - entry.start
    return erased


def _name(entry: Entry) -> str:
    return "ptx" if entry.kind == PTX else f"sm_{entry.architecture}"
