"""Uncertainty-aware proxy alignment (UAPA): the drone's distribution over proxies follows the satellite's."""

import math
from typing import Self

import torch
from torch import Tensor

from skypart.losses.config import Direction
from skypart.losses.cosine import at_least_float32, cosine_matrix
from skypart.losses.pairs import same_location
from skypart.losses.term import LossContext, LossTerm


class UapaLoss(LossTerm):
    """UAPA on the logits of the proxies."""

    name = "uapa"
    group = "align"

    def __init__(self, alpha: float = 32.0, base_temperature: float = 4.0, direction: Direction = "reverse") -> None:
        super().__init__()
        self.alpha, self.base_temperature, self.direction = alpha, base_temperature, direction

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """Uses scale, temperature and direction of the recipe."""
        c = context.config
        return cls(c.proxy_alpha, c.uapa_temperature, c.uapa_direction)

    def forward(self, embedding: Tensor, proxies: Tensor, location: Tensor, is_drone: Tensor) -> Tensor:
        """Scalar loss of embedding (B, D) and proxies (C, D)."""
        return uapa_loss(embedding, proxies, location, is_drone, self.alpha, self.base_temperature, self.direction)


def uapa_loss(
    embedding: Tensor,
    proxies: Tensor,
    location: Tensor,
    is_drone: Tensor,
    alpha: float = 32.0,
    base_temperature: float = 4.0,
    direction: Direction = "reverse",
) -> Tensor:
    """Mean over positive drone-satellite pairs; scalar.

    embedding (B, D), proxies (C, D), location (B,) int64, is_drone (B,) bool. The logits are alpha times the
    cosine to the proxies. The satellite's logits and the temperature are detached.
    """
    logits = alpha * cosine_matrix(embedding, proxies)
    drone, satellite = same_location(location, is_drone).nonzero(as_tuple=True)
    drone_logits, satellite_logits = logits[is_drone][drone], logits[~is_drone][satellite].detach()
    temperature = uapa_temperature(drone_logits.detach(), satellite_logits, base_temperature)
    divergence = softened_divergence(drone_logits, satellite_logits, temperature, direction)
    return divergence.sum() / max(len(divergence), 1)


def uapa_temperature(drone_logits: Tensor, satellite_logits: Tensor, base_temperature: float = 4.0) -> Tensor:
    """Temperature (N,) of each pair, in [T0, 2 T0], from logits (N, C): higher if the drone is less certain."""
    max_entropy = math.log(drone_logits.shape[-1]) or 1.0  # with a single proxy, both entropies are 0
    gap = (_entropy(drone_logits) - _entropy(satellite_logits)) / max_entropy
    return base_temperature * (1 + gap.clamp(0, 1))


def softened_divergence(
    drone_logits: Tensor, satellite_logits: Tensor, temperature: Tensor, direction: Direction = "reverse"
) -> Tensor:
    """T^2 KL of the softened distributions of each pair: logits (N, C), temperature (N,) -> (N,).

    reverse: KL(drone || satellite), mode-seeking. forward: KL(satellite || drone), mode-covering.
    """
    log_drone = torch.log_softmax(at_least_float32(drone_logits) / temperature[:, None], -1)
    log_satellite = torch.log_softmax(at_least_float32(satellite_logits) / temperature[:, None], -1)
    p, q = (log_drone, log_satellite) if direction == "reverse" else (log_satellite, log_drone)
    return temperature**2 * (p.exp() * (p - q)).sum(-1)


def _entropy(logits: Tensor) -> Tensor:
    """Shannon entropy in nats of softmax(logits), (N, C) -> (N,)."""
    log_p = torch.log_softmax(at_least_float32(logits), -1)
    return -(log_p.exp() * log_p).sum(-1)
