"""The end of the output is the verdict; what is pending, inconclusive or known is not called failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import Verdict, derive
from fixtures.lanes.lane import REPOSITORY
from fixtures.run.ending import closing_lines

pytest_plugins = ["pytester"]

PLUGINS = ("fixtures.options", "fixtures.evidence.plugin", "fixtures.run.outcome", "fixtures.run.ending")
TESTS = """
    import pytest
    from fixtures.evidence.plugin import settle
    from fixtures.judge.finding import Finding, Outcome

    def test_right():
        pass

    def test_unsettled():
        settle([Finding("speed.headline", Outcome.{outcome}, "not shown here")])

    @pytest.mark.xfail(strict=True, reason="known")
    def test_known():
        assert False
"""


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, outcome: str, *more: str
) -> pytest.RunResult:
    """A small project with the plugins that write the end."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    pytester.makeconftest(f"pytest_plugins = {list(PLUGINS)}")
    pytester.makepyfile(TESTS.replace("{outcome}", outcome))
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *more)


@pytest.mark.parametrize(("outcome", "code"), [("PENDING", 11), ("INCONCLUSIVE", 10)])
def test_only_what_failed_is_called_failed(
    outcome: str, code: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(pytester, monkeypatch, outcome)
    assert done.ret == code
    done.stdout.fnmatch_lines([f"{outcome.lower()}: *test_unsettled", "*not shown here*"])
    counts = done.outlines[-1]
    assert f"1 {outcome.lower()}" in counts
    assert "1 known deviation" in counts
    assert "failed" not in counts


def test_the_verdict_and_what_to_type_next_are_the_last_lines(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(pytester, monkeypatch, "REJECTED", "--evidence", "packet")
    assert done.ret == 1
    lines = [line for line in done.outlines if line]
    (place,) = [n for n, line in enumerate(lines) if line.startswith("verdict: ")]
    assert "failed" in lines[place - 1], "pytest's own counts come before"
    starts = [line.partition(":")[0].strip() for line in lines[place:]]
    assert starts[-3:] == ["time", "packet", "next"] or starts[-4:] == ["time", "packet", "report", "next"]


def verdict(outcome: Outcome, **more: str) -> Verdict:
    return derive(
        {"finding": [Finding("server.audit", outcome, "another flag", "candidate#1", **more).to_row()]}
    )


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        (Outcome.INCONCLUSIVE, "next: python -m pytest --gate HEAD"),
        (Outcome.PENDING, "next: pytest --doctor"),
        (Outcome.REJECTED, "next: python -m fixtures.diagnosis.replay x/y"),
    ],
)
def test_the_next_command_fits_the_verdict(outcome: Outcome, command: str, tmp_path: Path) -> None:
    found = verdict(outcome, replay="python -m fixtures.diagnosis.replay x/y")
    lines = list(closing_lines(found, directory=tmp_path, spent="3 s", command=["--gate", "HEAD"]))
    assert lines[0].startswith(f"verdict: {found.outcome.value}")
    assert lines[-1] == command if found.outcome is outcome else lines[-1].startswith("next: ")
    assert any("server.audit" in line for line in lines)
