"""Optimal transport between the part sets of two views as a matching score. Off by default: the paper dropped it."""

import math
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from skypart.losses.cosine import unit_vectors
from skypart.losses.pairs import same_location
from skypart.losses.term import LossContext, LossTerm

TEMPERATURE = 0.1
ITERATIONS = 10


class PartTransportLoss(LossTerm):
    """InfoNCE whose score is the similarity of two part sets under their best soft assignment."""

    name = "part_transport"
    group = "align"

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """It has no settings."""
        return cls()

    def forward(self, descriptors: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of descriptors (B, K, C), location (B,) int64 and is_drone (B,) bool."""
        drone, satellite = descriptors[is_drone], descriptors[~is_drone]
        positive = same_location(location, is_drone)
        counted = positive.any(1)
        if not bool(counted.any()) or satellite.shape[0] < 2:
            return descriptors.sum() * 0.0
        scores = transport_scores(drone[counted], satellite) / TEMPERATURE
        return cross_entropy(scores, positive[counted].to(scores).argmax(dim=1))


def transport_scores(drone: Tensor, satellite: Tensor) -> Tensor:
    """(D, S) similarity of part sets (D, K, C) and (S, K, C): mean cosine under the entropic transport plan."""
    cosine = torch.einsum("dkc,slc->dskl", unit_vectors(drone), unit_vectors(satellite))
    plan = sinkhorn(cosine.detach() / TEMPERATURE)
    return (plan * cosine).sum(dim=(-2, -1))


def sinkhorn(logits: Tensor) -> Tensor:
    """Plans (..., K, L) with uniform marginals: rows sum to 1/K, columns to 1/L."""
    rows, columns = logits.shape[-2:]
    u, v = torch.zeros_like(logits[..., 0]), torch.zeros_like(logits[..., 0, :])
    for _ in range(ITERATIONS):
        u = -math.log(rows) - torch.logsumexp(logits + v[..., None, :], dim=-1)
        v = -math.log(columns) - torch.logsumexp(logits + u[..., None], dim=-2)
    return torch.exp(logits + u[..., None] + v[..., None, :])
