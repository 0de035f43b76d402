"""Proxy-anchor loss (Kim et al., 2020): one learned proxy for each training location."""

from typing import Self

import torch
from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.losses.cosine import cosine_matrix
from skypart.losses.pairs import masked_mean
from skypart.losses.term import LossContext, LossTerm
from skypart.model.parameter_rules import ParameterRule


class ProxyAnchorLoss(LossTerm):
    """Owns `proxies` (locations, embedding_dim). Pulls both views towards the proxy of their location.

    delta: margin on the cosine. alpha: scale of the cosine, also in UAPA's logits.
    Initial proxies have an expected length of 1, so that one learning rate suits all data sets.
    """

    name = "proxy_anchor"
    group = "align"

    def __init__(self, locations: int, embedding_dim: int = 768, delta: float = 0.1, alpha: float = 32.0) -> None:
        super().__init__()
        self.delta, self.alpha = delta, alpha
        self.proxies = nn.Parameter(torch.randn(locations, embedding_dim) * embedding_dim**-0.5)

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """One proxy for each training location."""
        c = context.config
        return cls(context.locations, context.widths["embedding"], c.proxy_delta, c.proxy_alpha)

    def provides(self) -> dict[str, Tensor]:
        """proxies (locations, D), for UAPA."""
        return {"proxies": self.proxies}

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """Proxies have their own learning rate."""
        return {"proxies": ParameterRule("proxies")}

    def forward(self, embedding: Tensor, location: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D) and location (B,) int64 in [0, locations)."""
        locations = len(self.proxies)
        if location.numel() and not 0 <= int(location.min()) <= int(location.max()) < locations:
            raise SkyPartError(
                f"a batch contains locations {int(location.min())} to {int(location.max())}, but there are "
                f"{locations} proxies; number the training locations from 0 and build the loss with their count"
            )
        return proxy_anchor_loss(embedding, location, self.proxies, self.delta, self.alpha)


def proxy_anchor_loss(
    embedding: Tensor, location: Tensor, proxies: Tensor, delta: float = 0.1, alpha: float = 32.0
) -> Tensor:
    """Scalar loss of embedding (B, D), location (B,) int64 and proxies (C, D).

    The pull is averaged over the proxies with images in the batch, the push over all C proxies.
    """
    similarity = cosine_matrix(proxies, embedding)
    positive = torch.arange(len(proxies), device=location.device)[:, None] == location[None, :]
    pull = _log_one_plus_sum_exp(-alpha * (similarity - delta), positive)
    push = _log_one_plus_sum_exp(alpha * (similarity + delta), ~positive)
    return masked_mean(pull, positive.any(1)) + push.mean()


def _log_one_plus_sum_exp(logits: Tensor, mask: Tensor) -> Tensor:
    """log(1 + sum of exp(logits) over mask), (C, B) -> (C,); 0 where nothing is selected."""
    one = logits.new_zeros(len(logits), 1)
    return torch.cat([one, logits.masked_fill(~mask, -torch.inf)], 1).logsumexp(1)
