"""The `evidence` fixture drops rows without a packet, and seals one with it, under xdist too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.evidence.reading import read_packet

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

SUITE = """
    import pytest
    from fixtures.evidence.plugin import settle
    from fixtures.judge.finding import Finding, Outcome

    @pytest.mark.contracts
    @pytest.mark.parametrize("n", range(6))
    def test_writes(evidence, n):
        evidence.append("contract", {"subject": "torch", "contract": "c", "case": str(n), "compared": 4,
                                     "mismatches": 0, "max_abs_error": 0.0, "bound": None})
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that loads the options and the evidence plugin."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest('pytest_plugins = ["fixtures.options", "fixtures.evidence.plugin"]')
    pytester.makepyfile(SUITE)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def verdict(project: pytest.Pytester) -> dict[str, object]:
    return dict(json.loads((project.path / "packet" / "verdict.json").read_text()))


@pytest.mark.parametrize("workers", ["0", "2"])
def test_rows_of_all_workers_end_in_one_sealed_packet(project: pytest.Pytester, workers: str) -> None:
    run(project, "-n", workers, "--evidence", "packet").assert_outcomes(passed=6)
    read = read_packet(project.path / "packet")
    assert sorted(r["case"] for r in read.rows["contract"]) == list("012345")
    assert [r["outcome"] for r in read.rows["test"]] == ["passed"] * 6
    assert {r["stage"] for r in read.rows["test"]} == {"contracts"}
    assert verdict(project)["outcome"] == "accepted"


def test_without_the_option_rows_are_dropped_and_nothing_is_written(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=6)
    assert [p.name for p in project.path.rglob("*.json*")] == []


def test_the_same_command_twice_leaves_two_packets(project: pytest.Pytester) -> None:
    """A packet is never written over and never mixed with another run's rows."""
    for _ in range(2):
        run(project, "--evidence", "packet").assert_outcomes(passed=6)
    first, second = (read_packet(project.path / name) for name in ("packet", "packet-2"))
    assert first.finished
    assert second.finished
    assert first.run_id != second.run_id


def test_a_folder_with_other_files_is_a_usage_error(project: pytest.Pytester) -> None:
    project.mkdir("packet").joinpath("notes.txt").write_text("mine")
    done = run(project, "--evidence", "packet")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--evidence: *packet: not empty*"])
    assert [p.name for p in (project.path / "packet").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("assert 1 == 2", "rejected"),
        ("settle([Finding('stage', Outcome.REJECTED, 'wrong token')])", "rejected"),
        ("settle([Finding('stage', Outcome.PENDING, 'not shown')])", "pending"),
        ("settle([Finding('stage', Outcome.INCONCLUSIVE, 'device lost')])", "inconclusive"),
        ("settle([])", "pending"),
    ],
)
def test_a_test_ends_as_its_findings_came_to(project: pytest.Pytester, body: str, outcome: str) -> None:
    project.makepyfile(SUITE + f"\n    def test_last():\n        {body}\n")
    # One of them with a worker, whose report has to bring the outcome along.
    workers = ["-n", "1"] if "device lost" in body else []
    result = run(project, *workers, "--evidence", "packet")
    result.assert_outcomes(passed=6, failed=1)
    assert verdict(project)["outcome"] == outcome


def test_a_broken_fixture_is_inconclusive(project: pytest.Pytester) -> None:
    project.makepyfile(
        SUITE + "\n    @pytest.fixture\n    def server():\n        raise OSError('gone')\n"
        "\n    def test_last(server):\n        pass\n"
    )
    run(project, "--evidence", "packet").assert_outcomes(passed=6, errors=1)
    assert verdict(project)["outcome"] == "inconclusive"


@pytest.mark.parametrize(("option", "outcome"), [([], "accepted"), (["--require"], "pending")])
def test_a_skip_is_pending_where_everything_is_required(
    project: pytest.Pytester, option: list[str], outcome: str
) -> None:
    project.makepyfile(
        SUITE + "\n    @pytest.mark.contracts\n    def test_last():\n        pytest.skip('no such device')\n"
    )
    run(project, "--evidence", "packet", *option)
    assert verdict(project)["outcome"] == outcome


def test_a_secret_is_written_nowhere(project: pytest.Pytester) -> None:
    """Each server has a key of its own, which the run tells the packet to keep out."""
    project.makepyfile(
        SUITE
        + "\n    def test_last(evidence):\n        evidence.keep_secret('k-987654321')\n"
        + "        evidence.append('note', {'said': 'k-987654321'})\n"
        + "        evidence.add_log('engine', 'Authorization: Bearer k-987654321')\n"
    )
    run(project, "--evidence", "packet").assert_outcomes(passed=7)
    files = [p for p in (project.path / "packet").rglob("*") if p.is_file()]
    assert any("note" in p.name for p in files)
    assert all("k-987654321" not in p.read_text() for p in files if "test_" not in p.name)


def test_an_interrupted_run_leaves_a_readable_packet_and_no_acceptance(project: pytest.Pytester) -> None:
    project.makepyfile(SUITE + "\n    def test_last():\n        raise KeyboardInterrupt\n")
    assert run(project, "--evidence", "packet").ret == pytest.ExitCode.INTERRUPTED
    read = read_packet(project.path / "packet")
    assert (read.finished, len(read.rows["contract"])) == (True, 6)
    assert verdict(project)["outcome"] == "inconclusive"


PAGES = """
import pytest
from fixtures.report.html import page

pytest_plugins = ["fixtures.options", "fixtures.evidence.plugin", "fixtures.report.plugin"]
"""


@pytest.mark.parametrize(
    ("drawing", "says"),
    [("", "Accepted: "), ("KeyboardInterrupt", "KeyboardInterrupt")],
    ids=["drawn", "interrupted"],
)
def test_the_page_is_sealed_with_the_packet_and_an_interrupt_costs_the_page_alone(
    project: pytest.Pytester, drawing: str, says: str
) -> None:
    """The run is over by then: minutes on a device, thrown away for a picture."""
    breaks = f"\n\ndef broken(*_):\n    raise {drawing}\n\n\npage.report_page = broken\n" if drawing else ""
    project.makeconftest(PAGES + breaks)
    project.makepyfile(SUITE)
    run(project, "--evidence", "packet")
    read = read_packet(project.path / "packet")
    assert read.finished
    assert read.stored_verdict["outcome"] == "accepted"
    assert says in (project.path / "packet" / "report.html").read_text()


def test_a_run_that_collected_nothing_is_no_acceptance(project: pytest.Pytester) -> None:
    run(project, "--evidence", "packet", "-k", "no_such_test")
    assert verdict(project)["outcome"] == "inconclusive"
