"""What pip installs, and options that take a path: they mean the same wherever the path and the user are."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fixtures.evidence.reading import read_packet
from fixtures.lanes.lane import REPOSITORY

INSTALLED = REPOSITORY / "tools" / "installed"
CHEAP = "tests/unit/test_installed_arguments.py::test_a_value_is_joined_to_its_option"


def run(*arguments: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """pytest as a user starts it, with the module that pip installs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(INSTALLED)
    command = [sys.executable, "-m", "pytest", "-p", "draftproof_arguments", "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["-m", "quality", "--evidence", "/tmp"], ["-m", "quality", "--evidence=/tmp"]),
        (["--lane", "canary-cpu", "-q"], ["--lane=canary-cpu", "-q"]),
        (["--evidence"], ["--evidence"]),
        (["--evidence=/tmp", "tests"], ["--evidence=/tmp", "tests"]),
    ],
    ids=" ".join,
)
def test_a_value_is_joined_to_its_option(
    given: list[str], joined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(INSTALLED)
    import draftproof_arguments

    assert draftproof_arguments.joined(given) == joined


def test_an_existing_evidence_folder_elsewhere_works_twice(tmp_path: Path) -> None:
    """pytest alone would take the folder for its root and know no option of the suite."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    for _ in range(2):
        done = run("--stack", "stock", "--evidence", str(folder), CHEAP)
        assert "unrecognized arguments" not in done.stderr
        assert "verdict: " in done.stdout, done.stdout + done.stderr
    assert [read_packet(p).finished for p in (folder, tmp_path / "evidence-2")] == [True, True]


def test_a_run_may_start_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    done = run(str(REPOSITORY / CHEAP), "--stack", "stock", "--evidence", "evidence", cwd=tmp_path)
    assert "verdict: " in done.stdout, done.stdout + done.stderr
    assert read_packet(tmp_path / "evidence").finished


def test_a_wheel_holds_one_module_and_no_package_called_fixtures(tmp_path: Path) -> None:
    """`fixtures` is another project's name on the package index; the suite is used in its checkout."""
    copy = tmp_path / "checkout"
    (copy / "tools").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (copy / name).write_bytes((REPOSITORY / name).read_bytes())
    for folder in ("fixtures", "tools/installed"):
        os.symlink(REPOSITORY / folder, copy / folder)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
    ]
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    files = [n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n]
    assert files == ["draftproof_arguments.py"]
