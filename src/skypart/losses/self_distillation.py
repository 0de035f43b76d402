"""Self-distillation: the embedding follows that of the exponential moving average of the model."""

from torch import Tensor

from skypart.losses.cosine import paired_cosine


def self_distillation_loss(embedding: Tensor, ema_embedding: Tensor) -> Tensor:
    """Mean of 1 - cos over embedding (B, D) and the constant ema_embedding (B, D); scalar."""
    return (1 - paired_cosine(embedding, ema_embedding.detach())).sum() / max(len(embedding), 1)
