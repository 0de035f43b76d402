"""Masked part reconstruction (MAR): predict masked patches from the parts of the visible ones."""

from typing import Self

import torch
from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.losses.cosine import at_least_float32, paired_cosine
from skypart.losses.term import LossContext, LossTerm


class MaskedReconstructionLoss(LossTerm):
    """Owns the decoder part_dim -> hidden -> part_dim, which is not part of the deployed model."""

    name = "mar"
    group = "part"
    joined = False

    def __init__(self, part_dim: int = 256, hidden: int = 512) -> None:
        super().__init__()
        self.decoder = nn.Sequential(
            nn.Linear(part_dim, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, part_dim)
        )

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """The decoder is as wide as the tokens."""
        return cls(context.widths["tokens"], context.config.mar_hidden)

    def forward(self, tokens: Tensor, assignment: Tensor, masked: Tensor, masked_descriptors: Tensor) -> Tensor:
        """Mean of 1 - cos over all masked positions; scalar.

        tokens (B, N, C): the target, detached. assignment (B, N, K): detached.
        masked (B, N) bool. masked_descriptors (B, K, C): parts aggregated from the visible tokens only.
        """
        mixed = reconstruction_input(assignment, masked, masked_descriptors)
        decoded = self.decoder(mixed.to(next(self.decoder.parameters()).dtype))
        distance = 1 - paired_cosine(decoded, tokens.detach()[masked])
        return distance.sum() / max(len(distance), 1)


def reconstruction_input(assignment: Tensor, masked: Tensor, descriptors: Tensor) -> Tensor:
    """Descriptors (B, K, C), mixed by assignment (B, N, K) for each masked position, shape (masked, C).

    The assignment gets no gradient: otherwise one prototype would take over all masked positions.
    """
    descriptors = at_least_float32(descriptors)
    return (assignment.detach().to(descriptors.dtype) @ descriptors)[masked]


def random_mask(batch: int, tokens: int, ratio: float, generator: torch.Generator) -> Tensor:
    """Bool (batch, tokens) on the generator's device, with exactly round(ratio * tokens) True in each row."""
    if not 0 <= ratio < 1:
        raise SkyPartError(f"the mask ratio is {ratio}; choose a value in [0, 1)")
    noise = torch.rand(batch, tokens, generator=generator, device=generator.device)
    chosen = noise.argsort(1)[:, : round(ratio * tokens)]
    return torch.zeros_like(noise, dtype=torch.bool).scatter_(1, chosen, True)
