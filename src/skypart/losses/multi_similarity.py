"""Multi-similarity loss (Wang et al., 2019) over drone x satellite pairs. Off by default: the paper dropped it."""

from typing import Self

import torch
from torch import Tensor

from skypart.losses.pairs import CrossViewPairs, cross_view_pairs, masked_mean
from skypart.losses.term import LossContext, LossTerm


class MultiSimilarityLoss(LossTerm):
    """Soft weights of all mined pairs of an anchor: those not clearly on the right side of the others."""

    name = "multi_similarity"
    group = "align"

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, threshold: float = 0.5, epsilon: float = 0.1) -> None:
        super().__init__()
        self.alpha, self.beta, self.threshold, self.epsilon = alpha, beta, threshold, epsilon

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """With the settings of its paper."""
        return cls()

    def forward(self, embedding: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D), location (B,) int64 and is_drone (B,) bool."""
        pairs = cross_view_pairs(embedding, location, is_drone)
        losses, valid = zip(*(self._anchors(each) for each in (pairs, pairs.transposed)), strict=True)
        return masked_mean(torch.cat(losses), torch.cat(valid))

    def _anchors(self, pairs: CrossViewPairs) -> tuple[Tensor, Tensor]:
        """Loss of each anchor (N,) and whether it has a positive and a negative (N,)."""
        s, positive = pairs.similarity, pairs.positive
        worst_positive = s.masked_fill(~positive, 2.0).amin(dim=1, keepdim=True)
        best_negative = s.masked_fill(positive, -2.0).amax(dim=1, keepdim=True)
        pulled = positive & (s - self.epsilon < best_negative)
        pushed = ~positive & (s + self.epsilon > worst_positive)
        pull = _log_one_plus_sum(-self.alpha * (s - self.threshold), pulled) / self.alpha
        push = _log_one_plus_sum(self.beta * (s - self.threshold), pushed) / self.beta
        return pull + push, positive.any(1) & (~positive).any(1)


def _log_one_plus_sum(logits: Tensor, mask: Tensor) -> Tensor:
    """log(1 + sum of exp(logits) over mask), (N, M) -> (N,); 0 where nothing is selected."""
    one = logits.new_zeros(len(logits), 1)
    return torch.cat([one, logits.masked_fill(~mask, -torch.inf)], 1).logsumexp(1)
