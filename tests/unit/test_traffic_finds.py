"""Generated traffic finds what nobody wrote a test for, reduces it, and is quiet on a sound server."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest

from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.verdict import derive
from fixtures.traffic.drive import Driver, Side
from fixtures.traffic.generate import Known, Material
from fixtures.traffic.session import Request, Route, Session
from fixtures.traffic.shrink import reduce_session
from tests.unit.traffic_standin import END, Letters, StandIn, standing_in


def known(text: str) -> Known:
    """A prompt with the answer that the stand-in's model has always given."""
    ids = [*Letters().ids(text), 0]
    answer, _, _ = StandIn().answer(ids, {"max_tokens": 60})
    return Known(({"role": "user", "content": text},), tuple(ids), tuple(answer), Letters().of(answer))


MATERIAL = Material(
    known=(known("sort"), known("count to ten")),
    printable=tuple(range(END)),
    broken=(),
    context=256,
    boundaries=(16, 64),
    depth=3,
    responses=False,
    avoided=frozenset(
        {
            "sampled",
            "structured",
            "allowed-ids",
            "penalty",
            "echo",
            "tools",
            "bad-words",
            "specials",
            "prompt-logprobs",
        }
    ),
    filler=tuple(n % END for n in range(40)),
)
"""What the stand-in knows; the features that it does not implement are left out."""


class RowList:
    """Rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {}

    def append(self, kind: str, row: dict[str, object]) -> None:
        """Append one row of a kind."""
        self.rows.setdefault(kind, []).append(row)


def run_traffic(faults: Sequence[str], sessions: int = 12, reduce: bool = False) -> RowList:
    """Play sessions on a sound target and a candidate with faults."""
    rows = RowList()
    with standing_in() as target, standing_in(*faults, drafts=3) as candidate:
        driver = Driver(
            Side("target#1", "target", lambda: target, 0),
            Side("candidate#1", "candidate", lambda: candidate, 3),
            Letters(),
            0.5,
            rows,
            idle_s=0.2,
            replays=60 if reduce else 0,
        )
        driver.run(MATERIAL, run_seed=7, minutes=10, most=sessions)
    return rows


def findings_of(rows: dict[str, list[dict[str, object]]]) -> list[Finding]:
    """What the judges of a run say about generated traffic."""
    return [f for f in derive(rows).findings if f.check.startswith("traffic.")]


def checks_of(rows: RowList) -> set[str]:
    """Checks that rejected something."""
    return {f.check for f in findings_of(rows.rows) if f.outcome is Outcome.REJECTED}


def test_a_sound_server_is_accepted() -> None:
    """No rule speaks, and what was shown says how many ids stand behind it."""
    findings = findings_of(run_traffic((), sessions=30).rows)
    wrong = [f"{f.check}: {f.message}" for f in findings if f.outcome is not Outcome.ACCEPTED]
    assert not wrong, "\n".join(wrong)
    (shown,) = [f for f in findings if f.check == "traffic.shown"]
    assert "30 sessions" in shown.message


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("wrong-token", "traffic.ids"),
        ("wrong-beside-others", "traffic.ids"),
        ("stop-id-ignored", "traffic.finish"),
        ("usage-counts-one-more", "traffic.usage"),
        ("logprobs-one-late", "traffic.logprobs"),
        ("drops-last-delta", "traffic.text"),
        ("goes-on-after-end", "traffic.events"),
        ("no-done", "traffic.events"),
        ("counts-too-few", "traffic.numbers"),
        ("accepts-more-than-drafted", "traffic.numbers"),
        ("no-draft-counters", "traffic.numbers"),
        ("refuses-seeds", "traffic.refusal"),
        ("leak", "traffic.idle"),
    ],
)
def test_each_fault_is_found_by_the_check_that_it_is_for(fault: str, check: str) -> None:
    """Nobody tells the generator what to send."""
    assert check in checks_of(run_traffic((fault,)))


def test_what_is_found_is_reduced_to_the_fewest_requests() -> None:
    """A fault that needs a neighbour is reduced to two requests without any option."""
    rows = run_traffic(("wrong-beside-others",), sessions=3, reduce=True)
    reduced = [r for r in rows.rows["traffic_found"] if r["check"] == "traffic.ids"]
    assert reduced
    session = Session.from_row(reduced[0]["reduced"])  # type: ignore[arg-type]
    assert len(session.requests) == 2, reduced[0]
    for request in session.requests:
        assert set(request.options) <= {"temperature", "return_token_ids", "max_tokens"}
    assert reduced[0]["shown"], "it has to show again"


def test_a_step_that_shows_by_luck_is_not_kept_where_what_was_found_shows_every_time() -> None:
    """The pair shows always, each half of it one time in three: the pair is what is said."""
    plays: Counter[int] = Counter()

    def shows(session: Session) -> bool:
        plays[len(session.requests)] += 1
        return len(session.requests) >= 2 or plays[1] % 3 == 0

    requests = tuple(Request(Route.COMPLETIONS, [n], {"max_tokens": 1}) for n in range(4))
    reduced = reduce_session(Session(0, requests), shows)
    assert (len(reduced.session.requests), reduced.shown, reduced.tried) == (2, 3, 3)


def test_what_shows_now_and_then_is_reduced_and_its_rate_is_said() -> None:
    """Every second play shows: one of three tries is enough for a step, and the rate is no certainty."""
    plays: Counter[str] = Counter()

    def shows(_: Session) -> bool:
        plays["all"] += 1
        return plays["all"] % 2 == 0

    requests = tuple(Request(Route.COMPLETIONS, [n], {"max_tokens": 1}) for n in range(4))
    reduced = reduce_session(Session(0, requests), shows)
    assert len(reduced.session.requests) == 1
    assert 0 < reduced.shown < reduced.tried


def test_what_never_shows_again_is_said_as_it_was_found() -> None:
    """Three plays are spent on it, and the session stays whole."""
    requests = tuple(Request(Route.COMPLETIONS, [n], {"max_tokens": 1}) for n in range(4))
    session = Session(0, requests)
    reduced = reduce_session(session, lambda _: False)
    assert (reduced.session, reduced.replays, reduced.shown, reduced.tried) == (session, 3, 0, 3)


def test_the_same_seed_plays_the_same_sessions() -> None:
    """Seeds are in the packet: what was played can be played again."""
    played = [[r["played"]["session"] for r in run_traffic((), 6).rows["traffic"]] for _ in range(2)]  # type: ignore[index]
    assert played[0] == played[1]


def test_a_session_survives_its_row() -> None:
    """Rows are read back to the same values."""
    request = Request(Route.CHAT, [{"role": "user", "content": "x"}], {"max_tokens": 3}, True, 5, 2, (1, 2))
    session = Session(4, (request, dataclasses.replace(request, route=Route.COMPLETIONS, prompt=[1])))
    assert Session.from_row(session.to_row()) == session


def test_the_stand_in_says_the_same_twice() -> None:
    """The stand-in itself is sound."""
    assert StandIn().answer([1, 2], {"max_tokens": 9}) == StandIn().answer([1, 2], {"max_tokens": 9})
