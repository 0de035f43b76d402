"""Drone x satellite pairs of a joined batch, and reductions that stand empty selections."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skypart.losses.cosine import cosine_matrix


@dataclass(frozen=True)
class CrossViewPairs:
    """Every drone image against every satellite image.

    similarity: cosines, (drones, satellites).
    positive: whether the two show the same location, bool (drones, satellites); all others are negatives.
    """

    similarity: Tensor
    positive: Tensor

    @property
    def transposed(self) -> "CrossViewPairs":
        """The same pairs seen from the satellites."""
        return CrossViewPairs(self.similarity.T, self.positive.T)


def same_location(location: Tensor, is_drone: Tensor) -> Tensor:
    """Bool (drones, satellites) from location (B,) and is_drone (B,) bool."""
    return location[is_drone][:, None] == location[~is_drone][None, :]


def cross_view_pairs(embedding: Tensor, location: Tensor, is_drone: Tensor) -> CrossViewPairs:
    """Pairs of a joined batch: embedding (B, D), location (B,) int64, is_drone (B,) bool."""
    similarity = cosine_matrix(embedding[is_drone], embedding[~is_drone])
    return CrossViewPairs(similarity, same_location(location, is_drone))


def masked_logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Log-sum-exp of the entries of x (..., N) selected by mask (..., N), shape (...).

    A row with nothing selected gives 0 with zero gradient: leave it out by a mask of its own.
    """
    empty = ~mask.any(-1)
    filled = x.masked_fill(~mask, -torch.inf).masked_fill(empty[..., None], 0.0)
    return filled.logsumexp(-1).masked_fill(empty, 0.0)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of the entries of x selected by mask (same shape); exactly 0, still in the graph, if none is."""
    return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)


def log_one_plus_exp(x: Tensor) -> Tensor:
    """Elementwise log(1 + e^x), exact to the last digit also in float64 (torch's own stops at x = 20)."""
    return F.softplus(x, threshold=40)
