"""A loss term in one file: the pooled tokens of both views keep a length of one."""

from typing import Self

from torch import Tensor

from skypart.losses.term import LossContext, LossTerm


class NormLoss(LossTerm):
    """Mean squared difference between the length of the pooled tokens and 1."""

    name = "norm"
    group = "part"

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """It has no settings."""
        return cls()

    def forward(self, part_pooled: Tensor) -> Tensor:
        """Scalar loss of part_pooled (B, C), which the head gives."""
        loss: Tensor = (part_pooled.norm(dim=-1) - 1).square().mean()
        return loss
