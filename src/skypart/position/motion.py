"""How a drone moves between two photos: its velocity persists, drifts, and stays within limits."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RADIUS_95 = math.sqrt(-2.0 * math.log(0.05))
"""Radius that holds 95 % of a round normal distribution, in standard deviations of one axis."""


@dataclass(frozen=True)
class Motion:
    """A velocity that is pushed about at random and pulled back to rest (an Ornstein-Uhlenbeck process).

    max_speed: m/s, twice the standard deviation of the velocity along an axis. max_acceleration: m/s^2, twice the
    standard deviation of the change of velocity within a second. State of an object: (x, y, vx, vy) in metres.
    """

    max_speed: float
    max_acceleration: float

    @property
    def speed_deviation(self) -> float:
        """Of a velocity of which nothing is known, along one axis, m/s."""
        return self.max_speed / 2.0

    def over(self, seconds: float) -> tuple[Floats, Floats]:
        """(4, 4) transition and (4, 4) covariance of what is added to it, over `seconds`."""
        push = (self.max_acceleration / 2.0) ** 2
        pull = push / (2.0 * self.speed_deviation**2)
        t, gone = seconds, -math.expm1(-pull * seconds)
        left = 1.0 - gone
        drift = push / pull**2 * (t - 2.0 * gone / pull + gone * (1.0 + left) / (2.0 * pull))
        if pull * t < 1e-3:  # the exact form cancels to nothing
            drift = push * t**3 / 3.0
        both = push / (2.0 * pull**2) * gone**2
        speed = push / (2.0 * pull) * gone * (1.0 + left)
        transition: Floats = np.kron(np.array([[1.0, gone / pull], [0.0, left]]), np.eye(2))
        noise: Floats = np.kron(np.array([[drift, both], [both, speed]]), np.eye(2))
        return transition, noise

    def limited(self, states: Floats) -> Floats:
        """(n, 4) states with no velocity above the greatest."""
        speed = np.linalg.norm(states[:, 2:], axis=1)
        shrink = np.minimum(1.0, self.max_speed / np.maximum(speed, 1e-9))
        return np.concatenate([states[:, :2], states[:, 2:] * shrink[:, None]], axis=1)


def radius_95(covariance: Floats) -> float:
    """Metres around the mean that hold 95 % of a normal distribution with this (2, 2) covariance, within 1 %.

    Exact for a circle and for a line, and between the two in variance.
    """
    small, large = np.linalg.eigvalsh(covariance)
    large = max(float(large), 0.0)
    share = min(max(float(small) / large, 0.0), 1.0) if large > 0 else 1.0
    return math.sqrt(large * (1.959964**2 + (RADIUS_95**2 - 1.959964**2) * share**1.5))
