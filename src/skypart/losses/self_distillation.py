"""Self-distillation: the embedding follows the embedding of the model's exponential moving average."""

from typing import Self

from torch import Tensor

from skypart.losses.cosine import paired_cosine
from skypart.losses.term import LossContext, LossTerm


class SelfDistillationLoss(LossTerm):
    """Distillation from the moving average of the model."""

    name = "ema"
    group = "distill"

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """This term has no settings."""
        return cls()

    def forward(self, embedding: Tensor, ema_embedding: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D) and ema_embedding (B, D)."""
        return self_distillation_loss(embedding, ema_embedding)


def self_distillation_loss(embedding: Tensor, ema_embedding: Tensor) -> Tensor:
    """Mean of 1 - cos of embedding (B, D) and ema_embedding (B, D), detached; scalar."""
    return (1 - paired_cosine(embedding, ema_embedding.detach())).sum() / max(len(embedding), 1)
