"""Passes in other shapes: which prompts are asked, and that a mixed stream can be told apart again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from judge_rows import transcript

from fixtures.diagnosis.explaining import RoundSource
from fixtures.diagnosis.replay import default_pool, select
from fixtures.judge.rounds import Round
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput
from fixtures.prompts.suite import load_suite
from fixtures.workload.shapes import SHAPES, mix, sample


def test_a_sample_has_prompts_of_every_class_short_and_long() -> None:
    suite = load_suite("canary-parity")
    part = sample(suite)
    assert part.name == suite.name, "its answers are compared with those of the whole suite"
    assert Counter(p.prompt_class for p in part.prompts) == dict.fromkeys(suite.classes, 2)
    assert len(part.prompts) >= max(shape.concurrency for shape in SHAPES)
    ids = [p.id for p in part.prompts]
    assert {"count-1", "count-8"} <= set(ids)
    assert len(sample(suite, 1).prompts) == len(suite.classes)
    assert len(sample(suite, 100).prompts) == len(suite.prompts)


def test_shapes_have_names_of_their_own_and_both_orders_and_two_batch_sizes() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert {shape.concurrency for shape in SHAPES} == {1, 4, 16}


def test_a_mixed_stream_has_every_canary_as_often_as_asked_and_every_other_prompt_once() -> None:
    canaries, others = load_suite("canary-canaries"), sample(load_suite("canary-parity"))
    mixed, stands_for = mix(canaries, 28, [(others.name, p) for p in others.prompts])
    assert len({p.id for p in mixed.prompts}) == len(mixed.prompts)
    count = Counter(stands_for[p.id] for p in mixed.prompts)
    assert {n for (suite, _), n in count.items() if suite == canaries.name} == {28}
    assert {n for (suite, _), n in count.items() if suite == others.name} == {1}
    texts = {(others.name, p.id): p.user for p in others.prompts}
    assert all(texts.get(stands_for[p.id], p.user) == p.user for p in mixed.prompts)


def test_a_replay_asks_one_prompt_alone_and_the_whole_suite_where_requests_share_batches() -> None:
    alone, wanted = select("canary-parity/count-3", 1)
    assert [p.id for p in alone.prompts] == [wanted] == ["count-3"]
    together, _ = select("canary-parity/count-3", 16)
    assert len(together.prompts) == len(load_suite("canary-parity").prompts)
    assert default_pool(load_lane("canary-cpu")) == "cpu:2"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("count-3", "expected SUITE/PROMPT"),
        ("canary-parity/nonsense", r"has no prompt 'nonsense'; it has sort-1"),
        ("nonsense/count-3", "known: .*canary-parity"),
    ],
)
def test_a_replay_of_what_does_not_exist_says_what_does(named: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(named, 1)


def test_rounds_are_told_by_a_trace_first_and_by_the_stream_only_where_it_counts(tmp_path: Path) -> None:
    answer = transcript(ids=[7, 8, 9], receipt_ns=(10, 20, 20))
    trace = tmp_path / "rounds.jsonl"
    by_stream = RoundSource(trace, 3, {"suite"}).find(answer)
    assert by_stream is not None
    assert (by_stream.source, by_stream.rounds) == ("stream", (Round(3, 1),))
    assert RoundSource(trace, 3).find(answer) is None
    trace.write_text(
        '{"request": "r", "first_output_token": 0, "drafts": [], "target_argmax": [7], "accepted": 0, "emitted": [7]}\n'
        '{"request": "r", "first_output_token": 1, "drafts": [8, 1], "target_argmax": [8, 9, 4], "accepted": 1, '
        '"emitted": [8, 9]}\n',
        encoding="utf-8",
    )
    traced = RoundSource(trace, 3, {"suite"}).find(answer)
    assert traced is not None
    assert (traced.source, traced.rounds, traced.chosen[2]) == ("trace", (Round(2, 1),), 9)
