"""Packs what a GPU host without a network lacks into one folder: engine, Python packages, this repository, models.

    python -m tools.airgap INTO [--profile NAME] [--model FOLDER ...] [--engine-only] [--budget MIB]

The folder then holds `engine.tar.xz` (to be unpacked anywhere and named on PYTHONPATH), `draftproof.tar.xz` (the
tracked files of this repository, the canary model among them), `model-NAME.tar.xz` for each model folder,
`unpack.sh`, and `SHA256SUMS`. Nothing is installed on the host, and nothing of this machine's environment is used
but pip, tar and xz.

What is left out or erased to make it small is listed in the profile and written into the package's metadata.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fixtures.lanes.lane import REPOSITORY
from fixtures.parsing import BadInput, load_toml
from tools.airgap.fatbins import erase_all_but

PROFILES = Path(__file__).parent
DEFAULT_PROFILE = "vllm-0.25.1-hopper"
_BIG_OBJECT_BYTES = 1_000_000
REVISION = "REVISION"
"""File that tells a copy without history which commit it is; packets made there quote it."""
ERASED = "draftproof-erased.json"
"""In the engine's dist-info: what this packer took out of the published wheel."""

UNPACK = """#!/bin/sh
# Unpacks everything beside this file into a folder: sh unpack.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd); mkdir -p "$1"; cd "$here"
sha256sum --check --quiet SHA256SUMS
for archive in *.tar.xz; do xz --decompress --threads=0 --stdout "$archive" | tar -xf - -C "$1"; done
echo "export PYTHONPATH=$1/engine"
echo "cd $1/draftproof && python3 -m pytest --doctor"
"""


class Profile(BaseModel):
    """Which engine, for which host. A TOML file beside this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    description: str
    engine: str
    """Requirement with an exact version, such as `vllm==0.25.1`."""
    python: str
    """Python version of the host, such as `3.12`."""
    glibc: str
    """glibc version of the host, such as `2.39`: wheels for it and every older one are taken."""
    present: tuple[str, ...]
    """What the host has to have already; said in the documentation, not checked here."""
    packages: tuple[str, ...]
    """Pinned requirements that travel with the engine."""
    architectures: tuple[int, ...] = Field(min_length=1)
    """CUDA architectures whose machine code is kept, such as 90."""
    leave_out: tuple[str, ...] = ()
    """Paths or patterns relative to the engine's package that do not travel."""
    shells: tuple[str, ...] = ()
    """Shared objects that hold no code for these architectures and travel empty, because the engine imports them."""


def known_profiles() -> tuple[str, ...]:
    """Names of the profiles."""
    return tuple(sorted(p.stem for p in PROFILES.glob("*.toml")))


def load_profile(name: str) -> Profile:
    """A profile by name; raises `BadInput` that lists the known ones."""
    return load_toml(PROFILES / f"{name}.toml", Profile, known=known_profiles())


def wheel_platforms(glibc: str) -> list[str]:
    """Platform tags that a host with this glibc takes, newest first."""
    major, minor = map(int, glibc.split("."))
    return [f"manylinux_{major}_{n}_x86_64" for n in range(minor, 4, -1)] + [
        "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64",
    ]  # fmt: skip


