"""Connections, framing and deadlines: whatever the wire does, the exchange ends and says what was wrong."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from fixtures.client.ask import ask
from fixtures.client.endpoint import Endpoint
from fixtures.client.stream import error_kind
from fixtures.client.wire import Deadlines
from tests.unit.golden.asking import (
    GOOD_CHUNK,
    PROMPT,
    SHORT,
    WORDS,
    answer_to,
    assert_complete,
    assert_dated_by,
    kind_of,
)
from tests.unit.golden.script import (
    HEAD,
    LAST_CHUNK,
    Script,
    Send,
    every,
    plain,
    script,
    stream,
    usage,
)
from tests.unit.golden.server import GoldenServer


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_early_close_keeps_what_came_and_says_so(reset):
    reply = script(stream(WORDS, usage=usage(3, 6)), stop_after=3, reset=reset)
    transcript, _ = answer_to(reply)
    assert transcript.error is not None
    assert error_kind(transcript.error) == "closed-early"
    assert transcript.token_ids == reply.ids[: len(transcript.token_ids)]
    if not reset:  # a reset may overtake bytes that were still on their way
        assert transcript.token_ids == reply.ids
        assert transcript.content == "".join(WORDS[:3])
    assert not transcript.saw_done


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b'{"error":{"message":"too long","code":400}}', "too long"),
        (401, b'{"error":"Unauthorized"}', "Unauthorized"),
        (404, b'{"object":"error","message":"no such model"}', "no such model"),
        (500, b"Internal Server Error", "Internal Server Error"),
        (503, b"", ""),
    ],
)
def test_a_refused_request_says_status_and_reason(status, body, words):
    transcript, _ = answer_to(plain(status, body))
    assert transcript.error == f"http: status {status}: {words}"
    assert transcript.http_status == status
    assert transcript.receipt_ns == ()


def test_a_body_cut_short_of_its_length_is_closed_early():
    assert (
        kind_of(Script((Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"),)), stream=False)
        == "closed-early"
    )


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]
)
def test_a_connection_closed_before_the_body_is_closed_early(reply):
    assert kind_of(Script((Send(reply),))) == "closed-early"


@pytest.mark.parametrize("reply", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"])
def test_what_is_no_http_response_is_malformed(reply):
    assert kind_of(Script((Send(reply),))) == "malformed"


def test_a_broken_chunk_size_is_malformed():
    reply = script(stream(WORDS), stop_after=2)
    assert "malformed" in (
        answer_to(Script((*reply.sends, Send(b"zz\r\nxx\r\n" + LAST_CHUNK))))[0].error or ""
    )


@pytest.mark.parametrize("wrong", [-1, 1, 40])
def test_a_chunk_of_another_size_than_it_says_is_malformed(wrong):
    size, rest = GOOD_CHUNK.split(b"\r\n", 1)
    reply = Script((Send(HEAD), Send(b"%x\r\n" % (int(size, 16) + wrong) + rest + GOOD_CHUNK + LAST_CHUNK)))
    transcript, _ = answer_to(reply)
    assert transcript.error is not None
    assert error_kind(transcript.error) in {"malformed", "closed-early"}
    assert "malformed" in transcript.error, transcript.error


def test_a_stream_that_ends_with_its_connection_is_read():
    """Without chunks and without a length the close is the end; only [DONE] then says that it is complete."""
    answer = stream(WORDS, usage=usage(3, 6))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    reply = Script(
        (Send(head), *(Send(e.data) for e in answer.events)), script(answer).ids, (), "".join(WORDS)
    )
    assert_complete(answer_to(reply)[0], reply)


@pytest.mark.parametrize("linger_s", [0.0, 30.0])
def test_the_last_chunk_ends_the_answer_whether_or_not_the_server_closes(linger_s):
    reply = script(stream(WORDS, usage=usage(3, 6)), linger_s=linger_s)
    began = time.monotonic()
    transcript, _ = answer_to(reply, SHORT)
    assert_complete(transcript, reply)
    assert time.monotonic() - began < 20, "waited for a connection that stays open"


def test_the_bytes_of_a_last_chunk_inside_the_data_are_not_the_end():
    text = "0\r\n\r\n"
    body = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[5],"finish_reason":"stop"}]}\n\n'
    )
    inside = b": " + text.encode()
    data = inside + b"\n\n" + body + b"data: [DONE]\n\n"
    framed = b"%x\r\n" % len(data)
    reply = Script(
        (Send(HEAD), Send(framed + inside), Send(data[len(inside) :] + b"\r\n" + LAST_CHUNK, 0.05))
    )
    transcript, _ = answer_to(reply)
    assert "closed-early" not in (transcript.error or "")
    assert transcript.token_ids == (5,)


@pytest.mark.parametrize("silence", ["before the head", "inside the stream"])
def test_a_silent_server_ends_in_a_timeout(silence):
    answer = stream(WORDS)
    sends = script(answer).sends[: 0 if silence == "before the head" else 3]
    transcript, _ = answer_to(Script(sends, linger_s=30), SHORT)
    assert error_kind(transcript.error or "") == "timeout"
    assert len(transcript.token_ids) == max(0, len(sends) - 1)
    assert transcript.done_ns - transcript.sent_ns < 5e9


def test_a_stream_that_never_ends_is_stopped_by_the_total_deadline():
    endless = stream(["a"] * 2000, wait_s=0.005)
    transcript, _ = answer_to(script(endless), Deadlines(total_s=0.2))
    assert (transcript.error or "").startswith("timeout: the answer was not complete after 0.2 s")
    assert 0 < len(transcript.token_ids) < 2000


def test_a_head_that_never_ends_is_stopped_by_the_total_deadline():
    trickle = Script((Send(b"HTTP/1.1 200 OK\r\n"), *[Send(b"x: y\r\n", 0.005)] * 2000))
    transcript, _ = answer_to(trickle, Deadlines(total_s=0.2))
    assert (transcript.error or "").startswith("timeout: the answer was not complete after 0.2 s")
    assert transcript.http_status == 0


def test_a_head_without_end_is_malformed():
    assert kind_of(Script((Send(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000),), linger_s=30)) == "malformed"


def test_nobody_listening_is_a_connect_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    transcript = ask(Endpoint(f"http://127.0.0.1:{port}", None, "m"), PROMPT, suite="s", arm="a")
    assert error_kind(transcript.error or "") == "connect"
    assert "refused" in (transcript.error or "").lower()
    assert (transcript.token_ids, transcript.http_status) == ((), 0)


@pytest.fixture
def loopback_certificate(tmp_path) -> Path:
    """A certificate for 127.0.0.1 with its key, made now and for this test only."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command on this machine to make a certificate with")
    made = tmp_path / "loopback.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names),
            *("-keyout", str(made), "-out", str(tmp_path / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    made.write_bytes(made.read_bytes() + (tmp_path / "certificate.pem").read_bytes())
    return made


def test_a_stream_over_tls_is_read_the_same_way(loopback_certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(loopback_certificate))
    reply = script(stream(WORDS, wait_s=0.01, usage=usage(3, 6)), cut=every(50))
    with GoldenServer(reply, certificate=loopback_certificate) as server:
        transcript = ask(Endpoint(server.base_url, "key", "m"), PROMPT, suite="s", arm="a", deadlines=SHORT)
    assert_complete(transcript, reply)
    assert_dated_by(server.exchanges[0], transcript)


def test_a_silent_server_over_tls_ends_in_a_timeout(loopback_certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(loopback_certificate))
    silent = Script(script(stream(WORDS)).sends[:3], linger_s=30)
    with GoldenServer(silent, certificate=loopback_certificate) as server:
        transcript = ask(Endpoint(server.base_url, "key", "m"), PROMPT, suite="s", arm="a", deadlines=SHORT)
    assert error_kind(transcript.error or "") == "timeout"
    assert len(transcript.token_ids) == 2


def test_an_untrusted_certificate_is_a_connect_error(loopback_certificate):
    with GoldenServer(script(stream(WORDS)), certificate=loopback_certificate) as server:
        transcript = ask(Endpoint(server.base_url, "key", "m"), PROMPT, suite="s", arm="a", deadlines=SHORT)
    assert error_kind(transcript.error or "") == "connect"
    assert server.exchanges == [], (
        "the request, and with it the key, went to a server that nobody vouches for"
    )
