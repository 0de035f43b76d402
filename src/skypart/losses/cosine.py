"""Cosine similarity in float32 or better, for inputs of any precision and under autocast."""

import torch
from torch import Tensor
from torch.nn import functional as F

_SMALLEST_NORM = 1e-8  # the factor for shorter vectors is limited to 1e8, so that gradients stay finite


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32; return float32 and float64 unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit_vectors(x: Tensor) -> Tensor:
    """Scale vectors (..., D) to length 1; a zero vector stays zero."""
    return F.normalize(at_least_float32(x), dim=-1, eps=_SMALLEST_NORM)


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of every row of a (N, D) with every row of b (M, D), shape (N, M)."""
    with torch.autocast(a.device.type, enabled=False):  # a bfloat16 product has errors of 0.4 %
        return unit_vectors(a) @ unit_vectors(b).T


def paired_cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of corresponding vectors of a and b (..., D), shape (...)."""
    return (unit_vectors(a) * unit_vectors(b)).sum(-1)
