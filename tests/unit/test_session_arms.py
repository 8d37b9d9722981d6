"""Run folders: a living run keeps its own, a killed one's is swept by the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.session import arms

HOLDER = """
import sys
from pathlib import Path
from fixtures.session import arms
arms.RUNS = Path(sys.argv[1])
print(arms.run_folder(), flush=True)
sys.stdin.read()
"""


def test_the_folder_of_a_killed_run_is_swept_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    theirs = Path(holder.stdout.readline().strip())
    monkeypatch.setattr(arms, "RUNS", tmp_path)
    first = arms.run_folder()
    assert theirs.is_dir(), "its process lives"
    holder.kill()
    holder.communicate()
    second = arms.run_folder()
    assert not theirs.exists(), "its process was killed"
    assert first.is_dir()
    assert second.is_dir()
