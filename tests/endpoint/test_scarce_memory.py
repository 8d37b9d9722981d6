"""A drafting server with little memory and short prefills: preemption resumes exactly, chunks join without a seam."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fixtures.client.metrics import difference, read_counters
from fixtures.lanes.lane import Lane
from fixtures.prompts.suite import load_suite
from fixtures.session.arms import Arms, make_arm
from fixtures.session.caller import Caller
from fixtures.session.plugin import stack_name

pytestmark = [pytest.mark.endpoint, pytest.mark.spare, pytest.mark.ours("restarts")]

CHUNK = 256
"""Tokens of one prefill step."""
BLOCKS = 24
"""Cache blocks of the whole server: enough for any one request, too few for four long answers."""


@pytest.fixture(scope="module")
def caller(lane: Lane, arms: Arms, pytestconfig: pytest.Config) -> Caller:
    """A candidate with little memory, for this file alone."""
    scarce = ("--max-num-batched-tokens", str(CHUNK), "--num-gpu-blocks-override", str(BLOCKS))
    engine = lane.engine.model_copy(update={"arguments": (*lane.engine.arguments, *scarce)})
    arm = make_arm(lane.model_copy(update={"engine": engine}), "scarce", stack=stack_name(pytestconfig))
    return Caller(arms.server(arm).endpoint, arm)


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
    assert not wrong, f"{happened.preemptions} preemptions: {wrong}"


@pytest.mark.parametrize("chunks", [1, 2])
def test_prompts_around_a_chunk_boundary_are_continued_alike(caller: Caller, chunks: int) -> None:
    """One id less than fills the chunks, exactly as many, and one more, which is then a chunk of one id.

    The oracle is another way of cutting: one id at a time, each from a request whose prompt has another length.
    """
    prompt = caller.canary("copy")
    question = list(caller.prompt_ids(prompt))
    assert prompt.answer_ids is not None
    for length in (chunks * CHUNK - 1, chunks * CHUNK, chunks * CHUNK + 1):
        ids = caller.filler(length - len(question)) + question
        said = caller.continuation(ids, 12, ignore_eos=True)
        assert said.error is None
        one_by_one = caller.one_at_a_time(ids, 4, ignore_eos=True)
        assert said.token_ids[:4] == one_by_one, f"{length} ids in chunks of {CHUNK}"


def test_long_prompts_in_many_chunks_leave_no_dose_behind(caller: Caller) -> None:
    """Eight prompts of several chunks, four at a time, then the canaries: one is harmless, eight once were not."""
    suite = load_suite(caller.arm.lane.suites.needle)
    long = sorted(suite.prompts, key=lambda p: -len(p.user))[:8]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(caller.chat, long))
    lengths = [t.usage.prompt_tokens or 0 for t in found]
    assert min(lengths) > CHUNK, f"every prompt has to take several chunks: {lengths}"
    wrong = [p.id for p, t in zip(long, found, strict=True) if (t.error, t.content) != (None, p.expect)]
    assert not wrong, wrong
    for kind in ("phrase", "copy", "add", "json", "sort", "code"):
        prompt = caller.canary(kind)
        said = caller.chat(prompt)
        assert (said.error, said.token_ids) == (None, prompt.answer_ids), (
            f"{kind} after {len(long)} long prompts"
        )
