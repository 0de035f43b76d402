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
TAIL = 1.3
"""Standard deviations are multiplied by this for the protection level: errors have heavier tails than a normal law."""
IGNORED_TRUST = 0.02
"""Observations with less trust are dropped."""


@dataclass(frozen=True)
class Motion:
    """An Ornstein-Uhlenbeck process: the velocity changes at random and is pulled back to zero.

    max_speed: m/s, twice the standard deviation of the velocity along an axis. max_acceleration: m/s^2, twice the
    standard deviation of the change of velocity within a second. States are (x, y, vx, vy) in metres.

    slow_s, drift_s: seconds after which the errors of fixes, and of measured velocities, are forgotten. If both are
    given, the state has four more numbers: the shared error of fixes and that of velocities, each east and north, in
    units of their standard deviation. They fade as Gauss-Markov processes of variance 1.
    """

    max_speed: float
    max_acceleration: float
    slow_s: float = 0.0
    drift_s: float = 0.0

    @property
    def size(self) -> int:
        """Numbers of a state: 4, or 8 with shared errors."""
        return 8 if self.slow_s > 0 and self.drift_s > 0 else 4

    @property
    def speed_deviation(self) -> float:
        """Standard deviation of an unknown velocity along one axis, m/s."""
        return self.max_speed / 2.0

    def transition(self, seconds: float) -> tuple[Floats, Floats]:
        """Transition matrix and covariance of the process noise over `seconds`, (size, size) each."""
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
        if self.size == 4:
            return transition, noise
        kept = np.repeat([math.exp(-t / self.slow_s), math.exp(-t / self.drift_s)], 2)
        whole, whole_noise = np.diag([1.0] * 4 + kept.tolist()), np.diag([0.0] * 4 + (1.0 - kept**2).tolist())
        whole[:4, :4], whole_noise[:4, :4] = transition, noise
        return whole, whole_noise

    def limit_speed(self, states: Floats) -> Floats:
        """(n, size) states with velocities shortened to `max_speed`."""
        speed = np.linalg.norm(states[:, 2:4], axis=1)
        shrink = np.minimum(1.0, self.max_speed / np.maximum(speed, 1e-9))
        return np.concatenate([states[:, :2], states[:, 2:4] * shrink[:, None], states[:, 4:]], axis=1)


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
    """A place where a photo may have been taken: position (2,) in metres, variance along an axis, and trust, 0..1.

    slow: standard deviation of the error that it shares with the photos before and after; not part of the variance.
    photos: how many it was aligned from. votes: how many fixes of single photos it counts for.
    """

    position: Floats
    variance: float
    trust: float
    slow: float = 0.0
    photos: int = 1
    votes: float = 1.0

    @property
    def total_variance(self) -> float:
        """Variance along an axis, with the shared error."""
        return self.variance + self.slow**2


@dataclass(frozen=True)
class MeasuredVelocity:
    """A velocity over the ground, (2,) m/s east and north.

    deviation: standard deviation of its noise along an axis. drift: of the error that it shares with those before.
    own_clock: whether it was timed by another clock than the photos, which may be off. instead: what the images
    measured, for as long as that clock is not confirmed.
    """

    velocity: Floats
    deviation: float = 0.5
    drift: float = 0.3
    own_clock: bool = False
    instead: "MeasuredVelocity | None" = None


def observations_from_fix(
    fix: Fix | None, frame: LocalFrame, novelty: float, slow_share: float = 0.0, drone: bool = False
) -> tuple[Observation, ...]:
    """The place of the fix, and the other peaks with the remaining trust; empty without a fix.

    novelty: 0..1, how much of the photo was not on the one before. slow_share: share of a fix's variance that is common
    to photos close in time. drone: observe the drone's own position; then the peaks, which are ground, are left out.
    """
    if fix is None or not fix.found:
        return ()
    if drone:
        if fix.drone_latitude is None or fix.drone_longitude is None:
            return ()
        fix = replace(fix, latitude=fix.drone_latitude, longitude=fix.drone_longitude, peaks=())
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
        variance = max(deviation, MIN_DEVIATION_M) ** 2
        made.append(
            Observation(
                position, (1.0 - slow_share) * variance / novelty, share * novelty, math.sqrt(slow_share * variance)
            )
        )
    return tuple(made)


