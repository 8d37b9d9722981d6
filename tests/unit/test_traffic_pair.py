"""The two servers that generated traffic is played on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.arms import servers
from fixtures.arms.arm import make_arm, role_of
from fixtures.judge.described import Role
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import load_lane
from fixtures.traffic.pair import Half
from tests.unit.standin.launching import slots


@pytest.mark.parametrize("role", ["target", "candidate"])
def test_its_servers_are_compared_with_no_arm_of_the_lane(role: str, tmp_path: Path) -> None:
    """They are asked no suite: parity would wait for their answers, and the verdict with it."""
    arms = servers.Arms(slots(1), tmp_path, RowList(), lambda secret: None)
    lane = load_lane("canary-cpu")
    half = Half(arms, lane, role, "stock", 40)
    assert role_of(half.arm) is Role.DEDICATED
    assert role_of(make_arm(lane, role)) == role, "the lane's own are what they are"


def test_an_arm_under_a_name_of_its_test_is_a_candidate() -> None:
    """What a test calls `resumed` still has to say what target-only says."""
    arm = make_arm(load_lane("canary-cpu"), "resumed")
    assert role_of(arm) is Role.CANDIDATE
