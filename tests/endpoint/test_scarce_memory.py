"""A drafting server with little memory and short prefills: preemption resumes exactly, chunks join without a seam."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.client.metrics import difference, read_counters
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.request import request_of
from fixtures.workload.caller import Caller
from fixtures.workload.expectation import Heard

pytestmark = [pytest.mark.endpoint, pytest.mark.dedicated, pytest.mark.ours("restarts")]

CHUNK = 256
"""Tokens of one prefill step."""
BOUND_NATS = 0.5
"""As in `test_api_logprobs.py`: two ways of computing one log-probability."""


@pytest.fixture(scope="module")
def caller(lane: Lane, arms: Arms, heard: Heard, pytestconfig: pytest.Config) -> Caller:
    """A candidate with little memory, for this file alone."""
    blocks = lane.engine.scarce_blocks
    if blocks is None:
        pytest.skip(f"not offered: lane {lane.name} does not say how few cache blocks are scarce")
    scarce = ("--max-num-batched-tokens", str(CHUNK), "--num-gpu-blocks-override", str(blocks))
    engine = lane.engine.model_copy(update={"arguments": (*lane.engine.arguments, *scarce)})
    arm = make_arm(
        lane.model_copy(update={"engine": engine}), "dedicated", stack=request_of(pytestconfig).stack
    )
    return Caller(arms.server(arm).endpoint, arm, heard)


def test_a_preempted_request_resumes_exactly(caller: Caller) -> None:
    """Four answers that grow together beyond the memory: some are put off and computed again, and all are right.

    That it happened is the server's own count; an answer that resumed from a wrong state would differ.
    """
    prompts = sorted(
        (p for kind in ("copy", "parity") for p in caller.parity_prompts(kind)),
        key=lambda p: -len(p.answer_ids or ()),
    )[:4]
    before = read_counters(caller.endpoint)
    with ThreadPoolExecutor(len(prompts)) as pool:
        said = list(pool.map(caller.chat, prompts))
    happened = difference(before, read_counters(caller.endpoint))
    print(f"preemptions: {happened.preemptions}, accepted drafts: {happened.accepted_tokens}")
    assert happened.preemptions, "nothing was preempted: this has shown nothing"
    wrong = [
        f"{p.id}: {t.error or t.content[:60]!r}"
        for p, t in zip(prompts, said, strict=True)
        if t.token_ids != p.answer_ids
    ]
    asked = f"for {len(prompts)} long answers at once in scarce memory"
    caller.expect.none_wrong(asked, f"target-only's answers over {happened.preemptions} preemptions", wrong)


def continued_right(caller: Caller, length: int) -> str:
    """Whether a prompt of so many ids is continued as one prefill of prompt and answer ranks it; empty if it is.

    The prefill is another way of cutting the same ids, and it knows no drafts.
    """
    question = list(caller.prompt_ids(caller.canary("copy")))
    ids = caller.filler(length - len(question)) + question
    said = caller.continuation(ids, 12, ignore_eos=True)
    assert said.error is None, f"{length} ids: {said.error}"
    reply = caller.complete({"prompt": [*ids, *said.token_ids], "max_tokens": 1, "prompt_logprobs": 1})
    assert reply.status == 200, f"{length} ids: {reply.message}"
    rows = reply.body["choices"][0]["prompt_logprobs"][length:]
    for place, (token_id, row) in enumerate(zip(said.token_ids, rows, strict=True)):
        best = max(entry["logprob"] for entry in row.values())
        if row[str(token_id)]["logprob"] < best - BOUND_NATS:
            return f"{length} ids: place {place}: said {token_id}, but {row}"
    return ""


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_prompt_that_just_fills_its_chunks_is_continued_right(caller: Caller, chunks: int) -> None:
    """One id less than fills them, exactly as many, and two more."""
    wrong = [continued_right(caller, chunks * CHUNK + more) for more in (-1, 0, 2)]
    asked = f"for prompts that just fill {chunks} chunks of {CHUNK} ids"
    caller.expect.none_wrong(
        asked, "what one prefill of prompt and answer ranks first", list(filter(None, wrong))
    )


def test_long_prompts_in_many_chunks_leave_no_dose_behind(caller: Caller) -> None:
    """Eight prompts of several chunks, then the canaries: one such prompt is harmless, eight once were not."""
    suites = [load_suite(name) for name in (caller.arm.lane.suites.needle, caller.arm.lane.suites.parity)]
    needles = [p for suite in suites for p in suite.prompts if p.prompt_class == "needle"]
    long = sorted(needles, key=lambda p: -len(p.user))[:8]
    found = [caller.chat(prompt) for prompt in long]
    lengths = [t.usage.prompt_tokens or 0 for t in found]
    assert min(lengths) > CHUNK, f"every prompt has to take several chunks: {lengths}"
    wrong = [p.id for p, t in zip(long, found, strict=True) if (t.error, t.content) != (None, p.expect)]
    caller.expect.none_wrong(f"for {len(long)} prompts of several chunks", "every needle", wrong)
    for kind in ("phrase", "copy", "add", "json", "sort", "code"):
        prompt = caller.canary(kind)
        asked = f"for {prompt.id} after {len(long)} long prompts"
        caller.expect.answer(asked, caller.chat(prompt), ids=prompt.answer_ids)


def test_a_last_chunk_of_one_id_is_a_chunk_like_others(caller: Caller) -> None:
    """One id more than fills the chunks. The last test of this file: it has been an engine's last request."""
    wrong = [continued_right(caller, chunks * CHUNK + 1) for chunks in (1, 2)]
    asked = f"for prompts whose last chunk of {CHUNK} ids is one id"
    caller.expect.none_wrong(
        asked, "what one prefill of prompt and answer ranks first", list(filter(None, wrong))
    )
