"""Under xdist, tests that share a server share a worker: `-n` alone must not start the same arm twice."""

from __future__ import annotations

import re
import subprocess
import sys

from fixtures.lanes.lane import REPOSITORY


def test_tests_of_one_lane_are_one_group_with_n_alone() -> None:
    """Every server test carries its lane's group in the id that the scheduler reads."""
    script = (
        "import sys, pytest\n"
        "class Stop:\n"
        "    def pytest_xdist_node_collection_finished(self, node, ids):\n"
        "        print('IDS', *ids, sep='\\n')\n"
        "        sys.stdout.flush()\n"
        "        import os; os._exit(0)\n"
        "pytest.main(['-n', '1', '-q', 'tests/endpoint/test_server_life.py'], plugins=[Stop()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    ids = re.findall(r"^tests/endpoint.*$", done.stdout, re.M)
    assert len(ids) >= 4, done.stdout + done.stderr
    assert all(i.endswith("@lane:canary-cpu") for i in ids), ids


def test_an_arm_is_done_with_before_the_next_begins() -> None:
    """A pool with one slot holds one server: tests that alternated between arms would restart it each time."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/endpoint"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    arms = re.findall(r"\[(?:.*-)?(target|candidate)-", done.stdout)
    assert len(arms) > 10, done.stdout + done.stderr
    assert arms == sorted(arms, reverse=True), arms
