"""Seeded faults given to generated traffic alone: how soon each is found, and the smallest session that shows it.

    pytest -m traffic_faults tests/faults/test_traffic_faults.py --evidence DIR
    python -m fixtures.docs keep PACKET

Nobody tells the generator which fault is planted. Two servers are started once; a fault is searched for
`--traffic-minutes` (3).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.arms.servers import Arms
from fixtures.engine.patch_text import PatchRefused
from fixtures.evidence.plugin import Evidence
from fixtures.fault_injection.traffic import TrafficTrials
from fixtures.fault_injection.variants import TRAFFIC_LANE, traffic_faults
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import load_lane
from fixtures.request import request_of
from fixtures.run.folder import keep_logs, remove_run_folder, run_folder
from fixtures.traffic.plugin import traffic_request_of

pytestmark = [
    pytest.mark.traffic_faults,
    pytest.mark.timeout(8 * 3600),
    pytest.mark.xdist_group(f"lane:{TRAFFIC_LANE}"),
]


@pytest.fixture(scope="module")
def trials(arms: Arms, evidence: Evidence, pytestconfig: pytest.Config) -> Iterator[TrafficTrials]:
    """Both servers, up for all faults: what is shared by tests of a run is stopped between them."""
    arms.close()  # one slot: servers of other tests make room
    asked, lane, folder = traffic_request_of(pytestconfig), load_lane(TRAFFIC_LANE), run_folder()
    pool = request_of(pytestconfig).pool_for(lane)
    own = Arms(pool, folder, RowList(), evidence.keep_secret)
    try:
        yield TrafficTrials(own, lane, seed=asked.seed, minutes=asked.minutes)
    finally:
        left = own.close()
        if evidence.logs is not None:
            keep_logs(folder, evidence.logs)
        remove_run_folder(folder)
    assert not left, "left behind after the servers were stopped: " + "; ".join(left)


def test_the_sound_engine_is_accepted(trials: TrafficTrials, evidence: Evidence) -> None:
    """What the repaired engine is rejected for is a false alarm, and shows nothing about faults."""
    seen = trials.sound()
    evidence.append("traffic_fault", seen.to_row())
    assert not seen.checks, f"{', '.join(seen.checks)}: {seen.message}"


@pytest.mark.parametrize("fault", traffic_faults(load_lane(TRAFFIC_LANE)))
def test_the_fault_is_found_by_generated_traffic(
    trials: TrafficTrials, evidence: Evidence, fault: str
) -> None:
    """By whatever check speaks first; a fault that survives is a hole of the generator or of its rules."""
    try:
        seen = trials.planted(fault)
    except PatchRefused as error:
        pytest.skip(f"not offered: it does not go onto the repaired engine: {error}")
    evidence.append("traffic_fault", seen.to_row())
    print(
        f"{fault}: {seen.seconds:.0f} s, {seen.sessions} sessions: {', '.join(seen.checks)}: {seen.message}"
    )
    assert seen.checks, f"{fault} survives {seen.sessions} sessions with {seen.requests} requests"
