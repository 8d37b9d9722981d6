"""Requests that go away: nothing runs on for them, every block comes back, and who stays is answered as alone."""

from __future__ import annotations

import json

import pytest

from fixtures.evidence.plugin import Evidence
from fixtures.run.findings import Findings
from fixtures.workload.caller import Caller
from fixtures.workload.departures import CASES, LONG_IDS, depart

pytestmark = pytest.mark.endpoint


def test_requests_that_go_away_leave_nothing_behind(
    caller: Caller, evidence: Evidence, findings: Findings
) -> None:
    """Hung up on while they wait, in prefill and in decode, streamed and whole, and a hundred at once.

    Public reports: llama.cpp fork 20, ATOM 1562, OpenVINO model_server 4428, sglang 21652: requests that ran on for
    minutes, and blocks that were lost for good.
    """
    prompts = [p for kind in ("count", "repeat") for p in caller.parity_prompts(kind)]
    neighbours = [caller.canary(kind) for kind in ("copy", "json", "sort")]
    cases = 0
    for departure in depart(caller.endpoint, caller.arm.label, prompts, caller.filler(LONG_IDS), neighbours):
        evidence.append("departure", departure.to_row())
        cases += 1
    findings.settle("requests.departed", "requests.blocks", "requests.neighbours", arms=[caller.arm])
    assert cases == len(CASES)


def test_a_response_that_is_cancelled_by_the_api_ends(caller: Caller) -> None:
    """`/v1/responses` in the background, cancelled; a server without a store of responses refuses in words."""
    prompt = caller.parity_prompts("count")[0]
    body = {
        "input": prompt.user,
        "background": True,
        "store": True,
        "max_output_tokens": 600,
        "temperature": 0,
    }
    reply = caller.post("/v1/responses", body)
    if reply.status != 200:
        assert (reply.status, bool(reply.message)) == (400, True), reply.text[:300]
        return
    cancelled = caller.post(f"/v1/responses/{reply.body['id']}/cancel", {})
    assert (cancelled.status, json.loads(cancelled.text)["status"]) == (200, "cancelled"), cancelled.text[
        :300
    ]
