"""A failed API test ends with a sentence: asked, expected and got, by which arm, and what the other arm gave."""

from __future__ import annotations

import pytest
from judge_rows import transcript

from fixtures.client.reply import Reply
from fixtures.client.transcript import Usage
from fixtures.workload.expectation import Expectation, Heard, Unexpected

ASKED = "for json-1 with max_tokens 3"


def said_by(expect: Expectation, **changes: object) -> str:
    """The sentence that an answer of three ids comes to, held to `7, 8, 9`; empty where it is accepted."""
    try:
        expect.answer(ASKED, transcript(ids=changes.pop("ids", [7, 8, 9]), **changes), ids=(7, 8, 9))  # type: ignore[arg-type]
    except Unexpected as error:
        return str(error)
    return ""


def test_what_was_expected_says_nothing() -> None:
    expect = Expectation("candidate#1")
    answer = transcript(ids=[7, 8, 9], content="abc", usage=Usage(40, 3, 0))
    expect.answer(
        ASKED,
        answer,
        ids=[7, 8, 9],
        text="abc",
        finish_reason="stop",
        completion_tokens=3,
        prompt_tokens=40,
        cached_tokens=0,
    )
    expect.refusal(ASKED, Reply(400, '{"error": {"message": "max_tokens is negative"}}'), names="max_tokens")
    expect.equal(ASKED, "status", 200, 200)
    expect.none_wrong(ASKED, "nothing", [])
    expect.engaged(ASKED, True, speculates=True)


def test_other_ids_are_shown_around_the_place_where_they_differ() -> None:
    said = said_by(Expectation("candidate#1"), ids=[7, 8, 5])
    assert said == (
        "candidate#1 was asked for json-1 with max_tokens 3: expected 3 ids, from 0 on [7, 8, 9], "
        "got 3 ids, [7, 8, 5], other from id 2 on; no other arm was asked this"
    )


@pytest.mark.parametrize(
    ("target", "others"),
    [
        ([7, 8, 9], "target#1 gave what was expected"),
        ([7, 8, 5], "target#1 gave the same"),
        ([1, 8, 9], "target#1 gave something else: 3 ids, [1, 8, 9], other from id 0 on"),
    ],
    ids=["right", "same", "other"],
)
def test_the_other_arm_says_whether_the_drafts_are_at_fault(target: list[int], others: str) -> None:
    heard = Heard()
    said_by(Expectation("target#1", heard), ids=target)
    assert said_by(Expectation("candidate#1", heard), ids=[7, 8, 5]).endswith(f"; {others}")


def test_an_error_comes_before_what_the_answer_says() -> None:
    said = said_by(Expectation("candidate#1"), error="connection refused")
    assert "expected an answer, got connection refused" in said


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(200, "{}"), "expected status 400 with a message that names top_k, got 200: {}"),
        (Reply(400, '{"error": {"message": "no"}}'), "got 400: no"),
        (Reply(0, "", "connection reset"), "got 0: connection reset"),
    ],
    ids=["answered", "without the name", "broken off"],
)
def test_a_refusal_has_its_status_and_names_what_it_refuses(reply: Reply, says: str) -> None:
    with pytest.raises(Unexpected, match=r"was asked .*") as caught:
        Expectation("target#1").refusal(ASKED, reply, status=400, names="top_k")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("drafted", "speculates", "got"), [(False, True, "got none"), (True, False, "got some")]
)
def test_drafts_have_to_be_accepted_where_they_are_made(drafted: bool, speculates: bool, got: str) -> None:
    with pytest.raises(Unexpected, match=got):
        Expectation("candidate#1").engaged(ASKED, drafted, speculates=speculates)


def test_of_many_wrong_things_the_first_are_named() -> None:
    with pytest.raises(Unexpected, match="expected right answers, got 9 wrong: p0; p1"):
        Expectation("candidate#1").none_wrong(ASKED, "right answers", [f"p{n}" for n in range(9)])
