"""Masked autoencoding of patch tokens (He et al., 2022). Off by default: the paper kept MAR on parts instead."""

from typing import Self

import torch
from torch import Tensor, nn

from skypart.losses.cosine import paired_cosine
from skypart.losses.term import LossContext, LossTerm


class PatchMaeLoss(LossTerm):
    """Owns a mask token and one transformer layer, neither of them part of the deployed model."""

    name = "patch_mae"
    group = "part"
    joined = False

    def __init__(self, dim: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.mask_token = nn.Parameter(torch.zeros(dim))
        self.decoder = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True)

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """As wide as the tokens."""
        return cls(context.widths["tokens"])

    def forward(self, tokens: Tensor, masked: Tensor) -> Tensor:
        """Mean of 1 - cos over masked positions; scalar. tokens (B, N, C), a constant target; masked (B, N) bool."""
        tokens = tokens.float()
        hidden = torch.where(masked[..., None], self.mask_token, tokens) + _positions(tokens)
        distance = 1 - paired_cosine(self.decoder(hidden)[masked], tokens.detach()[masked])
        return distance.sum() / max(len(distance), 1)


def _positions(tokens: Tensor) -> Tensor:
    """Sine and cosine of the index of each token, (N, C)."""
    count, dim = tokens.shape[1:]
    index = torch.arange(count, device=tokens.device, dtype=tokens.dtype)[:, None]
    frequency = 10_000 ** -(torch.arange(dim // 2, device=tokens.device, dtype=tokens.dtype) / max(dim // 2, 1))
    waves = torch.cat([(index * frequency).sin(), (index * frequency).cos()], dim=1)
    return torch.nn.functional.pad(waves, (0, dim - waves.shape[1]))
