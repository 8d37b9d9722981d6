"""Recorded answers are the suite's own, with the server's ids of the prompts, and nothing is generated for them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from fixtures.client.ask import ask
from fixtures.client.endpoint import Endpoint
from fixtures.client.reply import Reply
from fixtures.engine.switch import NotPlanted
from fixtures.fault_injection import recorded
from fixtures.fault_injection.recorded import recorded_answers
from fixtures.fault_injection.variants import LANE
from fixtures.fault_injection.workloads import workloads
from fixtures.judge.comparison import compare
from fixtures.judge.finding import Outcome
from fixtures.lanes.lane import load_lane

ENDPOINT = Endpoint("http://127.0.0.1:1", "key", "model")
WORKLOADS = workloads(load_lane(LANE))


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers every question for ids; returns the routes that were asked."""
    asked: list[str] = []

    def send(endpoint: Endpoint, method: str, route: str, body: Mapping[str, Any]) -> Reply:
        asked.append(route)
        assert body["add_generation_prompt"]
        return Reply(200, json.dumps({"tokens": [1, 2, 3], "count": 3}))

    monkeypatch.setattr(recorded, "send", send)
    return asked


def test_answers_are_the_suites_own_and_compare_as_answers_of_a_server(routes: list[str]) -> None:
    workload = WORKLOADS["concurrent"]
    said = recorded_answers(ENDPOINT, workload)
    assert set(routes) == {"/tokenize"}, "nothing may be generated: it can be an engine's last request"
    assert [t.token_ids for _, t in said] == [p.answer_ids for p in workload.suite.prompts]
    assert {t.prompt_token_ids for _, t in said} == {(1, 2, 3)}
    prompt, (_, right) = workload.suite.prompts[0], said[0]
    refused = ask(ENDPOINT, prompt, suite=workload.suite.name, arm="candidate#1")
    same = dataclasses.replace(
        refused, token_ids=right.token_ids, content=prompt.expect or "", finish_reason="stop", error=None
    )
    assert compare(right, same).outcome is Outcome.ACCEPTED
    wrong = dataclasses.replace(same, token_ids=(*right.token_ids[:-1], 0))
    assert compare(right, wrong).outcome is Outcome.REJECTED


def test_workloads_whose_answers_no_suite_carries_have_none(routes: list[str]) -> None:
    assert recorded_answers(ENDPOINT, WORKLOADS["penalties"]) == []
    assert recorded_answers(ENDPOINT, WORKLOADS["one-token-prompt"]) == []
    assert routes == []


def test_a_server_that_does_not_say_its_ids_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "send", lambda *_: Reply(0, "", "connect: refused"))
    with pytest.raises(NotPlanted, match="/tokenize: "):
        recorded_answers(ENDPOINT, WORKLOADS["sequential"])
