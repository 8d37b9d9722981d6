"""What a patched engine costs in time and disk, beside a full copy of the package.

    python -m benchmarks.overlay [--stack NAME] [--rounds 3] [--out FILE.json]

Both are made on the file system of the repository, in turns; the median counts. Bytes are what is written: content that
takes space of its own, which links and clones do not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fixtures.engine.installed import InstalledEngine, installed_engine, tree_sha256
from fixtures.engine.overlay import temporary_overlay
from fixtures.engine.patch_sets import load_stack
from fixtures.engine.stack import Stack
from fixtures.evidence.files import write_atomically
from fixtures.lanes.lane import RUNS


def measure_overlay(stack: Stack, engine: InstalledEngine, folder: Path) -> tuple[float, int, str]:
    """Seconds, bytes written, and how the unpatched files got there."""
    began = time.monotonic()
    with temporary_overlay(stack, engine, folder) as overlay:
        return time.monotonic() - began, overlay.bytes_written, overlay.method


def measure_copy(engine: InstalledEngine, folder: Path) -> tuple[float, int]:
    """Seconds and bytes of copying the whole package."""
    target = folder / "copy"
    began = time.monotonic()
    shutil.copytree(engine.package_dir, target)
    seconds = time.monotonic() - began
    written = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    shutil.rmtree(target)
    return seconds, written


def main() -> None:
    """Measure, print a table, and write the numbers where `--out` says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlay")
    parser.add_argument("--stack", default="gdn-ragged-drafts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    engine, stack = installed_engine(), load_stack(options.stack)
    before = tree_sha256(engine.package_dir, full=True)
    folder = RUNS / "benchmark-overlay"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rounds = [
            (measure_overlay(stack, engine, folder), measure_copy(engine, folder))
            for _ in range(options.rounds)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    untouched = tree_sha256(engine.package_dir, full=True) == before
    rows = {
        f"overlay of {stack.name} ({rounds[0][0][2]})": [(o[0], o[1]) for o, _ in rounds],
        "full copy": [c for _, c in rounds],
    }
    table = Table("what", "seconds", "MB written", title=f"{engine}, median of {options.rounds}")
    for name, found in rows.items():
        seconds = statistics.median(s for s, _ in found)
        table.add_row(name, f"{seconds:.2f}", f"{found[0][1] / 1e6:.3f}")
    Console().print(table)
    print(f"installed package untouched, every byte compared: {untouched}")
    if options.out is not None:
        numbers = {name: [{"seconds": s, "bytes": b} for s, b in found] for name, found in rows.items()}
        write_atomically(options.out, json.dumps({"rounds": numbers, "untouched": untouched}, indent=1))
    if not untouched:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
