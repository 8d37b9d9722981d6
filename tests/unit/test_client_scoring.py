"""Scores of given ids and readings of whole answers, and servers that give none."""

from __future__ import annotations

import json

import pytest

from fixtures.client.endpoint import Endpoint
from fixtures.client.scoring import ScoringFailed, read_answer, score, score_steps
from tests.unit.golden.script import plain
from tests.unit.golden.server import GoldenServer


def scored(count: int = 20, **changes) -> bytes:
    top = {f"token_id:{i}": -0.5 * i - 0.001 for i in range(count)}
    logprobs = {"tokens": ["token_id:0"], "token_logprobs": [-0.001], "top_logprobs": [top]} | changes
    choice = {"index": 0, "text": "a", "logprobs": logprobs, "token_ids": [0], "prompt_token_ids": [7, 8]}
    return json.dumps({"choices": [choice], "usage": {}}).encode()


def test_scoring_returns_logprobs_by_token_id():
    with GoldenServer(plain(200, scored())) as server:
        token = score(Endpoint(server.base_url, "k", "m"), [7, 8])
    assert token.best == 0
    assert token.margin_nats == pytest.approx(0.5)
    assert token.gap_nats(3) == pytest.approx(1.5)
    assert token.gap_nats(99) is None, "an id that was not among the best is unknown"
    assert (token.context_length, len(token.logprobs)) == (2, 20)
    assert server.exchanges[0].json == {
        "model": "m",
        "prompt": [7, 8],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 20,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def test_the_steps_of_an_answer_are_scored_with_the_ids_that_were_chosen():
    tops = [{"token_id:4": -1.0, "token_id:3": -1.0}, {"token_id:9": -0.1, "token_id:8": -3.0}]
    reply = scored(top_logprobs=tops).replace(b'"token_ids": [0]', b'"token_ids": [4, 9]')
    with GoldenServer(plain(200, reply)) as server:
        steps = score_steps(Endpoint(server.base_url, None, "m"), [7, 8], 2, top=2)
    assert [(s.context_length, s.best, s.chosen) for s in steps] == [(2, 3, 4), (3, 9, 9)]
    sent = server.exchanges[0].json
    assert (sent["max_tokens"], sent["ignore_eos"]) == (2, True)


def test_an_answer_with_fewer_steps_than_asked_for_is_refused():
    with GoldenServer(plain(200, scored())) as server, pytest.raises(ScoringFailed, match="of 3 next token"):
        score_steps(Endpoint(server.base_url, None, "m"), [7, 8], 3)
    with pytest.raises(ValueError, match="steps: expected 1 or more, got 0"):
        score_steps(Endpoint("http://127.0.0.1:9", None, "m"), [7, 8], 0)


def test_of_equal_logprobs_the_lower_id_is_best_and_the_margin_is_zero():
    top = {f"token_id:{i}": -1.0 for i in (5, 3)}
    with GoldenServer(plain(200, scored(top_logprobs=[top]))) as server:
        token = score(Endpoint(server.base_url, None, "m"), [7, 8], top=2)
    assert (token.best, token.margin_nats) == (3, 0.0)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (plain(400, b'{"error":"logprobs too large"}'), "status 400.*logprobs too large"),
        (plain(200, b"{}"), "choices"),
        (plain(200, scored(count=7)), "asked for the 20 best tokens, got 7"),
        (plain(200, scored(top_logprobs=[{"the": -1.0}])), "expected token_id:N"),
        (plain(200, scored(top_logprobs=None)), "no log-probabilities"),
        (plain(200, scored().replace(b"[7, 8]", b"[7, 9]")), "other ids"),
        (plain(200, scored().replace(b'"token_id:0": -0.001', b'"token_id:0": NaN')), "JSON is malformed"),
    ],
)
def test_a_server_that_does_not_score_is_named(reply, words):
    with GoldenServer(reply) as server, pytest.raises(ScoringFailed, match=words):
        score(Endpoint(server.base_url, None, "m"), [7, 8])


@pytest.mark.parametrize(("ids", "top"), [([], 20), ([-1], 20), ([1], 1), ([1], 21)])
def test_scoring_what_cannot_be_scored_raises(ids, top):
    with pytest.raises(ValueError, match=r"context_ids|top"):
        score(Endpoint("http://127.0.0.1:9", None, "m"), ids, top=top)


def read_reply(places: list | None = None, **changes) -> bytes:
    """A reply to prompt [7, 8] and answer [4, 9, 5]: the last token is the next one after the others."""
    places = (
        places
        if places is not None
        else [
            None,
            {"8": {"logprob": -2.0, "rank": 3}},
            {"4": {"logprob": -0.1, "rank": 1}, "3": {"logprob": -3.0, "rank": 2}},
            {
                "9": {"logprob": -7.5, "rank": 250},
                "1": {"logprob": -0.5, "rank": 1},
                "2": {"logprob": -1.5, "rank": 2},
            },
        ]
    )
    top = {"token_id:6": -0.25, "token_id:5": -0.375}
    choice = {
        "index": 0,
        "text": "a",
        "logprobs": {"tokens": ["token_id:6"], "token_logprobs": [-0.25], "top_logprobs": [top]},
        "token_ids": [6],
        "prompt_token_ids": [7, 8, 4, 9],
        "prompt_logprobs": places,
    }
    return json.dumps({"choices": [choice | changes], "usage": {}}).encode()


def test_an_answer_is_read_at_once_and_its_last_token_is_the_next_one():
    with GoldenServer(plain(200, read_reply())) as server:
        read = read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 5], top=2)
    assert read.logprobs == (-0.1, -7.5, -0.375)
    assert read.ranks == (1, 250, 2)
    assert read.best == (-0.1, -0.5, -0.25)
    assert read.heads == {1: {9: -7.5, 1: -0.5, 2: -1.5}, 2: {6: -0.25, 5: -0.375}}
    sent = server.exchanges[0].json
    assert (sent["prompt"], sent["max_tokens"], sent["prompt_logprobs"]) == ([7, 8, 4, 9], 1, 2)


def test_a_last_token_that_is_not_among_the_best_has_no_logprob_and_no_rank():
    with GoldenServer(plain(200, read_reply())) as server:
        read = read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 77], top=2)
    assert (read.logprobs[2], read.ranks[2], read.worst[2]) == (None, None, -0.375)
    assert 2 in read.heads


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (plain(400, b'{"error":"token 9999 is out of vocabulary"}'), "status 400.*out of vocabulary"),
        (plain(200, read_reply(prompt_logprobs=None)), "no log-probabilities of a prompt"),
        (plain(200, read_reply([None] * 3)), "of 3 prompt tokens, 4 were sent"),
        (plain(200, read_reply([None] * 4)), "no log-probabilities of prompt token 2"),
        (plain(200, read_reply(prompt_token_ids=[7, 8, 4, 1])), "other ids"),
    ],
)
def test_a_server_that_does_not_read_answers_is_named(reply, words):
    with GoldenServer(reply) as server, pytest.raises(ScoringFailed, match=words):
        read_answer(Endpoint(server.base_url, None, "m"), [7, 8], [4, 9, 5], top=2)


@pytest.mark.parametrize(
    ("prompt", "answer", "top"), [([], [1], 20), ([1], [], 20), ([1], [-1], 20), ([1], [1], 0)]
)
def test_reading_what_cannot_be_read_raises(prompt, answer, top):
    with pytest.raises(ValueError, match=r"prompt_ids|top"):
        read_answer(Endpoint("http://127.0.0.1:9", None, "m"), prompt, answer, top=top)
