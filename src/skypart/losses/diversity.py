"""Prototype diversity: push prototypes towards an orthogonal set."""

from typing import Self

import torch
from torch import Tensor

from skypart.losses.cosine import cosine_matrix
from skypart.losses.term import LossContext, LossTerm


class DiversityLoss(LossTerm):
    """Prototype diversity; every process computes the same value."""

    name = "diversity"
    group = "part"
    joined = False

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """This term has no settings."""
        return cls()

    def forward(self, prototypes: Tensor) -> Tensor:
        """Scalar loss of prototypes (K, C)."""
        return diversity_loss(prototypes)


def diversity_loss(prototypes: Tensor) -> Tensor:
    """Mean squared cosine between different prototypes (K, C); scalar."""
    count = len(prototypes)
    different = ~torch.eye(count, dtype=torch.bool, device=prototypes.device)
    cosines = torch.where(different, cosine_matrix(prototypes, prototypes), 0.0)
    return cosines.square().sum() / max(count * (count - 1), 1)
