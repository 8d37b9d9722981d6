"""The modules that stacks add to the engine, tested without the engine: they are read out of their patches."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import unidiff

from fixtures.engine.patch_sets import load_stack


def added_module(stack: str, path: str) -> types.ModuleType:
    """Run the file that `stack` adds at `path` as a module of its own."""
    patches = load_stack(stack).patches
    files = [f for p in patches for f in unidiff.PatchSet(p.text) if f.path == path]
    source = "".join(line.value for line in files[0][0] if line.is_added)
    module = types.ModuleType(path)
    exec(compile(source, path, "exec"), module.__dict__)
    return module


@pytest.fixture
def near_tie(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor], torch.Tensor]:
    """`lowest_near_tie` with a margin of a quarter."""
    monkeypatch.setenv("DRAFTPROOF_TIE_MARGIN", "0.25")
    module = added_module("deterministic-greedy-tie", "vllm/v1/sample/near_tie.py")
    choose: Callable[[torch.Tensor], torch.Tensor] = module.lowest_near_tie
    return choose


@pytest.mark.parametrize(
    ("logits", "choice"),
    [
        ([0.0, 4.9, 5.0, 1.0], 1),
        ([0.0, 5.0, 4.9, 1.0], 1),
        ([0.0, 4.7, 5.0, 1.0], 2),
        ([5.0, 5.0, 5.0, 5.0], 0),
        ([-float("inf"), -float("inf"), 0.0, -1.0], 2),
        ([0.0, float("nan"), 5.0, 1.0], 1),
    ],
    ids=["near tie", "same, other way round", "no tie", "all equal", "masked", "nan as argmax"],
)
def test_lowest_id_of_a_near_tie_wins(
    near_tie: Callable[[torch.Tensor], torch.Tensor], logits: list[float], choice: int
) -> None:
    assert near_tie(torch.tensor([logits])).tolist() == [choice]


def test_rounding_below_the_margin_does_not_change_the_choice(
    near_tie: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(64, 512, generator=generator) * 3
    logits[:, 100] = logits.amax(-1) + 1
    logits[:, 200] = logits[:, 100]
    noise = (torch.rand(logits.shape, generator=generator) - 0.5) * 0.2
    assert near_tie(logits).tolist() == [100] * 64
    assert near_tie(logits + noise).tolist() == [100] * 64


@pytest.mark.parametrize("margin", ["-0.1", "2", "nan"])
def test_margin_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, margin: str) -> None:
    monkeypatch.setenv("DRAFTPROOF_TIE_MARGIN", margin)
    with pytest.raises(ValueError, match="DRAFTPROOF_TIE_MARGIN"):
        added_module("deterministic-greedy-tie", "vllm/v1/sample/near_tie.py")


def traced(monkeypatch: pytest.MonkeyPatch, path: Path | None, *, rank: int = 0, limit: int = 1000) -> Any:
    """The trace module, beside stand-ins for the two engine modules that it imports."""
    metadata = types.ModuleType("vllm.v1.spec_decode.metadata")
    metadata.SpecDecodeMetadata = object  # type: ignore[attr-defined]
    parallel = types.ModuleType("vllm.distributed.parallel_state")
    parallel.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=rank)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, metadata.__name__, metadata)
    monkeypatch.setitem(sys.modules, parallel.__name__, parallel)
    monkeypatch.setenv("DRAFTPROOF_ROUND_TRACE", str(path or ""))
    monkeypatch.setenv("DRAFTPROOF_ROUND_TRACE_LIMIT", str(limit))
    return added_module("spec-round-trace", "vllm/v1/spec_decode/round_trace.py")


def write_round(trace: Any, drafts: list[list[int]], rows: list[list[int]], discarded: list[bool]) -> None:
    """One step of requests `r0`, `r1`, ...: `rows` are the sampled ids, -1 where nothing was emitted."""
    metadata = types.SimpleNamespace(
        num_draft_tokens=[len(d) for d in drafts],
        draft_token_ids=torch.tensor([t for d in drafts for t in d]),
    )
    argmax = list(range(100, 100 + sum(len(d) + 1 for d in drafts)))
    names = [f"r{n}" for n in range(len(drafts))]
    trace.write(names, discarded, metadata, argmax, torch.tensor(rows))


def test_trace_gives_each_request_its_own_rows_of_a_ragged_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = traced(monkeypatch, tmp_path / "trace.jsonl")
    write_round(trace, [[7, 8], [], [9]], [[7, 101, -1], [102, -1, -1], [103, -1, -1]], [False, False, True])
    write_round(trace, [[5]], [[5, 101, -1]], [False])
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [
        (x["request"], x["round"], x["first_output_token"], x["drafts"], x["accepted"]) for x in lines
    ] == [
        ("r0", 0, 0, [7, 8], 1),
        ("r1", 0, 0, [], 0),
        ("r0", 1, 2, [5], 1),
    ]
    assert [x["target_argmax"] for x in lines] == [[100, 101, 102], [103], [100, 101]]
    assert [x["emitted"] for x in lines] == [[7, 101], [102], [5, 101]]


def test_trace_is_off_without_a_file_name_and_on_other_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert traced(monkeypatch, None).target_argmax(torch.zeros(1, 4)) is None
    other = traced(monkeypatch, tmp_path / "trace.jsonl", rank=1)
    assert other.target_argmax(torch.tensor([[0.0, 1.0]])) == [1]
    write_round(other, [[5]], [[5, 101]], [False])
    assert other.target_argmax(torch.tensor([[0.0, 1.0]])) is None
    assert not (tmp_path / "trace.jsonl").exists()


def test_trace_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = traced(monkeypatch, tmp_path / "trace.jsonl", limit=3)
    for _ in range(6):
        if trace.target_argmax(torch.tensor([[0.0, 1.0]])) is not None:
            write_round(trace, [[5], [6]], [[5, 101], [6, 103]], [False, False])
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert lines[-1] == {"cut_after_lines": 3}