def install_engine(profile: Profile, site: Path) -> None:
    """Install the engine and its packages into a folder, for the host's Python and not for this one."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        str(site),
    ]
    command += ["--only-binary=:all:", "--python-version", profile.python, "--implementation", "cp"]
    for platform in wheel_platforms(profile.glibc):
        command += ["--platform", platform]
    subprocess.run([*command, profile.engine, *profile.packages], check=True)


def slim_engine(profile: Profile, site: Path) -> dict[str, object]:
    """Leave out and erase what the profile says; keeps RECORD true and writes down what was done. Returns that."""
    name = profile.engine.partition("==")[0]
    package, (metadata,) = site / name, site.glob(f"{name}-*.dist-info")
    gone = sorted({p for pattern in profile.leave_out for p in package.glob(pattern)})
    unmatched = [pattern for pattern in profile.leave_out if not any(package.glob(pattern))]
    if unmatched:
        raise BadInput(f"leave_out: {', '.join(unmatched)}: no such file in {profile.engine}")
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    erased: dict[str, dict[str, int]] = {}
    for shared in sorted(package.rglob("*.so")):
        if shared.stat().st_size >= _BIG_OBJECT_BYTES:
            image = bytearray(shared.read_bytes())
            is_shell = any(shared.relative_to(package).match(pattern) for pattern in profile.shells)
            if done := erase_all_but(image, profile.architectures, may_be_shell=is_shell):
                erased[shared.relative_to(site).as_posix()] = done
                shared.write_bytes(image)
    facts: dict[str, object] = {
        "kept_architectures": list(profile.architectures),
        "left_out": [p.relative_to(site).as_posix() for p in gone],
        "erased_bytes": erased,
    }
    (metadata / ERASED).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _rewrite_record(metadata / "RECORD", site)
    return facts


def _rewrite_record(record: Path, site: Path) -> None:
    """Drop the lines of files that are gone; erased objects keep their size, which is what is compared of them."""
    rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
    kept = io.StringIO()
    csv.writer(kept, lineterminator="\n").writerows(row for row in rows if row and (site / row[0]).exists())
    record.write_text(kept.getvalue(), encoding="utf-8")


def write_archive(archive: Path, folder: Path, members: Sequence[str], rename: str = "") -> None:
    """A reproducible `.tar.xz`: sorted, without owners and times. `rename` is a `sed`-like expression for tar."""
    command = ["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    command += [
        "--exclude=__pycache__",
        "-C",
        str(folder),
        "-cf",
        "-",
        *([f"--transform={rename}"] if rename else []),
    ]
    part = archive.with_suffix(".part")
    with part.open("wb") as out:
        tar = subprocess.Popen(
            [*command, "--null", "--files-from=-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        xz = subprocess.Popen(
            ["xz", "--compress", "-9e", "--threads=0", "--stdout"], stdin=tar.stdout, stdout=out
        )
        assert tar.stdin is not None
        assert tar.stdout is not None
        tar.stdout.close()
        tar.stdin.write(b"\0".join(os.fsencode(m) for m in members))
        tar.stdin.close()
        if tar.wait() or xz.wait():
            part.unlink(missing_ok=True)
            raise OSError(f"{archive}: tar ended with {tar.returncode}, xz with {xz.returncode}")
    os.replace(part, archive)


def tracked_files() -> list[str]:
    """Tracked files of this repository that are there; untracked ones do not travel."""
    return [
        name for name in _git("ls-files", "-z").split("\0") if name and os.path.lexists(REPOSITORY / name)
    ]


def copy_repository(target: Path) -> None:
    """The tracked files as they are now, and the revision that they belong to (`+` if they differ from it)."""
    for name in tracked_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, target / name, follow_symlinks=False)
    changed = "+" if _git("status", "--porcelain", "-uno").strip() else ""
    (target / REVISION).write_text(f"{_git('rev-parse', 'HEAD').strip()}{changed}\n", encoding="utf-8")


def _git(*command: str) -> str:
    return subprocess.run(
        ["git", *command], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout


def pack(profile: Profile, into: Path, models: Sequence[Path], *, engine_only: bool = False) -> list[Path]:
    """Write the archives, `unpack.sh` and `SHA256SUMS` into the folder; returns the files."""
    into.mkdir(parents=True, exist_ok=True)
    made = [into / "engine.tar.xz"]
    with tempfile.TemporaryDirectory(prefix="draftproof-airgap-") as work:
        site = Path(work) / "engine"
        install_engine(profile, site)
        slim_engine(profile, site)
        write_archive(made[0], Path(work), ["engine"])
    if not engine_only:
        made.append(into / "draftproof.tar.xz")
        with tempfile.TemporaryDirectory(prefix="draftproof-airgap-") as work:
            copy_repository(Path(work) / "draftproof")
            write_archive(made[-1], Path(work), ["draftproof"])
    for model in models:
        made.append(into / f"model-{model.name}.tar.xz")
        write_archive(made[-1], model.parent, [model.name], rename="flags=r;s,^,models/,")
    script = into / "unpack.sh"
    script.write_text(UNPACK, encoding="utf-8")
    made.append(script)
    sums = into / "SHA256SUMS"
    with sums.open("w", encoding="utf-8") as file:
        for path in made:
            with path.open("rb") as content:
                file.write(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {path.name}\n")
    return [*made, sums]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 for bad input, 1 if the folder is larger than `--budget`."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.airgap", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("into", type=Path, metavar="INTO", help="folder to write into")
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help=f"one of: {', '.join(known_profiles())}")
    parser.add_argument(
        "--model", type=Path, action="append", default=[], metavar="FOLDER", help="a model folder"
    )
    parser.add_argument("--engine-only", action="store_true", help="leave this repository out")
    parser.add_argument("--budget", type=float, metavar="MIB", help="fail if the folder is larger")
    options = parser.parse_args(arguments)
    try:
        missing = [str(m) for m in options.model if not (m / "config.json").is_file()]
        if missing:
            raise BadInput(f"--model {', '.join(missing)}: no config.json there: not a model folder")
        made = pack(
            load_profile(options.profile), options.into, options.model, engine_only=options.engine_only
        )
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    total = sum(path.stat().st_size for path in made) / 2**20
    for path in made:
        print(f"{path.stat().st_size / 2**20:8.2f} MiB  {path}")
    print(f"{total:8.2f} MiB  in all")
    if options.budget is not None and total > options.budget:
        print(f"larger than the {options.budget:g} MiB asked for", file=sys.stderr)
        return 1
    return 0
