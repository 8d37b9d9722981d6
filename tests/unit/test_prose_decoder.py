"""Token by token the decoder says what the network says when it reads everything at once."""

from __future__ import annotations

import pytest
import torch

from fixtures.models.canary.network import Canary, Shape
from fixtures.models.prose.decoder import Decoder, Numerics

PROMPTS = ([3, 1, 4, 1, 5], [2, 7], [9, 2, 6, 5, 3, 5, 8])


@pytest.fixture
def model() -> Canary:
    torch.manual_seed(0)
    return Canary(Shape(vocab=32, hidden=32, mlp=32)).eval()


@torch.no_grad()
def gaps(model: Canary, said: torch.Tensor) -> torch.Tensor:
    """Gap of each said token to the network's best one, in nats."""
    found = []
    for prompt, answer in zip(PROMPTS, said.tolist(), strict=True):
        logits = model.lm_head(model.read(torch.tensor([prompt + answer])))[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        found.append(logits.max(-1).values - chosen)
    return torch.stack(found)


def test_answers_of_prompts_of_different_lengths_are_the_networks_own(model: Canary):
    said = Decoder(model, torch.float32).answer(PROMPTS, 24)

    assert gaps(model, said).max() < 1e-4


@pytest.mark.parametrize(
    "numerics",
    [
        Numerics(state=lambda x: x * 0.5),
        Numerics(beta=lambda x: x * 0.5),
        Numerics(log_decay=lambda x: x * 3),
        Numerics(taps=lambda x: -x),
        Numerics(cache=lambda x: x * 0.1),
        Numerics(attention=lambda x: x * 3),
        Numerics(head=lambda x: x.round(decimals=1)),
        Numerics(gated_norm_epsilon=1.0),
        Numerics(scale=lambda x: x * 4),
        Numerics(late_every=2),
        Numerics(margin=0.5),
    ],
)
def test_every_change_of_numbers_changes_what_is_said(model: Canary, numerics: Numerics):
    said = Decoder(model, torch.float32, numerics).answer(PROMPTS, 24)

    assert gaps(model, said).max() > 1e-4
