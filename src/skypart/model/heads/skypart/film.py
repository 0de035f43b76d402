"""Altitude as a nuisance variable in training: a scale and shift per altitude bin, averaged at inference."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AltitudeFiLM(nn.Module):
    """FiLM(z; a) = gamma_a * z + beta_a for altitude bin a. Evaluation always uses the mean over the bins.

    bins: altitudes in metres, one bin each. If there are none, all images share one bin.
    """

    centres: Tensor

    def __init__(self, dim: int, bins: Sequence[float]) -> None:
        super().__init__()
        count = max(1, len(bins))
        self.gamma = nn.Parameter(torch.ones(count, dim))
        self.beta = nn.Parameter(torch.zeros(count, dim))
        self.register_buffer("centres", torch.tensor(list(bins), dtype=torch.float32), persistent=False)

    def forward(self, tokens: Tensor, altitude: Tensor | None = None) -> Tensor:
        """Modulate tokens (batch, patches, dim). altitude: (batch,) metres, NaN if unknown; used only in training."""
        if not self.training or altitude is None or not len(self.centres):
            return self.mean(tokens)
        known = torch.isfinite(altitude)
        nearest = (torch.nan_to_num(altitude)[:, None] - self.centres).abs().argmin(dim=1)
        gamma = torch.where(known[:, None], self.gamma[nearest], self.gamma.mean(0))
        beta = torch.where(known[:, None], self.beta[nearest], self.beta.mean(0))
        return gamma[:, None] * tokens + beta[:, None]

    def mean(self, tokens: Tensor) -> Tensor:
        """The modulation averaged over all bins. Since FiLM is affine, it equals the mean output of all bins."""
        return self.gamma.mean(0) * tokens + self.beta.mean(0)
