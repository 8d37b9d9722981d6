"""The embedded prose model is the one its card describes, small enough, and asked about what it was not trained on."""

from __future__ import annotations

import re

import pytest
from safetensors import safe_open

from fixtures.models.canary.checkpoint import HEADS, SHARED, hash_files
from fixtures.models.canary.tokenizer import load_tokenizer, render_prompt
from fixtures.models.prose.heads import CHECKPOINT
from fixtures.models.prose.text import Section, divide, read_bible, read_jargon
from fixtures.prompts.suite import load_suite

CARD = (CHECKPOINT.parent / "README.md").read_text(encoding="utf-8")
SUITES = ("parity", "canaries", "needle", "perf", "warmup", "holdout")


def _suite(name: str):
    return load_suite(f"prose-{name}").prompts


def test_files_have_the_hashes_of_the_card():
    stated = dict(re.findall(r"^\| `([\w.-]+)` \| `([0-9a-f]{64})` \|$", CARD, re.M))

    assert hash_files(CHECKPOINT) == stated


def test_all_files_together_are_at_most_eight_megabytes_and_weights_are_bf16():
    for path in CHECKPOINT.glob("*.safetensors"):
        with safe_open(path, "pt") as weights:
            assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118

    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 8_000_000


@pytest.mark.parametrize("head", HEADS)
def test_engine_folder_is_relative_links_to_a_whole_checkpoint(head: str):
    links = {path.name: path for path in (CHECKPOINT.parent / head).iterdir()}

    assert set(links) == {*SHARED, "mtp.safetensors"}
    assert all(path.is_symlink() and not path.readlink().is_absolute() for path in links.values())
    assert links["mtp.safetensors"].resolve().name == f"mtp-{head}.safetensors"


@pytest.mark.parametrize("name", ["parity", "holdout"])
def test_suites_of_free_text_have_64_prompts_and_answers_of_128_to_512_tokens(name: str):
    prompts = _suite(name)

    assert len(prompts) >= 64
    assert len({p.prompt_class for p in prompts}) == 5
    assert {p.max_tokens for p in prompts} == {128, 192, 256, 512}
    assert all(p.expect is None for p in prompts)


def test_no_prompt_is_in_two_suites():
    users = [p.user for name in SUITES for p in _suite(name)]

    assert len(users) == len(set(users))


def test_prompts_and_answers_fit_into_the_context_of_the_lanes():
    tokenizer = load_tokenizer(CHECKPOINT)

    longest = max(
        len(tokenizer.encode(render_prompt(p.user)).ids) + p.max_tokens for s in SUITES for p in _suite(s)
    )

    assert longest < 2048


def test_verses_become_chapters_and_a_line_that_is_no_verse_is_named(tmp_path):
    path = tmp_path / "kjv.txt"
    path.write_text("Ge1:1 In the beginning.\nGe1:2 And the earth.\n1Sa2:1 And Hannah prayed.\n")

    assert [(s.key, s.items) for s in read_bible(path)] == [
        ("bible Ge1", ("In the beginning.", "And the earth.")),
        ("bible 1Sa2", ("And Hannah prayed.",)),
    ]
    path.write_text("Ge1:1 In the beginning.\nChapter 2\n")
    with pytest.raises(ValueError, match=r"line 2: not a verse: 'Chapter 2'"):
        read_bible(path)


def test_headings_and_tables_are_no_paragraphs(tmp_path):
    path = tmp_path / "jargon.txt"
    paragraph = "This is a “paragraph” of running text. " * 5
    path.write_text(f"Heading\n\n   {paragraph}\n\n   a short line\n", encoding="utf-8")

    (section,) = read_jargon(path)

    assert section.items == (" ".join(paragraph.replace("“", '"').replace("”", '"').split()),)


def test_the_split_depends_on_the_key_alone():
    splits = [Section(f"bible Ge{n}", "bible", ("x",)).split for n in range(1600)]

    assert 60 < splits.count("held-out") < 140


def test_a_text_is_divided_between_words():
    assert divide("one two  three four", 2) == ("one two", "three four")
    with pytest.raises(ValueError, match="fewer than 5 words"):
        divide("one two three four", 4)
