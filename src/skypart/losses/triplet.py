"""Batch-hard triplet loss over drone x satellite pairs (Hermans et al., 2017). Off by default: the paper dropped it."""

from typing import Self

import torch
from torch import Tensor

from skypart.losses.pairs import CrossViewPairs, cross_view_pairs, masked_mean
from skypart.losses.term import LossContext, LossTerm


class TripletLoss(LossTerm):
    """The hardest positive must be nearer than the hardest negative by a margin on the cosine."""

    name = "triplet"
    group = "align"

    def __init__(self, margin: float = 0.3) -> None:
        super().__init__()
        self.margin = margin

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """With the margin of the recipe."""
        return cls(context.config.triplet_margin)

    def forward(self, embedding: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D), location (B,) int64 and is_drone (B,) bool."""
        return triplet_loss(embedding, location, is_drone, self.margin)


def triplet_loss(embedding: Tensor, location: Tensor, is_drone: Tensor, margin: float = 0.3) -> Tensor:
    """Mean over the anchors of both views that have a positive and a negative in the other view; scalar."""
    pairs = cross_view_pairs(embedding, location, is_drone)
    losses, valid = zip(*(_hardest(each, margin) for each in (pairs, pairs.transposed)), strict=True)
    return masked_mean(torch.cat(losses), torch.cat(valid))


def _hardest(pairs: CrossViewPairs, margin: float) -> tuple[Tensor, Tensor]:
    """Loss of each anchor (N,) and whether it counts (N,)."""
    positive = pairs.similarity.masked_fill(~pairs.positive, 2.0).amin(dim=1)
    negative = pairs.similarity.masked_fill(pairs.positive, -2.0).amax(dim=1)
    return (negative - positive + margin).relu(), pairs.positive.any(1) & (~pairs.positive).any(1)
