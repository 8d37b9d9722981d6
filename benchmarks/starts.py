"""How long a server takes to start with empty and with sealed caches, and to end; what a start leaves in its caches.

    python -m benchmarks.starts --lane canary-cpu

The first two starts are target-only, so that the second begins with what the first has sealed (unless an earlier run
has); the last two are candidates.
"""

from __future__ import annotations

import argparse
import json
import time

from fixtures.arms.arm import Arm, make_arm
from fixtures.arms.servers import Arms
from fixtures.engine.pool import parse_pool
from fixtures.engine.server import ENDING
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import DEFAULT_LANE, load_lane
from fixtures.run.folder import remove_run_folder, run_folder


def measure(arms: Arms, rows: RowList, arm: Arm) -> str:
    """Start and stop one arm; a row of the table."""
    server = arms.server(arm)
    began = time.monotonic()
    left = arms.stop(server)
    stop_s = time.monotonic() - began
    ending = json.loads((server.folder / ENDING).read_text(encoding="utf-8"))
    caches = server.folder / "caches"
    files = [p for p in caches.rglob("*") if p.is_file()]
    written = ", ".join(sorted({p.relative_to(caches).parts[0] for p in files})) or "nothing"
    begun = str(rows.rows["arm"][-1]["caches"]["VLLM_CACHE_ROOT"])[:14]
    slow = "; ".join((*left, *ending["slow"])) or "nothing"
    size = sum(p.stat().st_size for p in files)
    return (
        f"| {arm.label} | {begun} | {server.ready_s:.1f} | {stop_s:.1f} | {ending['shutdown_s']:.1f} "
        f"| {slow} | {written}, {size} bytes |"
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lane", default=DEFAULT_LANE)
    lane = load_lane(parser.parse_args().lane)
    folder, rows = run_folder(), RowList()
    pool = parse_pool("cpu:1" if lane.topology.device == "cpu" else "0", kind=lane.topology.device)
    arms = Arms(pool, folder, rows, lambda secret: None)
    print(
        "| server | caches | ready (s) | stop (s) | of it the engine's own end (s) | late or left | written |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    try:
        for role in ("target", "candidate"):
            for replicate in (1, 2):
                arm = make_arm(lane, role, replicate=replicate, stack=lane.engine_of(role).stack)
                print(measure(arms, rows, arm), flush=True)
    finally:
        arms.close()
        remove_run_folder(folder)


if __name__ == "__main__":
    main()
