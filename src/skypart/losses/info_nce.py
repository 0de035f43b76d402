"""Symmetric InfoNCE over drone x satellite pairs, with a learned temperature."""

import math

import torch
from torch import Tensor, nn

from skypart.losses.cosine import cosine_matrix
from skypart.losses.memory import Remembered
from skypart.losses.pairs import (
    CrossViewPairs,
    cross_view_pairs,
    log_one_plus_exp,
    masked_logsumexp,
    masked_mean,
)


class InfoNceLoss(nn.Module):
    """Owns `log_scale`, the logarithm of the inverse temperature, kept below log(max_scale).

    temperature: the initial one. smoothing: label smoothing over the positive and the anchor's negatives.
    """

    def __init__(self, temperature: float = 0.07, smoothing: float = 0.1, max_scale: float = 100.0) -> None:
        super().__init__()
        self.smoothing, self.max_scale = smoothing, max_scale
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(
        self, embedding: Tensor, location: Tensor, is_drone: Tensor, remembered: Remembered | None = None
    ) -> Tensor:
        """Scalar loss of embedding (B, D), location (B,) int64 and is_drone (B,) bool; see `info_nce_loss`."""
        with torch.no_grad():  # on the parameter itself: a clamp in the graph could never be left again
            self.log_scale.clamp_(max=math.log(self.max_scale))
        return info_nce_loss(embedding, location, is_drone, self.log_scale, self.smoothing, remembered)


def info_nce_loss(
    embedding: Tensor,
    location: Tensor,
    is_drone: Tensor,
    log_scale: Tensor,
    smoothing: float = 0.1,
    remembered: Remembered | None = None,
) -> Tensor:
    """Average of drone -> satellite and satellite -> drone; scalar.

    embedding (B, D), location (B,) int64, is_drone (B,) bool, log_scale ().
    Each direction is the mean over positive pairs (i, j) of the smoothed cross entropy of j among j and the
    negatives of i; other images of the same location are left out, and so are anchors without negatives.
    Remembered images of the other view and other locations join the negatives.
    """
    pairs = cross_view_pairs(embedding, location, is_drone)
    directions = (
        _with_remembered(pairs, embedding, location, is_drone, remembered),
        _with_remembered(pairs.transposed, embedding, location, ~is_drone, remembered, drones=True),
    )
    losses = [_one_direction(widened, negative, log_scale, smoothing) for widened, negative in directions]
    return torch.stack(losses).mean()


def _with_remembered(
    pairs: CrossViewPairs,
    embedding: Tensor,
    location: Tensor,
    anchors: Tensor,
    remembered: Remembered | None,
    drones: bool = False,
) -> tuple[CrossViewPairs, Tensor]:
    """Pairs (anchors, candidates) widened by the remembered images of the candidates' view, and which are negatives.

    anchors: (B,) bool, the rows of `embedding` that the pairs' rows are. drones: the candidates' view.
    """
    negative = ~pairs.positive
    if remembered is None:
        return pairs, negative
    others = remembered.of_view(drones)
    further = cosine_matrix(embedding[anchors], others.embedding.to(pairs.similarity.dtype))
    similarity = torch.cat([pairs.similarity, further], dim=1)
    elsewhere = location[anchors][:, None] != others.location[None, :]
    positive = torch.cat([pairs.positive, torch.zeros_like(elsewhere)], dim=1)
    return CrossViewPairs(similarity, positive), torch.cat([negative, elsewhere], dim=1)


def _one_direction(pairs: CrossViewPairs, negative: Tensor, log_scale: Tensor, smoothing: float) -> Tensor:
    logits = log_scale.exp() * pairs.similarity
    log_negatives = masked_logsumexp(logits, negative)[:, None]
    candidates = 1 + negative.sum(1, keepdim=True)
    mean_logit = (logits + torch.where(negative, logits, 0.0).sum(1, keepdim=True)) / candidates
    # log(e^positive + sum e^negative) - positive, without ever exponentiating a large number
    cross_entropy = log_one_plus_exp(log_negatives - logits)
    loss = cross_entropy + smoothing * (logits - mean_logit)
    return masked_mean(loss, pairs.positive & negative.any(1, keepdim=True))
