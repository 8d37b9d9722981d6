"""Devices that the driver names, the pool that follows from them, and seats on a device that several servers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.instruments import with_trace
from fixtures.engine import audit as auditing
from fixtures.engine.devices import Device, found_devices, pool_text, require_devices
from fixtures.engine.installed import InstalledEngine
from fixtures.engine.launch import plan
from fixtures.engine.pool import parse_pool
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput

ANSWER = "0, NVIDIA H200, 143771, 580.159.04, 9.0\n1, NVIDIA H200, 143771, 580.159.04, 9.0\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `nvidia-smi` on the path that answers as two H200s do."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{ANSWER}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tool


def test_devices_are_those_that_the_driver_names(driver: Path) -> None:
    assert found_devices("cuda")[1] == Device("cuda", 1, "NVIDIA H200", 143771, "580.159.04", "9.0")
    assert found_devices("xpu") == ()


def test_a_hidden_device_is_not_in_the_pool(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [d.index for d in found_devices("cuda")] == [1]


def test_a_driver_that_fails_names_no_device(driver: Path) -> None:
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert found_devices("cuda") == ()


def test_the_pool_is_every_device_in_groups_as_the_lane_asks(driver: Path) -> None:
    devices = found_devices("cuda")
    assert pool_text(devices, "cuda", 1) == "0,1"
    assert [s.devices for s in parse_pool(pool_text(devices, "cuda", 2), kind="cuda").slots] == [(0, 1)]
    with pytest.raises(BadInput, match=r"needs 4 cuda device\(s\) for one server, and 2 were found"):
        pool_text(devices, "cuda", 4)


def test_seats_share_a_device_with_each_other_and_with_nobody_else(tmp_path: Path) -> None:
    shared, alone = parse_pool("0*2", kind="cuda"), parse_pool("0", kind="cuda")
    assert shared.is_shared
    assert not alone.is_shared
    seats = [shared.acquire(timeout_s=0, folder=tmp_path) for _ in range(2)]
    assert [lease.slot.name for lease in seats] == ["cuda:0*0", "cuda:0*1"]
    assert {str(lease.slot.environment) for lease in seats} == {"{'CUDA_VISIBLE_DEVICES': '0'}"}
    for pool in (shared, alone):
        with pytest.raises(TimeoutError, match="no free slot"):
            pool.acquire(timeout_s=0, folder=tmp_path)
    seats[0].release()
    with pytest.raises(TimeoutError, match="no free slot"):
        alone.acquire(timeout_s=0, folder=tmp_path)
    seats[1].release()
    owner = alone.acquire(timeout_s=0, folder=tmp_path)
    with pytest.raises(TimeoutError, match="no free slot"):
        shared.acquire(timeout_s=0, folder=tmp_path)
    owner.release()


@pytest.mark.parametrize("text", ["0*1", "0*0", "0*", "0:*2"])
def test_a_shared_device_has_at_least_two_seats(text: str) -> None:
    with pytest.raises(BadInput, match="--gpu-pool"):
        parse_pool(text, kind="cuda")


def test_an_engine_on_our_pythonpath_is_lent_to_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = InstalledEngine("vllm", "0.25.1", (tmp_path / "engine" / "vllm").resolve())
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{tmp_path}/engine")
    assert engine.borrowed_path == (tmp_path / "engine").resolve()
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert engine.borrowed_path is None
    monkeypatch.delenv("PYTHONPATH")
    assert engine.borrowed_path is None


@pytest.mark.parametrize(
    ("backend", "wrong"),
    [
        ("vllm.v1.attention.backends.flash_attn.FlashAttentionBackend", []),
        ("FLASH_ATTN", []),
        ("vllm.v1.attention.backends.triton_attn.TritonAttentionBackend", ["attention_config.backend"]),
        (None, ["attention_config.backend"]),
    ],
)
def test_an_attention_backend_is_known_by_its_class_too(backend: str | None, wrong: list[str]) -> None:
    """The engine resolves FLASH_ATTN to a class; another class is another kernel."""
    spec = plan(load_lane("canary-cuda"), role="candidate")
    config: dict[str, dict[str, object]] = {}
    for path, value in {**spec.expected, "attention_config.backend": backend}.items():
        part, name = path.split(".")
        config.setdefault(part, {})[name] = value
    package = Path("/engine/vllm")
    core = auditing.ProcessReport("engine", 1, package / "__init__.py", {}, config, "0.25.1")
    found = auditing.audit(spec, [core], package_dir=package, version="0.25.1", environment={})
    assert [d.what for d in found] == wrong
    assert len(spec.expected) >= 12


def asked(folder: Path, found: str) -> str:
    """A Python whose torch finds what `found` says, and which writes down what it was allowed to see."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "$ZE_AFFINITY_MASK|$HIP_VISIBLE_DEVICES" > {folder}/seen\n{found}\n')
    python.chmod(0o755)
    return str(python)


TWO = 'echo \'[[0, "Arc Pro B70", 32768, "1.6"], [1, "Arc Pro B70", 32768, "1.6"]]\''


@pytest.mark.parametrize(("kind", "variable"), [("xpu", "ZE_AFFINITY_MASK"), ("rocm", "HIP_VISIBLE_DEVICES")])
def test_intels_and_amds_devices_are_those_that_torch_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, variable: str
) -> None:
    """Torch is asked without the variable, because it would count from 0 again behind it; then it is obeyed."""
    python = asked(tmp_path, TWO)
    monkeypatch.delenv(variable, raising=False)
    assert found_devices(kind, python=python)[1] == Device(kind, 1, "Arc Pro B70", 32768, "1.6")
    monkeypatch.setenv(variable, "1")
    assert [d.index for d in found_devices(kind, python=python)] == [1]
    assert (tmp_path / "seen").read_text() == "|\n"


@pytest.mark.parametrize("found", ["exit 1", "echo nonsense", "echo '[]'"])
def test_a_torch_that_finds_nothing_or_does_not_answer_names_no_device(tmp_path: Path, found: str) -> None:
    assert found_devices("xpu", python=asked(tmp_path, found)) == ()
    assert found_devices("xpu", python=str(tmp_path / "no-such-python")) == ()


def test_an_unknown_index_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the known ones; a pool of what is there, or of processors, is not refused."""
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)
    python = asked(tmp_path, TWO)
    with pytest.raises(BadInput, match=r"xpu:2, xpu:3 is not there; found on this host: xpu:0, xpu:1"):
        require_devices(parse_pool("0-3", kind="xpu"), python=python)
    with pytest.raises(BadInput, match="no rocm device at all"):
        require_devices(parse_pool("0", kind="rocm"), python=asked(tmp_path, "echo '[]'"))
    require_devices(parse_pool("0-1", kind="xpu"), python=asked(tmp_path, TWO))
    require_devices(parse_pool("cpu:1"), python="/no/such/python")


@pytest.mark.parametrize(
    ("stack", "traces"),
    [
        ("text-only", False),
        ("spec-round-trace", True),
        ("gdn-state-promotion+spec-round-trace", True),
    ],
)
def test_an_engine_that_can_trace_its_rounds_does_whatever_its_version(
    stack: str, traces: bool, tmp_path: Path
) -> None:
    arm = make_arm(load_lane("canary-cuda-empty"), "candidate", stack=stack)
    names = [name for name, _ in with_trace(arm.spec, tmp_path / "server").environment]
    assert ("DRAFTPROOF_ROUND_TRACE" in names) == traces
