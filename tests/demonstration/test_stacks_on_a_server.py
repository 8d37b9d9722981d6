"""The reporting and the tracing stack, combined on one real server: each does what it says, and stock does not.

Whether they leave everything else alone is the gate's question (`pytest --gate HEAD --stack NAME`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.instruments import TRACE_FILE
from fixtures.arms.servers import Arms
from fixtures.client.metrics import difference, read_counters
from fixtures.judge.rounds import read_trace
from fixtures.lanes.lane import load_lane
from fixtures.workload.caller import Caller

pytestmark = pytest.mark.stress

LANE, STACKS = "canary-cpu", "cached-tokens-always+spec-round-trace"
FLAG = "--enable-prompt-tokens-details"
"""With it, stock reports the field too: a server of this file is started without."""


def caller_of(arms: Arms, stack: str) -> Caller:
    """A drafting server of the default lane without the flag."""
    lane = load_lane(LANE)
    assert FLAG in lane.engine.arguments
    engine = lane.engine.model_copy(
        update={"arguments": tuple(a for a in lane.engine.arguments if a != FLAG)}
    )
    arm = make_arm(lane.model_copy(update={"engine": engine}), "candidate", stack=stack)
    return Caller(arms.server(arm).endpoint, arm)


def usages(caller: Caller) -> Mapping[str, Any]:
    """The final usage of every kind of request that has one, as the server wrote it."""
    prompt = caller.canary("sort")
    chat: dict[str, Any] = {"messages": prompt.messages, "max_tokens": 4, "temperature": 0}
    text: dict[str, Any] = {"prompt": "7, 3, 5", "max_tokens": 4, "temperature": 0}
    found = {}
    for name, route, body in (
        ("chat", "/v1/chat/completions", chat),
        ("completion", "/v1/completions", text),
    ):
        reply = caller.post(route, body)
        assert reply.status == 200, f"{name}: {reply.message}"
        found[name] = reply.body["usage"]
        streamed = caller.post(route, body | {"stream": True, "stream_options": {"include_usage": True}})
        assert streamed.status == 200, f"{name}, streamed: {streamed.message}"
        events = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
        found[f"{name}, streamed"] = json.loads(events[-1])["usage"]
    return found


def cached_of(usage: Mapping[str, Any]) -> object:
    """`cached_tokens` of a usage, or `missing`: null is an answer of its own."""
    details = usage.get("prompt_tokens_details")
    return details.get("cached_tokens", "missing") if isinstance(details, Mapping) else "missing"


def test_cached_tokens_are_reported_without_the_flag(arms: Arms) -> None:
    """0, not null and not left out, streamed or not, by both routes."""
    found = {name: cached_of(usage) for name, usage in usages(caller_of(arms, STACKS)).items()}
    print(found)
    assert found == dict.fromkeys(found, 0)


def test_the_trace_is_what_the_verifier_did(arms: Arms) -> None:
    """Rounds add up to the answer and to the server's counters, and each emitted id is its target row's choice."""
    caller = caller_of(arms, STACKS)
    prompt = caller.canary("copy")
    before = read_counters(caller.endpoint)
    said = caller.chat(prompt)
    spent = difference(before, read_counters(caller.endpoint))
    assert (said.error, said.token_ids) == (None, prompt.answer_ids), "a trace changes no answer"
    lines = [json.loads(x) for x in (arms.folder_of(caller.arm) / TRACE_FILE).read_text().splitlines()]
    traced = read_trace(lines, said.token_ids)
    assert traced is not None, "no request of the trace emitted this answer"
    last = [line for line in lines if line["request"] == lines[-1]["request"]]
    emitted = [token_id for line in last for token_id in line["emitted"]]
    assert tuple(emitted[: len(said.token_ids)]) == said.token_ids
    for line in last:
        assert line["emitted"] == line["target_argmax"][: len(line["emitted"])], line
        assert line["drafts"][: line["accepted"]] == line["emitted"][: line["accepted"]], line
    accepted, drafted = (sum(r) for r in zip(*((x["accepted"], len(x["drafts"])) for x in last), strict=True))
    print(f"{len(last)} rounds, {accepted} of {drafted} drafts accepted; the server counts {spent}")
    assert (accepted, drafted) == (spent.accepted_tokens, spent.draft_tokens)
    assert accepted


def test_stock_leaves_the_field_out_and_traces_nothing(arms: Arms) -> None:
    """The same server as it is installed: the checks above tell the two apart."""
    caller = caller_of(arms, "stock")
    found = {name: cached_of(usage) for name, usage in usages(caller).items()}
    print(found)
    assert 0 not in found.values(), "the stack is not needed any more"
    assert not (arms.folder_of(caller.arm) / TRACE_FILE).exists()
