"""Suites are parsed at the door: ours, and the lab's as they are; what cannot be read says where and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.parsing import BadInput
from fixtures.prompts.suite import LAB_MAX_TOKENS, known_suites, load_suite

LAB: dict[str, Any] = {
    "suite_id": "some-model-realistic-v1",
    "version": 1,
    "description": "Fixed cold-response prompts.",
    "metric": "median generated-token throughput",
    "prompts": [
        {"id": "incident", "prompt": "Write a retrospective."},
        {"id": "review", "prompt": "Review this change.", "category": "code", "notes": "left alone"},
    ],
}


def write(tmp_path: Path, suite: dict[str, Any]) -> str:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(suite, indent=1), encoding="utf-8")
    return str(path)


def test_a_lab_suite_loads_as_it_is(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, LAB))
    assert suite.name == "some-model-realistic-v1"
    assert [(p.id, p.prompt_class, p.max_tokens, p.expect) for p in suite.prompts] == [
        ("incident", "incident", LAB_MAX_TOKENS, None),
        ("review", "code", LAB_MAX_TOKENS, None),
    ]
    assert suite.prompts[0].messages == [{"role": "user", "content": "Write a retrospective."}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": []}, r"suite\.json:\d+: prompts: .*at least 1"),
        ({"prompts": [{"id": "a"}]}, r"suite\.json:\d+: prompts\.0\.prompt: Field required"),
        ({"prompts": [{"id": "a", "prompt": ""}]}, r"prompts\.0\.prompt: .*at least 1 character"),
        ({"prompts": LAB["prompts"] * 2}, r"prompt ids occur more than once: incident, review"),
        ({"suite_id": ""}, r"suite_id: .*at least 1 character"),
    ],
)
def test_a_lab_suite_that_cannot_be_used_says_what_is_wrong(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        load_suite(write(tmp_path, LAB | change))


def test_a_file_that_is_neither_says_which_fields_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"suite\.json:\d+: schema: Field required"):
        load_suite(write(tmp_path, {"name": "x", "description": "", "prompts": LAB["prompts"]}))


def test_an_unknown_suite_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"known: .*canary-parity.*chat-parity"):
        load_suite("nonsense")


CHAT_CLASSES = ("operations", "code", "prose", "analysis", "documentation", "structured writing")


def test_the_chat_suites_have_six_classes_and_share_no_prompt() -> None:
    parity, holdout = load_suite("chat-parity"), load_suite("chat-holdout")
    assert parity.classes == holdout.classes == CHAT_CLASSES
    for suite, most in ((parity, 5), (holdout, 2)):
        assert all(sum(p.prompt_class == c for p in suite.prompts) == most for c in CHAT_CLASSES)


@pytest.mark.parametrize("family", ["canary", "chat"])
def test_nothing_of_a_holdout_suite_is_in_a_suite_that_stacks_are_tuned_with(family: str) -> None:
    held_out = {p.user for p in load_suite(f"{family}-holdout").prompts}
    others = [n for n in known_suites() if n.startswith(f"{family}-") and n != f"{family}-holdout"]
    assert others
    for name in others:
        assert not held_out & {p.user for p in load_suite(name).prompts}, name
