"""Drone x satellite pairs of a joined batch, and reductions that handle empty selections."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skypart.losses.cosine import cosine_matrix


@dataclass(frozen=True)
class CrossViewPairs:
    """All pairs of a drone image and a satellite image.

    similarity: cosines, (drones, satellites).
    positive: bool (drones, satellites), True if both show the same location; all other pairs are negatives.
    """

    similarity: Tensor
    positive: Tensor

    @property
    def transposed(self) -> "CrossViewPairs":
        """The same pairs as (satellites, drones)."""
        return CrossViewPairs(self.similarity.T, self.positive.T)


def same_location(location: Tensor, is_drone: Tensor) -> Tensor:
    """Whether each pair shows the same location, bool (drones, satellites). location (B,), is_drone (B,) bool."""
    return location[is_drone][:, None] == location[~is_drone][None, :]


def cross_view_pairs(embedding: Tensor, location: Tensor, is_drone: Tensor) -> CrossViewPairs:
    """Pairs of a joined batch: embedding (B, D), location (B,) int64, is_drone (B,) bool."""
    similarity = cosine_matrix(embedding[is_drone], embedding[~is_drone])
    return CrossViewPairs(similarity, same_location(location, is_drone))


def masked_logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Log-sum-exp of the entries of x (..., N) selected by mask (..., N), shape (...).

    A row with nothing selected gives 0 with zero gradient; exclude it with a mask if 0 is not what you want.
    """
    empty = ~mask.any(-1)
    filled = x.masked_fill(~mask, -torch.inf).masked_fill(empty[..., None], 0.0)
    return filled.logsumexp(-1).masked_fill(empty, 0.0)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of the entries of x selected by mask (same shape). If there are none: exactly 0, still in the graph."""
    return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)


def log_one_plus_exp(x: Tensor) -> Tensor:
    """Elementwise log(1 + e^x), exact even in float64 (torch returns x itself above its default threshold of 20)."""
    return F.softplus(x, threshold=40)
