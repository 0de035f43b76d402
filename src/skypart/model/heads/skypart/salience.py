"""The salience gate: a Gumbel-sigmoid that decides which prototypes are active in an image."""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Salience(NamedTuple):
    """All (batch, prototypes). weight: in [0, 1], 0 if closed. active: bool, True if open. order: the ranking score.

    `order` holds the logits, which still rank prototypes where the sigmoid saturates.
    """

    weight: Tensor
    active: Tensor
    order: Tensor


class SalienceGate(nn.Module):
    """sigmoid((logit + noise) / temperature). Closes prototypes at 0.5 or below, except the `min_active` largest.

    The decision is hard with a straight-through gradient: a closed prototype has weight exactly 0 and still learns.
    Gumbel(0, 1) noise is added only in training.
    """

    def __init__(
        self, dim: int, hidden: int, bias: float, temperature: float, min_active: int, noisy_ranking: bool = True
    ) -> None:
        super().__init__()
        self.noisy_ranking = noisy_ranking
        self.temperature = temperature
        self.min_active = min_active
        last = nn.Linear(hidden, 1)
        nn.init.constant_(last.bias, bias)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), last)

    def forward(self, descriptors: Tensor, noise: Tensor | None = None) -> Salience:
        """Gate descriptors (batch, prototypes, dim). noise: (batch, prototypes), for training; drawn if None."""
        logits = self.mlp(descriptors).squeeze(-1)
        order = logits
        if self.training:
            logits = logits + (gumbel_noise(logits) if noise is None else noise)
            order = logits if self.noisy_ranking else order
        soft = torch.sigmoid(logits / self.temperature)
        floor = torch.zeros_like(soft, dtype=torch.bool)
        floor.scatter_(1, logits.topk(min(self.min_active, logits.shape[1]), dim=1).indices, True)
        active = (soft > 0.5) | floor
        weight = torch.where(active, soft, soft - soft.detach())
        return Salience(weight, active, order)


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Gumbel(0, 1) noise with the shape, dtype and device of `like`."""
    uniform = torch.rand(like.shape, generator=generator, device=generator.device if generator else like.device)
    return -torch.log(-torch.log(uniform.clamp(1e-7, 1 - 1e-7))).to(like)
