"""A round of the verifier: drafts that agree with the target are emitted, then one token of the target's own.

Logits are random and have clear leads, so that every emitted token has one right value. The engine's sampler sees the
rows of many requests at once: whose penalties, masks and temperatures a row gets is as much a question as who wins.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fixtures.gdn.comparison import must_run, require_value, require_within
from fixtures.runner import oracle
from fixtures.runner.operations import Sampling, Verified

VOCABULARY, K = 24, 3
CLEAR = 1e-3
"""Leads below this are not judged: fp32 penalties may turn them."""
PENALTIES = {
    "none": Sampling(),
    "presence": Sampling(presence=1.5),
    "frequency": Sampling(frequency=0.8),
    "repetition": Sampling(repetition=1.7),
    "all": Sampling(presence=-0.5, frequency=0.4, repetition=1.3),
    "allowed": Sampling(allowed=(1, 2, 3, 5, 7, 11)),
    "bad": Sampling(bad=(0, 4, 6, 8, 10)),
}


def make_round(g, samplings, counts, agreeing):
    """Requests with logits [rows, vocabulary]; of each one's drafts the first `agreeing` agree with the target."""
    requests, rows = [], []
    for how, count, right in zip(samplings, counts, agreeing, strict=True):
        prompt, output = (tuple(torch.randint(VOCABULARY, (n,), generator=g).tolist()) for n in (4, 5))
        while True:
            logits = torch.randn(count + 1, VOCABULARY, generator=g) * 3
            drafts: list[int] = []
            for i in range(count):
                best = int(oracle.processed(logits[i], prompt, [*output, *drafts], how).argmax())
                drafts.append(best if i < right else (best + 1 + i) % VOCABULARY)
            request = Verified(prompt, output, tuple(drafts), how)
            if oracle.lead(request, logits) > CLEAR:
                break
        requests.append(request)
        rows.append(logits)
    return requests, rows


def check_round(runner, requests, rows):
    with must_run("a round of " + ", ".join(f"{len(r.drafts)} drafts" for r in requests[:8])):
        got = runner.subject.verify(requests, torch.cat(rows))
    expected = [oracle.emitted(request, logits) for request, logits in zip(requests, rows, strict=True)]
    for row, (request, one, right) in enumerate(zip(requests, got, expected, strict=True)):
        require_value(f"row {row}, drafts {list(request.drafts)}, {request.sampling}", one, right)


@pytest.mark.parametrize("agreeing", range(K + 1))
def test_agreeing_drafts_are_emitted_and_one_token_behind_them(runner, agreeing):
    """Every accepted count, alone and 64 times in one batch: with all drafts right, the token behind is the bonus."""
    g = runner.generator
    check_round(runner, *make_round(g, [Sampling()], [K], [agreeing]))
    check_round(runner, *make_round(g, [Sampling()] * 64, [K] * 64, [agreeing] * 64))


def test_every_round_of_many_is_like_the_first(runner):
    """A hundred rounds in a row, of two requests each: what happens now and then happens here."""
    for i in range(100):
        counts, agreeing = [K, 1 + i % K], [i % (K + 1), 0]
        check_round(runner, *make_round(runner.generator, [Sampling()] * 2, counts, agreeing))


def test_requests_with_different_numbers_of_drafts_keep_to_their_own_rows(runner):
    """From none to all drafts, and every agreement of them, in one batch and in two orders."""
    pairs = [(count, right) for count in range(K + 1) for right in range(count + 1)]
    for order in (pairs, pairs[::-1]):
        counts, agreeing = zip(*order, strict=True)
        check_round(runner, *make_round(runner.generator, [Sampling()] * len(order), counts, agreeing))


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_and_masks_count_what_was_drafted_before(runner, name):
    """Row i has been preceded by drafts 0 to i - 1, the bonus row by all: penalties count them once."""
    samplings = [PENALTIES[name]] * 12
    check_round(runner, *make_round(runner.generator, samplings, [K] * 12, [i % (K + 1) for i in range(12)]))


def test_every_row_is_penalised_as_its_own_request_asks(runner):
    """All kinds of penalties and masks in one batch, with different numbers of drafts."""
    samplings = [*PENALTIES.values(), *PENALTIES.values()]
    counts = [1 + i % K for i in range(len(samplings))]
    check_round(
        runner, *make_round(runner.generator, samplings, counts, [i % 2 for i in range(len(samplings))])
    )


@given(data=st.data(), salt=st.integers(0, 10_000))
def test_any_round_emits_what_the_target_says(runner, data, salt):
    """Any number of requests, drafts, agreements, penalties and masks."""
    runner.reseed(salt)
    names = data.draw(st.lists(st.sampled_from(sorted(PENALTIES)), min_size=1, max_size=6), label="sampling")
    counts = [data.draw(st.integers(0, K), label="drafts") for _ in names]
    if not any(counts):
        counts[0] = 1
    agreeing = [data.draw(st.integers(0, count), label="right") for count in counts]
    check_round(runner, *make_round(runner.generator, [PENALTIES[n] for n in names], counts, agreeing))


@pytest.mark.parametrize(
    "how", [Sampling(temperature=0.7, top_k=1), Sampling(temperature=0.01)], ids=["top-1", "cold"]
)
def test_sampling_that_leaves_one_token_is_greedy(runner, how):
    """Temperature and top-k reach every verify row: with one token left, or almost none, nothing is random."""
    g = runner.generator
    requests, rows = make_round(g, [how] * 8, [K] * 8, [i % (K + 1) for i in range(8)])
    sharp = [logits + 40 * torch.nn.functional.one_hot(logits.argmax(-1), VOCABULARY) for logits in rows]
    check_round(runner, requests, sharp)


def test_one_request_samples_and_its_neighbour_does_not(runner):
    """Greedy and random rows in one batch: the greedy ones have one right answer."""
    g = runner.generator
    samplings = [Sampling(), Sampling(temperature=1.0, top_k=1)] * 6
    requests, rows = make_round(g, samplings, [K] * 12, [i % (K + 1) for i in range(12)])
    check_round(runner, requests, rows)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sampled_rounds_follow_the_targets_distribution(runner, temperature):
    """Of 20,000 rounds with the same draft, the first token is distributed as the target says, draft or not.

    Pearson's statistic of 8 cells, at a chance of 1e-9 for a right sampler.
    """
    count, cells, tokens = 2000, 8, 8
    logits = torch.zeros(2, tokens)
    logits[0] = torch.arange(tokens) * 0.4
    request = Verified((1,), (2,), (tokens - 2,), Sampling(temperature=temperature))
    torch.manual_seed(runner.seed % 2**31)
    seen = torch.zeros(cells, dtype=torch.float64)
    with must_run(f"rounds of {count} requests"):
        for _ in range(10):
            got = runner.subject.verify([request] * count, logits.repeat(count, 1))
            seen += torch.bincount(torch.tensor([row[0] for row in got]), minlength=cells).double()
    expected = torch.softmax(logits[0].double() / temperature, -1) * seen.sum()
    statistic = ((seen - expected) ** 2 / expected).sum()
    limit = float(stats.chi2.isf(1e-9, cells - 1))
    require_within("Pearson's statistic of first tokens", statistic.view(1), torch.zeros(1), limit, ("run",))
