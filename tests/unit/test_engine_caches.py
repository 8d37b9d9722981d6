"""Compile caches of a start, and what the kernel says of devices while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.engine import caches, health
from fixtures.engine.caches import cache_key, prepare_caches
from fixtures.engine.devices import memory_used_mib
from fixtures.engine.launch import plan
from fixtures.engine.pool import Slot
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput

FAULT = "xe 0000:03:00.0: [drm] GT0: Fault response: Unsuccessful -ENOENT"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sealed caches are kept."""
    monkeypatch.setattr(caches, "SEALED", tmp_path / "sealed")
    return tmp_path / "sealed"


def inspected(folder: Path) -> None:
    """What an engine leaves when it has inspected a model's class, and what it has compiled beside it."""
    (folder / "vllm" / "modelinfos").mkdir()
    (folder / "vllm" / "modelinfos" / "model.json").write_text("{}")
    (folder / "triton" / "kernel").write_text("tuned")


def test_the_next_start_of_the_same_package_begins_with_what_was_sealed_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Inspected classes are kept, by hash; kernels and autotune results never are."""
    first = prepare_caches(tmp_path / "a", "f" * 64, {})
    assert first.describe({})["VLLM_CACHE_ROOT"] == "empty"
    inspected(first.folder)
    first.seal()
    second = prepare_caches(tmp_path / "b", "f" * 64, {})
    assert (second.folder / "vllm" / "modelinfos" / "model.json").is_file()
    assert list((second.folder / "triton").iterdir()) == []
    assert second.describe({}) == {
        "VLLM_CACHE_ROOT": f"sealed {second.sealed}",
        "TORCHINDUCTOR_CACHE_DIR": "empty",
        "TRITON_CACHE_DIR": "empty",
        "SYCL_CACHE_DIR": "empty",
        "NEO_CACHE_DIR": "empty",
    }
    other = prepare_caches(tmp_path / "c", "0" * 64, {})
    assert other.sealed is None, "another package begins empty"


def test_another_package_or_other_drafts_have_caches_of_their_own() -> None:
    lane = load_lane("canary-cpu")
    target, candidate = plan(lane, role="target"), plan(lane, role="candidate")
    keys = {cache_key("a" * 64, target), cache_key("a" * 64, candidate), cache_key("b" * 64, target)}
    assert len(keys) == 3
    assert cache_key("a" * 64, plan(lane, role="target", replicate=2)) in keys
    assert cache_key("", target) == "", "an unknown package: nothing is kept"


def test_a_sealed_cache_that_was_changed_is_refused(tmp_path: Path, store: Path) -> None:
    first = prepare_caches(tmp_path / "a", "f" * 64, {})
    inspected(first.folder)
    first.seal()
    next(store.glob("*/*/model.json")).write_text("changed")
    with pytest.raises(BadInput, match="a sealed cache was changed; delete"):
        prepare_caches(tmp_path / "b", "f" * 64, {})


def test_a_cache_that_the_lane_names_is_the_lanes_and_is_said(tmp_path: Path) -> None:
    lane = {"VLLM_CACHE_ROOT": "/srv/cache"}
    found = prepare_caches(tmp_path / "a", "f" * 64, lane)
    assert "VLLM_CACHE_ROOT" not in found.environment
    assert found.describe(lane)["VLLM_CACHE_ROOT"] == "the lane's: /srv/cache"


def test_faults_that_the_kernel_logs_while_a_server_runs_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before, and what others write, is not."""
    log, dumps = tmp_path / "kmsg", tmp_path / "devcoredump"
    log.write_text(f"{FAULT} (long ago)\n")
    (dumps / "devcd1").mkdir(parents=True)
    monkeypatch.setattr(health, "KERNEL_LOG", log)
    monkeypatch.setattr(health, "CORE_DUMPS", dumps)
    watched = health.watch_devices(Slot("xpu", (0,)))
    assert watched is not None
    assert watched.is_readable
    with log.open("a") as file:
        file.write(f"usb 1-1: new device\n{FAULT}\n")
    (dumps / "devcd2").mkdir()
    assert watched.read() == (FAULT, "core dump of a device: devcd2")


@pytest.mark.parametrize(
    ("kind", "line", "told"),
    [
        ("xpu", "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs", True),
        ("xpu", "xe 0000:03:00.0: [drm] GT1: Timedout job: seqno=4294967169", True),
        ("xpu", "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin", False),
        ("cuda", "NVRM: Xid (PCI:0000:65:00): 31, pid=123, name=python, MMU Fault", True),
        ("cuda", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", False),
        ("rocm", "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=5", True),
        ("rocm", "amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!", False),
    ],
)
def test_a_line_of_a_driver_is_a_fault_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, line: str, told: bool
) -> None:
    log = tmp_path / "kmsg"
    log.write_text("")
    monkeypatch.setattr(health, "KERNEL_LOG", log)
    watched = health.watch_devices(Slot(kind, (0,)))
    assert watched is not None
    log.write_text(f"{line}\n")
    assert watched.read() == ((line,) if told else ())


def test_a_log_that_cannot_be_read_is_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "KERNEL_LOG", tmp_path / "none")
    watched = health.watch_devices(Slot("xpu", (0,)))
    assert watched is not None
    assert not watched.is_readable
    assert watched.read() == ()
    assert health.watch_devices(Slot("cpu", (0,), (0,))) is None


def test_memory_of_an_intel_device_is_what_its_tool_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up tool with the documented fields: no such device was here."""
    tool = tmp_path / "xpu-smi"
    metric = '{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 512.4}'
    tool.write_text(f"#!/bin/sh\necho '{{\"device_level\": [{metric}]}}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert memory_used_mib(Slot("xpu", (0, 1))) == 1025
    tool.write_text("#!/bin/sh\necho nothing\n")
    assert memory_used_mib(Slot("xpu", (0,))) is None
