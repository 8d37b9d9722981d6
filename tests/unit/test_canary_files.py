"""The embedded canary is the one its card describes, and its suites hold nothing that it was trained on."""

from __future__ import annotations

import json
import random
import re

import jinja2
import pytest
from safetensors import safe_open

from fixtures.models.canary import checkpoint as canary
from fixtures.models.canary.tasks import TASKS, Length, draw
from fixtures.models.canary.tokenizer import END, load_tokenizer, render_prompt
from fixtures.prompts.suite import load_suite

SUITES = ("parity", "canaries", "needle", "perf", "warmup", "holdout")
CARD = (canary.HERE / "README.md").read_text(encoding="utf-8")


def _suite(name: str):
    return load_suite(f"canary-{name}").prompts


def test_files_have_the_hashes_of_the_card():
    stated = dict(re.findall(r"^\| `([\w.-]+)` \| `([0-9a-f]{64})` \|$", CARD, re.M))

    assert canary.hash_files() == stated


def test_weights_are_bf16_and_at_most_five_megabytes():
    files = sorted(canary.CHECKPOINT.glob("*.safetensors"))

    for path in files:
        with safe_open(path, "pt") as weights:
            kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
        assert kinds == {"BF16"}, path.name
    assert sum(path.stat().st_size for path in files) <= 5_000_000


@pytest.mark.parametrize("head", canary.HEADS)
def test_engine_folder_is_relative_links_to_a_whole_checkpoint(head: str):
    folder = canary.HERE / head
    links = {path.name: path for path in folder.iterdir()}

    assert set(links) == {*canary.SHARED, "mtp.safetensors"}
    for path in links.values():
        assert path.is_symlink()
        assert not path.readlink().is_absolute()
        assert path.resolve().parent == canary.CHECKPOINT
    assert links["mtp.safetensors"].resolve().name == f"mtp-{head}.safetensors"


def test_config_describes_a_hybrid_with_one_draft_layer():
    config = json.loads((canary.CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    kinds = config["layer_types"]

    assert config["architectures"] == ["Qwen3_5ForCausalLM"]
    assert config["model_type"] == "qwen3_5_text"
    assert kinds.count("linear_attention") == 2 * kinds.count("full_attention") > 0
    assert config["mtp_num_hidden_layers"] == 1
    assert config["linear_conv_kernel_dim"] == 4
    assert config["vocab_size"] == load_tokenizer(canary.CHECKPOINT).get_vocab_size() <= 1024


def test_training_draws_share_no_prompt_and_no_key_with_the_suites():
    rng = random.Random("disjoint")
    lengths: tuple[Length, ...] = ("short", "medium", "long", "wide")
    trained = [draw(rng, task, "train", lengths[i % 4]) for task in TASKS for i in range(100)]
    asked = {prompt.user for name in SUITES for prompt in _suite(name)}

    assert {example.split for example in trained} == {"train"}
    assert asked.isdisjoint(example.user for example in trained)


@pytest.mark.parametrize("task", TASKS)
def test_splits_never_share_a_key(task: str):
    rng = random.Random(task)
    train = {draw(rng, task, "train", "short").key for _ in range(400)}
    held_out = {draw(rng, task, "held-out", "short").key for _ in range(60)}

    assert train.isdisjoint(held_out)


def test_sums_are_held_out_for_both_tasks_and_both_orders():
    rng = random.Random("sums")
    pairs = {"train": set(), "held-out": set()}
    for task in ("json", "add"):
        for split, seen in pairs.items():
            for _ in range(400):
                user = draw(rng, task, split, "short").user
                seen.add(frozenset(re.findall(r"\d+", user)))

    assert pairs["train"].isdisjoint(pairs["held-out"])


def test_suites_are_the_ones_that_the_script_writes():
    from fixtures.models.canary.suites import write_suites

    for name, drafted in write_suites().items():
        suite = load_suite(name.removesuffix("/reserve"))
        stored = suite.reserve if name.endswith("/reserve") else suite.prompts
        assert [(p.id, p.user, p.expect, p.max_tokens) for p in stored] == [
            (p.id, p.user, p.expect, p.max_tokens) for p in drafted
        ]


@pytest.mark.parametrize("name", SUITES)
def test_recorded_ids_are_the_expected_text_and_the_end_of_turn(name: str):
    tokenizer = load_tokenizer(canary.CHECKPOINT)

    for prompt in _suite(name):
        assert prompt.answer_ids is not None, prompt.id
        *answer, end = prompt.answer_ids
        assert end == tokenizer.token_to_id(END), prompt.id
        assert tokenizer.decode(answer, skip_special_tokens=False) == prompt.expect, prompt.id
        assert prompt.max_tokens == len(prompt.answer_ids) + 24, prompt.id


def test_no_prompt_is_in_two_suites():
    users = [prompt.user for name in SUITES for prompt in _suite(name)]

    assert len(users) == len(set(users))


def test_chat_template_is_what_training_rendered():
    template = jinja2.Template((canary.CHECKPOINT / "chat_template.jinja").read_text(encoding="utf-8"))
    messages = [{"role": "user", "content": "Count from 3 to 9."}]

    assert template.render(messages=messages, add_generation_prompt=True) == render_prompt(
        "Count from 3 to 9."
    )


@pytest.mark.parametrize("name", ["parity", "canaries", "needle", "perf"])
def test_no_answer_hangs_on_a_near_tie(name: str):
    margins = {prompt.id: prompt.meta["smallest_margin_nats"] for prompt in _suite(name)}

    assert min(margins.values()) >= 2, margins


def test_speed_prompts_are_long_enough_in_five_classes():
    lengths = {}
    for prompt in _suite("perf"):
        lengths.setdefault(prompt.prompt_class, []).append(len(prompt.answer_ids))

    assert len(lengths) == 5
    for name, tokens in lengths.items():
        assert len(tokens) == 3, name
        assert all(128 <= n <= 200 for n in tokens), (name, tokens)


def test_needles_reach_every_stated_length():
    reached = sorted((p.meta["at_least_tokens"], p.meta["prompt_tokens"]) for p in _suite("needle"))

    assert {wanted for wanted, _ in reached} == {256, 512, 1024}
    assert all(wanted <= got < wanted + 25 for wanted, got in reached), reached
