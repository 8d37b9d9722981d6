"""The training network computes what the architecture says."""

from __future__ import annotations

import torch

from fixtures.models.canary.checkpoint import CHECKPOINT, load_canary
from fixtures.models.canary.network import CHUNK, UnitLowerInverse, delta_rule
from fixtures.models.canary.tokenizer import load_tokenizer, render_prompt
from fixtures.models.canary.train import Packer, learning_rate, plan_lengths, stream_batches
from fixtures.prompts.suite import load_suite


def _recurrence(q, k, v, log_decay, beta):
    """The definition, token by token, in float64."""
    q, k, v, log_decay, beta = (x.double() for x in (q, k, v, log_decay, beta))
    q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * q.shape[-1] ** -0.5
    k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
    state = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = state * log_decay[:, t].exp()[..., None, None]
        read = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        update = (v[:, t] - read) * beta[:, t, :, None]
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], update)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, 1)


def test_chunked_delta_rule_equals_the_recurrence_with_similar_keys():
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int):
        return torch.randn(*shape, generator=generator)

    shape = (2, 2 * CHUNK + 22, 3, 64)
    q, v = noise(*shape), noise(*shape)
    k = 0.1 * noise(*shape) + noise(2, 1, 3, 64)  # nearly parallel keys: the hard case for the inverse
    log_decay, beta = -0.3 * noise(*shape[:3]).abs(), noise(*shape[:3]).sigmoid()

    got = delta_rule(q, k, v, log_decay, beta)

    error = (got - _recurrence(q, k, v, log_decay, beta)).abs().max().item()
    # fp32 beside outputs of size 0.2: a few hundred roundings of 2**-24 each.
    assert error < 1e-5, error


def test_triangular_inverse_has_the_right_gradient():
    generator = torch.Generator().manual_seed(0)
    a = 0.1 * torch.randn(1, CHUNK, CHUNK, generator=generator, dtype=torch.float64).tril(-1)
    a.requires_grad_(True)

    assert torch.autograd.gradcheck(lambda x: UnitLowerInverse.apply(x.tril(-1)), (a,), fast_mode=True)


def test_data_of_a_step_does_not_depend_on_the_number_of_workers():
    packer = Packer(CHECKPOINT, {"short": 2, "medium": 2, "long": 2, "wide": 2})
    plan = plan_lengths(3, 12)

    alone = list(stream_batches(packer, plan, 3, workers=0))
    shared = list(stream_batches(packer, plan, 3, workers=2))

    assert [batch.length for batch in shared] == plan
    for one, other in zip(alone, shared, strict=True):
        assert (one.ids == other.ids).all()
        assert (one.weight == other.weight).all()


def test_learning_rate_ends_near_zero():
    rates = [learning_rate(1.0, 10, step, 1000) for step in range(1000)]

    assert rates[0] < rates[9] == max(rates) == 1.0
    assert rates[-1] < 0.01


def test_training_network_says_the_recorded_answers():
    network, tokenizer = load_canary(), load_tokenizer(CHECKPOINT)

    for prompt in load_suite("canary-canaries").prompts:
        asked = tokenizer.encode(render_prompt(prompt.user)).ids
        ids = torch.tensor([[*asked, *prompt.answer_ids]])
        with torch.no_grad():
            said = network.lm_head(network.read(ids)).argmax(-1)[0, len(asked) - 1 : -1]
        assert tuple(said.tolist()) == prompt.answer_ids, prompt.id
