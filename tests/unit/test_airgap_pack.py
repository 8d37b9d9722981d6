"""The packer for hosts without a network: what it leaves out is written down, and what it writes can be unpacked."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.parsing import BadInput
from fixtures.run import outcome
from tools.airgap import pack
from tools.airgap.pack import DEFAULT_PROFILE, ERASED, Profile, known_profiles, load_profile, slim_engine
from tools.airgap.pack import main as run


def profile(**changes: object) -> Profile:
    fields = {
        "description": "for a test", "engine": "vllm==0.25.1", "python": "3.12", "glibc": "2.28",
        "present": (), "packages": (), "architectures": (90,), "leave_out": ("server", "_extra*.so"),
    }  # fmt: skip
    return Profile.model_validate(fields | changes)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installed engine of four files, with a RECORD."""
    package, metadata = tmp_path / "engine" / "vllm", tmp_path / "engine" / "vllm-0.25.1.dist-info"
    (package / "server").mkdir(parents=True)
    metadata.mkdir()
    files = {
        "vllm/__init__.py": "x = 1\n",
        "vllm/server/main.py": "",
        "vllm/_extra_C.so": "code",
        "vllm/_C.so": "code",
    }
    for name, text in files.items():
        (tmp_path / "engine" / name).write_text(text)
    lines = [f"{name},,{len(text)}" for name, text in files.items()]
    (metadata / "RECORD").write_text("\n".join([*lines, "vllm-0.25.1.dist-info/RECORD,,"]) + "\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.25.1\n")
    return tmp_path / "engine"


def test_what_is_left_out_is_gone_from_the_record_and_written_down(site: Path) -> None:
    slim_engine(profile(), site)
    assert sorted(p.relative_to(site).as_posix() for p in (site / "vllm").rglob("*")) == [
        "vllm/_C.so",
        "vllm/__init__.py",
    ]
    facts = json.loads((site / "vllm-0.25.1.dist-info" / ERASED).read_text())
    assert facts["left_out"] == ["vllm/_extra_C.so", "vllm/server"]
    record = importlib.metadata.Distribution.at(site / "vllm-0.25.1.dist-info").files or []
    assert {f.as_posix(): f.size for f in record if f.parts[0] == "vllm"} == {
        p.relative_to(site).as_posix(): p.stat().st_size for p in (site / "vllm").rglob("*") if p.is_file()
    }


def test_a_pattern_that_leaves_out_nothing_is_an_error(site: Path) -> None:
    with pytest.raises(BadInput, match=r"leave_out: gone\*: no such file in vllm==0.25.1"):
        slim_engine(profile(leave_out=("gone*",)), site)


def test_a_packed_folder_unpacks_to_engine_repository_and_model(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real archives and the real script, with a small engine in the place of the downloaded one."""
    model = tmp_path / "small-model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "link.json").symlink_to("config.json")
    monkeypatch.setattr(pack, "install_engine", lambda chosen, into: site.rename(into))
    monkeypatch.setattr(pack, "tracked_files", lambda: ["pyproject.toml", "fixtures/parsing.py"])
    made = pack.pack(profile(), tmp_path / "out", [model])
    assert {p.name for p in made} == {
        "engine.tar.xz", "draftproof.tar.xz", "model-small-model.tar.xz", "unpack.sh", "SHA256SUMS"
    }  # fmt: skip
    target = tmp_path / "host"
    done = subprocess.run(
        ["sh", tmp_path / "out" / "unpack.sh", target], capture_output=True, text=True, check=True
    )
    assert f"PYTHONPATH={target}/engine" in done.stdout
    assert (target / "engine" / "vllm" / "__init__.py").read_text() == "x = 1\n"
    assert (target / "draftproof" / "fixtures" / "parsing.py").is_file()
    assert (target / "draftproof" / pack.REVISION).read_text().strip().rstrip("+").isalnum()
    assert pack.REVISION == outcome.REVISION
    assert (target / "models" / "small-model" / "link.json").is_symlink()


def test_a_damaged_archive_is_not_unpacked(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "install_engine", lambda chosen, into: site.rename(into))
    pack.pack(profile(), tmp_path / "out", [], engine_only=True)
    with (tmp_path / "out" / "engine.tar.xz").open("r+b") as archive:
        archive.seek(40)
        archive.write(b"xxxx")
    done = subprocess.run(
        ["sh", tmp_path / "out" / "unpack.sh", tmp_path / "host"], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert not (tmp_path / "host" / "engine").exists()


def test_every_profile_pins_every_package() -> None:
    assert DEFAULT_PROFILE in known_profiles()
    for name in known_profiles():
        loaded = load_profile(name)
        loose = [p for p in (loaded.engine, *loaded.packages) if p.count("==") != 1]
        assert loose == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "none"], "known: vllm-0.25.1-hopper"),
        (["--model", "no-such-folder"], "no config.json there: not a model folder"),
    ],
)
def test_bad_input_is_said_before_anything_is_downloaded(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wheels_of_every_older_glibc_are_taken() -> None:
    tags = pack.wheel_platforms("2.28")
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"} <= set(tags)
    assert "manylinux_2_29_x86_64" not in tags


def test_the_command_exists() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.airgap", "--help"], capture_output=True, text=True, check=True
    )
    assert "--budget" in done.stdout
