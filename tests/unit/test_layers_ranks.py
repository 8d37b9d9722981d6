"""Groups of rank processes: who fails is named, nothing is left, and a report cannot lie about its place."""

from __future__ import annotations

import time

import pytest
import torch

from fixtures.layers.ranks import CollectivePlan, RankError, RankGroup, inputs_of, poison_of, rank_devices


def plan(**changes):
    values = {
        "operation": "all_reduce",
        "dtype": torch.float32,
        "rows": 1,
        "width": 8,
        "replays": 2,
        "seed": 5,
    }
    return CollectivePlan(**{**values, **changes})


def test_a_group_that_cannot_start_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(RankError, match=r"start of nonsense: rank \d of 2 (failed|died)"):
        RankGroup("nonsense", ["cpu", "cpu"], deadline_s=90)
    assert time.monotonic() - start < 90
    assert not list(tmp_path.iterdir())


def test_what_a_rank_raises_is_told_and_the_group_is_gone():
    with RankGroup("torch", ["cpu", "cpu"]) as group:
        assert group.alive
        with pytest.raises(RankError, match=r"rank \d of 2 failed: AttributeError: .*no_such_operation"):
            group.run(plan(operation="no_such_operation"), deadline_s=60)
        assert not group.alive


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_inputs_are_the_same_in_every_process_and_poison_is_none_of_their_sums(dtype):
    ours = plan(dtype=dtype, rows=4, width=64, replays=50)
    first, again, other = inputs_of(ours, 0), inputs_of(ours, 0), inputs_of(ours, 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.tensor(poison_of(ours)).to(dtype) not in (first.double() + other.double()).to(dtype)


def test_too_few_devices_are_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RankError, match="2 ranks from cuda:0 on; there are 1 devices"):
        rank_devices(torch.device("cuda:0"), 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert rank_devices(torch.device("cuda:2"), 2) == ["cuda:2", "cuda:3"]
    assert rank_devices(torch.device("cpu"), 3) == ["cpu"] * 3
