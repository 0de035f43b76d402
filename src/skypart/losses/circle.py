"""Circle loss (Sun et al., 2020) over drone x satellite pairs."""

from typing import Self

import torch
from torch import Tensor

from skypart.losses.pairs import (
    CrossViewPairs,
    cross_view_pairs,
    log_one_plus_exp,
    masked_logsumexp,
    masked_mean,
)
from skypart.losses.term import LossContext, LossTerm


class CircleLoss(LossTerm):
    """Circle loss with a fixed margin and scale."""

    name = "circle"
    group = "align"

    def __init__(self, margin: float = 0.25, gamma: float = 64.0) -> None:
        super().__init__()
        self.margin, self.gamma = margin, gamma

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """Uses margin and scale of the recipe."""
        return cls(context.config.circle_margin, context.config.circle_gamma)

    def forward(self, embedding: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D), location (B,) int64 and is_drone (B,) bool."""
        return circle_loss(embedding, location, is_drone, self.margin, self.gamma)


def circle_loss(
    embedding: Tensor, location: Tensor, is_drone: Tensor, margin: float = 0.25, gamma: float = 64.0
) -> Tensor:
    """Mean over the anchors of both views that have a positive and a negative in the other view; scalar.

    embedding (B, D), not necessarily unit rows; location (B,) int64; is_drone (B,) bool.
    """
    pairs = cross_view_pairs(embedding, location, is_drone)
    return circle_from_pairs(pairs, pairs.similarity.detach(), margin, gamma)


def circle_from_pairs(pairs: CrossViewPairs, pace: Tensor, margin: float, gamma: float) -> Tensor:
    """Circle loss with self-paced weights computed from the similarities `pace` (drones, satellites).

    The weights have no gradient: pass `pairs.similarity.detach()`.
    """
    s = pairs.similarity
    pull = -gamma * (1 + margin - pace).relu() * (s - (1 - margin))
    push = gamma * (pace + margin).relu() * (s - margin)
    directions = [(pull, push, pairs.positive), (pull.T, push.T, pairs.positive.T)]
    losses, valid = zip(*(_anchor_losses(*direction) for direction in directions), strict=True)
    return masked_mean(torch.cat(losses), torch.cat(valid))


def _anchor_losses(pull: Tensor, push: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each anchor (N,) and whether it counts (N,), from logits (N, M)."""
    loss = log_one_plus_exp(masked_logsumexp(pull, positive) + masked_logsumexp(push, ~positive))
    return loss, positive.any(1) & (~positive).any(1)
