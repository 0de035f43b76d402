"""Prototype diversity: prototypes are pushed towards an orthogonal set."""

import torch
from torch import Tensor

from skypart.losses.cosine import cosine_matrix


def diversity_loss(prototypes: Tensor) -> Tensor:
    """Mean squared cosine between different prototypes (K, C); scalar."""
    count = len(prototypes)
    different = ~torch.eye(count, dtype=torch.bool, device=prototypes.device)
    cosines = torch.where(different, cosine_matrix(prototypes, prototypes), 0.0)
    return cosines.square().sum() / max(count * (count - 1), 1)
