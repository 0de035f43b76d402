"""Sparsity of the salience gate: a prior on how many prototypes are open in an image."""

from typing import Self

from torch import Tensor

from skypart.losses.term import LossContext, LossTerm


class SparsityLoss(LossTerm):
    """Squared distance of the mean salience of each image from a target share. Not in the paper; off by default."""

    name = "sparsity"
    group = "part"
    joined = False

    def __init__(self, target: float) -> None:
        super().__init__()
        self.target = target

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """With `loss.sparsity_target`."""
        return cls(context.config.sparsity_target)

    def forward(self, salience: Tensor) -> Tensor:
        """Scalar loss of salience (b, k) in [0, 1]."""
        return (salience.mean(dim=1) - self.target).square().mean()
