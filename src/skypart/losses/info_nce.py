"""Symmetric InfoNCE over drone x satellite pairs, with a learned temperature."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from skypart.losses.pairs import (
    CrossViewPairs,
    cross_view_pairs,
    log_one_plus_exp,
    masked_logsumexp,
    masked_mean,
)
from skypart.losses.term import LossContext, LossTerm


class InfoNceLoss(LossTerm):
    """Owns `log_scale`, the logarithm of the inverse temperature, at most log(max_scale).

    temperature: initial value. smoothing: label smoothing over the positive and the anchor's negatives.
    """

    name = "info_nce"
    group = "align"

    def __init__(self, temperature: float = 0.07, smoothing: float = 0.1, max_scale: float = 100.0) -> None:
        super().__init__()
        self.smoothing, self.max_scale = smoothing, max_scale
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """Uses temperature and smoothing of the recipe."""
        c = context.config
        return cls(c.info_nce_temperature, c.info_nce_smoothing, c.info_nce_max_scale)

    def provides(self) -> dict[str, Tensor]:
        """info_nce_log_scale (), for `BranchLoss`."""
        return {"info_nce_log_scale": self.log_scale}

    def forward(self, embedding: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D), location (B,) int64 and is_drone (B,) bool."""
        with torch.no_grad():  # clamps the parameter itself: beyond a clamp in the graph it would get no gradient
            self.log_scale.clamp_(max=math.log(self.max_scale))
        return info_nce_loss(embedding, location, is_drone, self.log_scale, self.smoothing)


class BranchLoss(LossTerm):
    """InfoNCE on each branch of the embedding, with the temperature of `InfoNceLoss`."""

    name = "branches"
    group = "align"

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """Uses the smoothing of the recipe."""
        return cls(context.config.info_nce_smoothing)

    def forward(self, branches: Tensor, location: Tensor, is_drone: Tensor, info_nce_log_scale: Tensor) -> Tensor:
        """Mean over branches (B, branches, D), unit rows; scalar."""
        each = [
            info_nce_loss(branch, location, is_drone, info_nce_log_scale, self.smoothing)
            for branch in branches.unbind(1)
        ]
        return torch.stack(each).mean()


def info_nce_loss(
    embedding: Tensor, location: Tensor, is_drone: Tensor, log_scale: Tensor, smoothing: float = 0.1
) -> Tensor:
    """Mean of the directions drone -> satellite and satellite -> drone; scalar.

    embedding (B, D), location (B,) int64, is_drone (B,) bool, log_scale ().
    Each direction is the mean over positive pairs (i, j) of the smoothed cross entropy of j among j and the
    negatives of i. Other images of the same location, and anchors without negatives, are left out.
    """
    pairs = cross_view_pairs(embedding, location, is_drone)
    return (_one_direction(pairs, log_scale, smoothing) + _one_direction(pairs.transposed, log_scale, smoothing)) / 2


def _one_direction(pairs: CrossViewPairs, log_scale: Tensor, smoothing: float) -> Tensor:
    logits, negative = log_scale.exp() * pairs.similarity, ~pairs.positive
    log_negatives = masked_logsumexp(logits, negative)[:, None]
    candidates = 1 + negative.sum(1, keepdim=True)
    mean_logit = (logits + torch.where(negative, logits, 0.0).sum(1, keepdim=True)) / candidates
    # log(e^positive + sum e^negative) - positive, without exponentiating large numbers
    cross_entropy = log_one_plus_exp(log_negatives - logits)
    loss = cross_entropy + smoothing * (logits - mean_logit)
    return masked_mean(loss, pairs.positive & negative.any(1, keepdim=True))
