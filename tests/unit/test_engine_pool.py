"""The pool: what `--gpu-pool` may say, and leases that never outlive or overlap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.engine.pool import Pool, parse_pool
from fixtures.parsing import BadInput

HOLDER = """
import sys, time
from pathlib import Path
from fixtures.engine.pool import parse_pool
lease = parse_pool(sys.argv[1]).acquire(timeout_s=0, folder=Path(sys.argv[2]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("0-3", [(0,), (1,), (2,), (3,)]),
        ("0,2", [(0,), (2,)]),
        ("0-3:2", [(0, 1), (2, 3)]),
        ("5", [(5,)]),
        ("0-1,4", [(0,), (1,), (4,)]),
    ],
)
def test_device_numbers_become_slots_of_neighbours(text: str, slots: list[tuple[int, ...]]) -> None:
    assert [slot.devices for slot in parse_pool(text, kind="xpu").slots] == slots


def test_cpu_slots_have_disjoint_cores() -> None:
    pool = parse_pool("cpu:2", cores=[0, 1, 2, 3])
    assert [slot.cores for slot in pool.slots] == [(0, 1), (2, 3)]
    assert [slot.environment for slot in pool.slots] == [
        {"VLLM_CPU_OMP_THREADS_BIND": "0-1"},
        {"VLLM_CPU_OMP_THREADS_BIND": "2-3"},
    ]


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("cuda", "CUDA_VISIBLE_DEVICES"), ("xpu", "ZE_AFFINITY_MASK"), ("rocm", "HIP_VISIBLE_DEVICES")],
)
def test_a_slot_confines_its_server_with_the_variable_of_its_kind(kind: str, variable: str) -> None:
    assert parse_pool("2-3:2", kind=kind).slots[0].environment == {variable: "2,3"}


@pytest.mark.parametrize("text", ["", "gpu", "3-1", "0,0", "0-2:2", "cpu:0", "cpu:9", "cpu:x", "0-3:0", "-1"])
def test_a_pool_that_is_not_understood_says_what_may_be_written(text: str) -> None:
    with pytest.raises(BadInput, match=r"--gpu-pool"):
        parse_pool(text, cores=[0, 1])


def test_a_lane_that_needs_more_than_the_pool_has_is_refused_before_anything_starts() -> None:
    with pytest.raises(BadInput, match="needs 2 cuda devices for one server"):
        parse_pool("0-3").require("cuda", 2)
    with pytest.raises(BadInput, match="needs a xpu device"):
        parse_pool("cpu:1").require("xpu", 1)


def test_one_device_is_never_leased_twice(tmp_path: Path) -> None:
    """Also where the slots of two pools overlap only in part: a pair holds each of its devices."""
    pair = parse_pool("0-1:2").acquire(timeout_s=0, folder=tmp_path)
    with pytest.raises(TimeoutError, match="cuda:1"):
        parse_pool("1").acquire(timeout_s=0, folder=tmp_path)
    pair.release()
    parse_pool("1").acquire(timeout_s=0, folder=tmp_path).release()


def test_a_lease_is_free_again_when_its_process_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "0", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    pool: Pool = parse_pool("0")
    with pytest.raises(TimeoutError):
        pool.acquire(timeout_s=0, folder=tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    pool.acquire(timeout_s=5, folder=tmp_path).release()