@dataclass(frozen=True)
class Hypotheses:
    """n possible tracks, each a normal distribution over position and velocity.

    log_weight (n,). mean (n, size) of (x, y, vx, vy) and shared errors, see Motion. covariance (n, size, size). parent
    (n,): index into the hypotheses of the step before, NONE for a new one. observation (n,): index of the observation
    used at this step, or NONE. misses (n,): consecutive fixes that contradicted it; fixes close in time count in part,
    because their errors are similar.
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


def no_hypotheses(size: int = 4) -> Hypotheses:
    """An empty set of states of `size` numbers."""
    numbers = np.zeros(0, dtype=np.int64)
    return Hypotheses(np.zeros(0), np.zeros((0, size)), np.zeros((0, size, size)), numbers, numbers, np.zeros(0))


def new_hypothesis(observation: Observation, number: int, log_weight: float, motion: Motion) -> Hypotheses:
    """One hypothesis that starts at an observation, with unknown velocity. number: index of the observation."""
    speed, variance = motion.speed_deviation**2, observation.total_variance
    mean, covariance = np.zeros(motion.size), np.eye(motion.size)
    mean[:2] = observation.position
    covariance[:4, :4] = np.diag([variance, variance, speed, speed])
    if motion.size == 8:
        covariance[[0, 1, 4, 5], [4, 5, 0, 1]] = -observation.slow
    return Hypotheses(
        np.array([log_weight]),
        mean[None],
        covariance[None],
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


def _observe_position(observation: Observation, size: int) -> Floats:
    """(2, size) matrix from a state to what is observed."""
    matrix = np.zeros((2, size))
    matrix[:, :2] = np.eye(2)
    if size == 8:
        matrix[:, 4:6] = observation.slow * np.eye(2)
    return matrix


def _innovation(hypotheses: Hypotheses, observation: Observation) -> tuple[Floats, Floats]:
    """(n, 2) differences between an observation and its predictions, and their (n, 2, 2) covariances."""
    size = hypotheses.mean.shape[1]
    see = _observe_position(observation, size)
    variance = observation.variance if size == 8 else observation.total_variance
    covariance = see @ hypotheses.covariance @ see.T + variance * np.eye(2)
    return observation.position - hypotheses.mean @ see.T, covariance


def chi_square(hypotheses: Hypotheses, observation: Observation) -> Floats:
    """(n,) squared Mahalanobis distances of an observation from its predictions; 2 on average for right ones."""
    return squared_distance(*_innovation(hypotheses, observation))


def log_density(hypotheses: Hypotheses, observation: Observation) -> Floats:
    """(n,) logarithm of the density, per square metre, at which each hypothesis expects the observation."""
    difference, covariance = _innovation(hypotheses, observation)
    distance = squared_distance(difference, covariance)
    result: Floats = -0.5 * distance - 0.5 * np.linalg.slogdet(covariance)[1] - np.log(2 * np.pi)
    return result


def squared_distance(difference: Floats, covariance: Floats) -> Floats:
    """(n,) squared Mahalanobis distances of differences (n, d) under covariances (n, d, d)."""
    distance: Floats = np.einsum("ni,ni->n", difference, np.linalg.solve(covariance, difference[:, :, None])[:, :, 0])
    return distance


def update(hypotheses: Hypotheses, observation: Observation, number: int, motion: Motion) -> Hypotheses:
    """Hypotheses after a Kalman update with an observation; weights unchanged. number: index of the observation."""
    difference, spread = _innovation(hypotheses, observation)
    see = _observe_position(observation, motion.size)
    variance = observation.variance if motion.size == 8 else observation.total_variance
    mean, covariance = _correct(hypotheses, see, difference, spread, variance)
    count = len(hypotheses)
    return replace(
        hypotheses,
        mean=motion.limit_speed(mean),
        covariance=covariance,
        observation=np.full(count, number),
        misses=np.zeros(count),
    )


def _correct(
    hypotheses: Hypotheses, see: Floats, difference: Floats, spread: Floats, variance: float
) -> tuple[Floats, Floats]:
    """Means and covariances after a Kalman update. see: (2, size). difference: (n, 2). spread: (n, 2, 2)."""
    size = hypotheses.mean.shape[1]
    gain = np.linalg.solve(spread, see @ hypotheses.covariance).transpose(0, 2, 1)
    mean = hypotheses.mean + np.einsum("nij,nj->ni", gain, difference)
    # Joseph's form stays positive definite under rounding.
    keep = np.eye(size) - gain @ see
    noise = variance * gain @ gain.transpose(0, 2, 1)
    return mean, keep @ hypotheses.covariance @ keep.transpose(0, 2, 1) + noise


def update_velocity(
    hypotheses: Hypotheses, measured: MeasuredVelocity, motion: Motion, gate: float, doubt: float
) -> Hypotheses:
    """Hypotheses after a Kalman update with a measured velocity.

    gate: squared Mahalanobis distance above which a hypothesis ignores the velocity; it then grows uncertain of its own
    by the variance `doubt` (m^2/s^2), so that it follows a velocity that persists.
    """
    if len(hypotheses) == 0:
        return hypotheses
    see = np.zeros((2, motion.size))
    see[:, 2:4] = np.eye(2)
    variance = measured.deviation**2
    if motion.size == 8:
        see[:, 6:8] = measured.drift * np.eye(2)
    else:
        variance += measured.drift**2
    difference = measured.velocity - hypotheses.mean @ see.T
    spread = see @ hypotheses.covariance @ see.T + variance * np.eye(2)
    accepted = squared_distance(difference, spread) <= gate
    mean, covariance = _correct(hypotheses, see, difference, spread, variance)
    unsure = hypotheses.covariance.copy()
    unsure[:, [2, 3], [2, 3]] += doubt
    return replace(
        hypotheses,
        mean=motion.limit_speed(np.where(accepted[:, None], mean, hypotheses.mean)),
        covariance=np.where(accepted[:, None, None], covariance, unsure),
    )


def moments(hypotheses: Hypotheses) -> tuple[float, Floats, Floats]:
    """Logarithm of the total weight, (size,) mean and (size, size) covariance of all hypotheses together."""
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


def protection_radius(
    hypotheses: Hypotheses, centre: Floats, log_unknown: float, risk: float, extra_variance: float = 0.0
) -> float:
    """Metres around `centre` (2,) outside which the drone is with at most the probability `risk`; infinite if none.

    All hypotheses count with their weight, and the possibility of being anywhere on the map, `log_unknown`, in full.
    extra_variance: of the map's own error, along an axis.
    """
    left = risk - math.exp(min(log_unknown, 0.0))
    if left <= 0 or len(hypotheses) == 0:
        return math.inf
    weight = np.exp(hypotheses.log_weight)
    away = np.linalg.norm(hypotheses.mean[:, :2] - centre, axis=1)
    variance = TAIL**2 * (np.linalg.eigvalsh(hypotheses.covariance[:, :2, :2])[:, -1] + extra_variance)
    low, high = 0.0, float((away + 10.0 * np.sqrt(variance)).max())
    for _ in range(40):
        middle = 0.5 * (low + high)
        outside = np.exp(-0.5 * np.square(np.maximum(middle - away, 0.0)) / np.maximum(variance, 1e-9))
        low, high = (middle, high) if float(weight @ outside) > left else (low, middle)
    return high
