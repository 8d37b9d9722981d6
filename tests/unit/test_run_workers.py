"""Under xdist, tests that share a server share a worker: `-n` alone must not start the same arm twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from fixtures.lanes.lane import REPOSITORY


def scheduled(*arguments: str) -> list[str]:
    """Ids of the server tests as the scheduler reads them, with `-n 1` and `arguments`."""
    script = (
        "import sys, pytest\n"
        "class Stop:\n"
        "    def pytest_xdist_node_collection_finished(self, node, ids):\n"
        "        print('IDS', *ids, sep='\\n')\n"
        "        sys.stdout.flush()\n"
        "        import os; os._exit(0)\n"
        f"pytest.main(['-n', '1', '-q', *{list(arguments)!r}], plugins=[Stop()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    ids = re.findall(r"^tests/(?:endpoint|quality).*$", done.stdout, re.M)
    assert len(ids) >= 4, done.stdout + done.stderr
    return ids


def test_tests_of_one_lane_are_one_group_with_n_alone() -> None:
    """Every server test carries its lane's group in the id that the scheduler reads: parity needs all its arms."""
    pool = ["--gpu-pool", "cpu:2"] if len(os.sched_getaffinity(0)) > 1 else []
    ids = scheduled("tests/endpoint/test_server_life.py", "tests/quality/test_parity.py", *pool)
    assert all(i.endswith("@lane:canary-cpu") for i in ids), ids


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two slots")
def test_api_tests_are_one_group_an_arm_where_several_arms_have_room() -> None:
    """Target-only and candidate go to two workers."""
    ids = scheduled("tests/endpoint/test_server_life.py", "--gpu-pool", "cpu:2")
    groups = {i.split("@")[1] for i in ids if "[target-" in i}, {i.split("@")[1] for i in ids if "[cand" in i}
    assert [len(g) for g in groups] == [1, 1], ids
    assert groups[0] != groups[1]
    assert all(g.startswith("arm:") for g in groups[0] | groups[1])


def test_an_arm_is_done_with_before_the_next_begins() -> None:
    """A pool with one slot holds one server: tests that alternated between arms would restart it each time."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/endpoint"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    arms = re.findall(r"\[(?:.*-)?(target|candidate)-", done.stdout)
    assert len(arms) > 10, done.stdout + done.stderr
    assert arms == sorted(arms, reverse=True), arms
