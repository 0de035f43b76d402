"""Patch-level NCE: patches with the same location and prototype agree across views."""

from typing import Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from skypart.losses.cosine import unit_vectors
from skypart.losses.pairs import log_one_plus_exp, masked_logsumexp, masked_mean
from skypart.losses.term import LossContext, LossTerm

_ANCHORS_AT_ONCE = 256  # rows of the similarity matrix in memory at a time: 5 MB for 80 images x 64 patches


class PatchNceLoss(LossTerm):
    """Patch NCE with a fixed temperature."""

    name = "patch_nce"
    group = "align"

    def __init__(self, temperature: float = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """Uses the temperature of the recipe."""
        return cls(context.config.patch_nce_temperature)

    def forward(self, patch_tokens: Tensor, patch_prototype: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of patch_tokens (B, n, C) and patch_prototype (B, n) int64."""
        return patch_nce_loss(patch_tokens, patch_prototype, location, is_drone, self.temperature)


def patch_nce_loss(
    tokens: Tensor,
    prototype: Tensor,
    location: Tensor,
    is_drone: Tensor,
    temperature: float = 0.07,
    anchors_at_once: int = _ANCHORS_AT_ONCE,
) -> Tensor:
    """Mean of the loss over drone patches and the loss over satellite patches; scalar.

    tokens (B, n, C): the sampled patches. prototype (B, n) int64: the prototype of each patch. location (B,) int64.
    is_drone (B,) bool. The positives of an anchor are patches of the same location and prototype in the other view; its
    negatives are all other patches of the batch. The loss of an anchor is the mean over its positives of the cross
    entropy of that positive among itself and the negatives. Anchors without a positive or a negative are left out.
    """
    vectors, patches = unit_vectors(tokens).flatten(0, 1), tokens.shape[1]
    view = is_drone.repeat_interleave(patches)
    labels = torch.stack([location.repeat_interleave(patches), prototype.flatten(), view.long()])
    losses, counts = [vectors.sum(1)[:0]], [view[:0]]
    for start in range(0, len(vectors), anchors_at_once):
        # recomputed in the backward pass, so that the whole (B n)^2 matrix is never in memory
        rows = (start, start + anchors_at_once)
        loss, valid = checkpoint(
            _anchor_losses, vectors, labels, rows, temperature, use_reentrant=False, preserve_rng_state=False
        )
        losses.append(loss)
        counts.append(valid)
    loss, valid = torch.cat(losses), torch.cat(counts)
    return (masked_mean(loss, valid & view) + masked_mean(loss, valid & ~view)) / 2


def _anchor_losses(vectors: Tensor, labels: Tensor, rows: tuple[int, int], temperature: float) -> tuple[Tensor, Tensor]:
    """Loss of the anchors in `rows` and whether they count, from unit vectors (T, C) and labels (3, T)."""
    start, stop = rows
    with torch.autocast(vectors.device.type, enabled=False):
        logits = vectors[start:stop] @ vectors.T / temperature
    same = labels[:, start:stop, None] == labels[:, None, :]
    positive = same[0] & same[1] & ~same[2]
    negative = ~positive
    itself = torch.arange(len(logits), device=logits.device)
    negative[itself, itself + start] = False
    row, column = positive.nonzero(as_tuple=True)  # about one entry in 300; only these need a cross entropy
    cross_entropy = log_one_plus_exp(masked_logsumexp(logits, negative)[row] - logits[row, column])
    loss = logits.new_zeros(len(logits)).index_add(0, row, cross_entropy) / positive.sum(1).clamp(min=1)
    return loss, positive.any(1) & negative.any(1)
