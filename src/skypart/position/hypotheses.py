"""Hypotheses about where a drone is: predict them with a motion model, update them with observations (Kalman)."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NONE = -1
"""No parent, or no observation."""
RADIUS_95 = math.sqrt(-2.0 * math.log(0.05))
"""Radius that holds 95 % of a circular normal distribution, in standard deviations along one axis."""
LINE_95 = 1.959964
"""The same for a distribution along a line."""

MIN_DEVIATION_M = 1.0
"""Smallest standard deviation of an observation."""
MIN_TRUST, MAX_TRUST = 0.3, 0.95
"""Limits of the trust in a fix, whatever its confidence."""
IGNORED_TRUST = 0.02
"""Observations with less trust are dropped."""


@dataclass(frozen=True)
class Motion:
    """An Ornstein-Uhlenbeck process: the velocity changes at random and is pulled back to zero.

    max_speed: m/s, twice the standard deviation of the velocity along an axis. max_acceleration: m/s^2, twice the
    standard deviation of the change of velocity within a second. States are (x, y, vx, vy) in metres.
    """

    max_speed: float
    max_acceleration: float

    @property
    def speed_deviation(self) -> float:
        """Standard deviation of an unknown velocity along one axis, m/s."""
        return self.max_speed / 2.0

    def transition(self, seconds: float) -> tuple[Floats, Floats]:
        """(4, 4) transition matrix and (4, 4) covariance of the process noise over `seconds`."""
        push = (self.max_acceleration / 2.0) ** 2
        pull = push / (2.0 * self.speed_deviation**2)
        t, gone = seconds, -math.expm1(-pull * seconds)
        left = 1.0 - gone
        drift = push / pull**2 * (t - 2.0 * gone / pull + gone * (1.0 + left) / (2.0 * pull))
        if pull * t < 1e-3:  # the exact form loses all digits here
            drift = push * t**3 / 3.0
        both = push / (2.0 * pull**2) * gone**2
        speed = push / (2.0 * pull) * gone * (1.0 + left)
        transition: Floats = np.kron(np.array([[1.0, gone / pull], [0.0, left]]), np.eye(2))
        noise: Floats = np.kron(np.array([[drift, both], [both, speed]]), np.eye(2))
        return transition, noise

    def limit_speed(self, states: Floats) -> Floats:
        """(n, 4) states with velocities shortened to `max_speed`."""
        speed = np.linalg.norm(states[:, 2:], axis=1)
        shrink = np.minimum(1.0, self.max_speed / np.maximum(speed, 1e-9))
        return np.concatenate([states[:, :2], states[:, 2:] * shrink[:, None]], axis=1)


def radius_95(covariance: Floats) -> float:
    """Radius in metres around the mean that holds 95 % of a normal distribution with this (2, 2) covariance.

    Exact for a circle and for a line, and within 1 % in between.
    """
    small, large = np.linalg.eigvalsh(covariance)
    large = max(float(large), 0.0)
    share = min(max(float(small) / large, 0.0), 1.0) if large > 0 else 1.0
    return math.sqrt(large * (LINE_95**2 + (RADIUS_95**2 - LINE_95**2) * share**1.5))


@dataclass(frozen=True)
class Observation:
    """A place where a photo may have been taken: position (2,) in metres, variance along an axis, and trust, 0..1."""

    position: Floats
    variance: float
    trust: float


def observations_from_fix(fix: Fix | None, frame: LocalFrame, novelty: float) -> tuple[Observation, ...]:
    """The place of the fix, and the other peaks with the remaining trust; empty without a fix.

    novelty: 0..1, how much of the photo was not on the one before.
    """
    if fix is None or not fix.found:
        return ()
    trust = min(max(fix.confidence, 0.0), MAX_TRUST)
    places: list[tuple[float, float, float, float]] = []
    if fix.latitude is not None and fix.longitude is not None and fix.radius_m is not None:
        trust = max(trust, MIN_TRUST)
        own = math.sqrt(max(fix.radius_m**2 - fix.map_error_m**2, 0.0))  # the map's error shifts all places equally
        places.append((fix.latitude, fix.longitude, own / RADIUS_95, trust))
    left = 1.0 - trust if places else trust
    places += [(peak.latitude, peak.longitude, peak.spread_m, left * min(peak.weight, 1.0)) for peak in fix.peaks]
    made: list[Observation] = []
    for latitude, longitude, deviation, share in places:
        metres = frame.to_metres(latitude=latitude, longitude=longitude)
        position = np.array([float(metres.x), float(metres.y)])
        if share < IGNORED_TRUST or not (np.isfinite(position).all() and math.isfinite(deviation)):
            continue
        if made and math.dist(position, made[0].position) < 2.0 * deviation:
            continue  # the peak that the fix was refined from
        made.append(Observation(position, max(deviation, MIN_DEVIATION_M) ** 2 / novelty, share * novelty))
    return tuple(made)


@dataclass(frozen=True)
class Hypotheses:
    """n possible tracks, each a normal distribution over position and velocity.

    log_weight (n,). mean (n, 4) of (x, y, vx, vy). covariance (n, 4, 4). parent (n,): index into the hypotheses of the
    step before, NONE for a new one. observation (n,): index of the observation used at this step, or NONE. misses (n,):
    consecutive fixes that contradicted it; fixes close in time count in part, because their errors are similar.
    """

    log_weight: Floats
    mean: Floats
    covariance: Floats
    parent: Ints
    observation: Ints
    misses: Floats

    def __len__(self) -> int:
        """How many."""
        return len(self.log_weight)

    def take(self, chosen: Ints | NDArray[np.bool_]) -> "Hypotheses":
        """The hypotheses selected by indices or by a mask."""
        return Hypotheses(
            self.log_weight[chosen],
            self.mean[chosen],
            self.covariance[chosen],
            self.parent[chosen],
            self.observation[chosen],
            self.misses[chosen],
        )


def no_hypotheses() -> Hypotheses:
    """An empty set."""
    numbers = np.zeros(0, dtype=np.int64)
    return Hypotheses(np.zeros(0), np.zeros((0, 4)), np.zeros((0, 4, 4)), numbers, numbers, np.zeros(0))


def new_hypothesis(observation: Observation, number: int, log_weight: float, motion: Motion) -> Hypotheses:
    """One hypothesis that starts at an observation, with unknown velocity. number: index of the observation."""
    speed = motion.speed_deviation**2
    return Hypotheses(
        np.array([log_weight]),
        np.array([[observation.position[0], observation.position[1], 0.0, 0.0]]),
        np.diag([observation.variance, observation.variance, speed, speed])[None],
        np.array([NONE]),
        np.array([number]),
        np.zeros(1),
    )


def concatenate(groups: list[Hypotheses]) -> Hypotheses:
    """All hypotheses of `groups`, in order."""
    return Hypotheses(
        np.concatenate([group.log_weight for group in groups]),
        np.concatenate([group.mean for group in groups]),
        np.concatenate([group.covariance for group in groups]),
        np.concatenate([group.parent for group in groups]),
        np.concatenate([group.observation for group in groups]),
        np.concatenate([group.misses for group in groups]),
    )


def predict(hypotheses: Hypotheses, motion: Motion, seconds: float) -> Hypotheses:
    """Hypotheses `seconds` later; their parents are the ones given."""
    transition, noise = motion.transition(seconds)
    count = len(hypotheses)
    return replace(
        hypotheses,
        mean=hypotheses.mean @ transition.T,
        covariance=transition @ hypotheses.covariance @ transition.T + noise,
        parent=np.arange(count),
        observation=np.full(count, NONE),
    )


def log_density(hypotheses: Hypotheses, observation: Observation) -> Floats:
    """(n,) logarithm of the density, per square metre, at which each hypothesis expects the observation."""
    covariance = hypotheses.covariance[:, :2, :2] + observation.variance * np.eye(2)
    difference = observation.position - hypotheses.mean[:, :2]
    distance = squared_distance(difference, covariance)
    result: Floats = -0.5 * distance - 0.5 * np.linalg.slogdet(covariance)[1] - np.log(2 * np.pi)
    return result


def squared_distance(difference: Floats, covariance: Floats) -> Floats:
    """(n,) squared Mahalanobis distances of differences (n, d) under covariances (n, d, d)."""
    distance: Floats = np.einsum("ni,ni->n", difference, np.linalg.solve(covariance, difference[:, :, None])[:, :, 0])
    return distance


def update(hypotheses: Hypotheses, observation: Observation, number: int, motion: Motion) -> Hypotheses:
    """Hypotheses after a Kalman update with an observation; weights unchanged. number: index of the observation."""
    spread = hypotheses.covariance[:, :2, :2] + observation.variance * np.eye(2)
    gain = np.linalg.solve(spread, hypotheses.covariance[:, :2, :]).transpose(0, 2, 1)
    mean = hypotheses.mean + np.einsum("nij,nj->ni", gain, observation.position - hypotheses.mean[:, :2])
    # Joseph's form stays positive definite under rounding.
    keep = np.eye(4) - np.concatenate([gain, np.zeros_like(gain)], axis=2)
    noise = observation.variance * gain @ gain.transpose(0, 2, 1)
    covariance = keep @ hypotheses.covariance @ keep.transpose(0, 2, 1) + noise
    count = len(hypotheses)
    return replace(
        hypotheses,
        mean=motion.limit_speed(mean),
        covariance=covariance,
        observation=np.full(count, number),
        misses=np.zeros(count),
    )


def moments(hypotheses: Hypotheses) -> tuple[float, Floats, Floats]:
    """Logarithm of the total weight, (4,) mean and (4, 4) covariance of all hypotheses together."""
    top = float(hypotheses.log_weight.max())
    share = np.exp(hypotheses.log_weight - top)
    total = float(share.sum())
    share = share / total
    mean = share @ hypotheses.mean
    difference = hypotheses.mean - mean
    spread = difference[:, :, None] * difference[:, None, :]
    covariance = np.einsum("n,nij->ij", share, hypotheses.covariance + spread)
    return top + float(np.log(total)), mean, covariance


def merge(hypotheses: Hypotheses, max_count: int, max_log_ratio: float, distance: float = 1.0) -> Hypotheses:
    """Merge similar hypotheses and drop light ones; best first, at most `max_count`.

    max_log_ratio: those lighter than the best by more than this are dropped. distance: squared Mahalanobis distance
    below which two are merged. The heaviest passes on its parent, observation and misses.
    """
    if len(hypotheses) == 0:
        return hypotheses
    order = np.argsort(-hypotheses.log_weight, kind="stable")
    order = order[hypotheses.log_weight[order] >= hypotheses.log_weight[order[0]] - max_log_ratio]
    left = hypotheses.take(order[: 4 * max_count])
    made: list[Hypotheses] = []
    while len(left) and len(made) < max_count:
        same = squared_distance(left.mean - left.mean[0], left.covariance + left.covariance[0]) < distance
        log_weight, mean, covariance = moments(left.take(same))
        head = left.take(np.array([0]))
        made.append(
            Hypotheses(np.array([log_weight]), mean[None], covariance[None], head.parent, head.observation, head.misses)
        )
        left = left.take(~same)
    return concatenate(made)
