"""GeM: the generalised mean of the patch tokens with a learned exponent (Radenovic et al., 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.model.heads.interface import Head, HeadOutput, HeadSettings
from skypart.model.vit import Tokens

_SMALLEST = 1e-6
"""Tokens are clamped to this from below: a power of a negative number is not real."""


@dataclass(frozen=True)
class GemSettings(HeadSettings):
    """exponent: at the start; 1 is the mean, a large one the maximum. layer: the block that is read; 0: the last."""

    kind: ClassVar[str] = "gem"

    exponent: Annotated[float, Field(ge=1.0, le=100.0)] = 3.0
    layer: int = 0


class GemHead(Head):
    """Generalised mean over patches, then a linear layer."""

    settings_class = GemSettings
    settings: GemSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        self.exponent = nn.Parameter(torch.tensor(float(self.settings.exponent)))
        self.project = nn.Linear(dim, settings.embedding_dim)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """Patches (b, n, dim) -> unit embeddings."""
        return HeadOutput(normalize(self.project(generalised_mean(tokens[0].patches, self.exponent)), dim=-1))


def generalised_mean(patches: Tensor, exponent: Tensor) -> Tensor:
    """(mean over patches of x^p)^(1/p) of patches (b, n, dim) and p (), shape (b, dim)."""
    return patches.clamp(min=_SMALLEST).pow(exponent).mean(dim=1).pow(1.0 / exponent)
