"""Secrets go, evidence stays."""

from __future__ import annotations

import pytest

from fixtures.evidence.redaction import REDACTED, is_telling, redact, redact_text


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey".lower(),
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "DB_PASSWORD",
        "client_secret",
        "Authorization",
        "token",
    ],
)
def test_names_that_announce_a_secret(name: str) -> None:
    assert is_telling(name)
    assert redact({name: "value"}) == {name: REDACTED}


@pytest.mark.parametrize(
    "name", ["token_ids", "max_tokens", "completion_tokens", "monkey", "keyboard_layout"]
)
def test_evidence_with_a_similar_name_keeps_its_numbers(name: str) -> None:
    assert redact({name: 5}) == {name: 5}
    assert redact({name: [1, 2]}) == {name: [1, 2]}


def test_secrets_are_found_deep_inside_and_in_option_lists() -> None:
    value = {
        "a": [{"env": {"X_SECRET": "s"}}],
        "argv": ["--api-key", "k", "--hf-token=t", "--max-tokens", "5"],
    }
    assert redact(value) == {
        "a": [{"env": {"X_SECRET": REDACTED}}],
        "argv": ["--api-key", REDACTED, f"--hf-token={REDACTED}", "--max-tokens", "5"],
    }


def test_known_secrets_are_replaced_wherever_they_turn_up() -> None:
    assert redact(["x-hunter2-y", {"k": "hunter2"}], ["hunter2"]) == [f"x-{REDACTED}-y", {"k": REDACTED}]


def test_a_log_loses_its_credentials_and_nothing_else() -> None:
    log = "GET / Bearer abcdefgh12\nVLLM_API_KEY=xyz --api-key abc\n512 tokens, max_tokens=512"
    clean = redact_text(log)
    assert "abcdefgh12" not in clean
    assert "xyz" not in clean
    assert "--api-key abc" not in clean
    assert clean.endswith("512 tokens, max_tokens=512")


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("args: {'api_key': ['abc-1'], 'port': 1}", f"args: {{'api_key': ['{REDACTED}'], 'port': 1}}"),
        ('{"hf_token": "abc-1", "model": "m"}', f'{{"hf_token": "{REDACTED}", "model": "m"}}'),
        ("{'token_ids': [1, 2], 'tokenizer': 'x'}", "{'token_ids': [1, 2], 'tokenizer': 'x'}"),
    ],
)
def test_printed_dictionaries_lose_what_stands_under_a_telling_name(line: str, clean: str) -> None:
    assert redact_text(line) == clean
