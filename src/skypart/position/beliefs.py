"""Places where the drone may be, each a normal distribution over position and velocity with a weight."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skypart.position.motion import Floats, Motion
from skypart.position.sightings import Sighting

Ints = NDArray[np.int64]
NONE = -1
"""No parent, or no sighting."""


@dataclass(frozen=True)
class Beliefs:
    """n beliefs: weight (n,) in logarithms, mean (n, 4) of (x, y, vx, vy), covariance (n, 4, 4).

    parent (n,): index into the beliefs of the step before, NONE for one born now. sighting (n,): index of the
    sighting that supports it at this step, or NONE. misses (n,): fixes in a row that spoke against it; of fixes close
    in time, which err alike, each counts for a part.
    """

    weight: Floats
    mean: Floats
    covariance: Floats
    parent: Ints
    sighting: Ints
    misses: Floats

    def __len__(self) -> int:
        """How many."""
        return len(self.weight)

    def take(self, chosen: Ints | NDArray[np.bool_]) -> "Beliefs":
        """Those of indices or mask `chosen`."""
        return Beliefs(
            self.weight[chosen],
            self.mean[chosen],
            self.covariance[chosen],
            self.parent[chosen],
            self.sighting[chosen],
            self.misses[chosen],
        )


def no_beliefs() -> Beliefs:
    """None at all."""
    numbers = np.zeros(0, dtype=np.int64)
    return Beliefs(np.zeros(0), np.zeros((0, 4)), np.zeros((0, 4, 4)), numbers, numbers, np.zeros(0))


def joined(groups: list[Beliefs]) -> Beliefs:
    """All beliefs of `groups`."""
    return Beliefs(
        np.concatenate([group.weight for group in groups]),
        np.concatenate([group.mean for group in groups]),
        np.concatenate([group.covariance for group in groups]),
        np.concatenate([group.parent for group in groups]),
        np.concatenate([group.sighting for group in groups]),
        np.concatenate([group.misses for group in groups]),
    )


def predicted(beliefs: Beliefs, motion: Motion, seconds: float) -> Beliefs:
    """Beliefs `seconds` later; parents are the beliefs given."""
    transition, noise = motion.over(seconds)
    count = len(beliefs)
    return replace(
        beliefs,
        mean=beliefs.mean @ transition.T,
        covariance=transition @ beliefs.covariance @ transition.T + noise,
        parent=np.arange(count),
        sighting=np.full(count, NONE),
    )


def density(beliefs: Beliefs, sighting: Sighting) -> Floats:
    """(n,) logarithm of the density, per square metre, at which each belief expects this sighting."""
    spread = beliefs.covariance[:, :2, :2] + sighting.variance * np.eye(2)
    off = sighting.place - beliefs.mean[:, :2]
    far = np.einsum("ni,ni->n", off, np.linalg.solve(spread, off[:, :, None])[:, :, 0])
    result: Floats = -0.5 * far - 0.5 * np.linalg.slogdet(spread)[1] - np.log(2 * np.pi)
    return result


def updated(beliefs: Beliefs, sighting: Sighting, number: int, motion: Motion) -> Beliefs:
    """Beliefs with `sighting` taken for true (Kalman's update), weights as they were."""
    spread = beliefs.covariance[:, :2, :2] + sighting.variance * np.eye(2)
    gain = np.linalg.solve(spread, beliefs.covariance[:, :2, :]).transpose(0, 2, 1)
    mean = beliefs.mean + np.einsum("nij,nj->ni", gain, sighting.place - beliefs.mean[:, :2])
    # Joseph's form stays positive whatever is rounded.
    keep = np.eye(4) - np.concatenate([gain, np.zeros_like(gain)], axis=2)
    noise = sighting.variance * gain @ gain.transpose(0, 2, 1)
    covariance = keep @ beliefs.covariance @ keep.transpose(0, 2, 1) + noise
    count = len(beliefs)
    return replace(
        beliefs,
        mean=motion.limited(mean),
        covariance=covariance,
        sighting=np.full(count, number),
        misses=np.zeros(count),
    )


def born(sighting: Sighting, number: int, weight: float, motion: Motion) -> Beliefs:
    """One new belief at `sighting`, of unknown velocity."""
    speed = motion.speed_deviation**2
    return Beliefs(
        np.array([weight]),
        np.array([[sighting.place[0], sighting.place[1], 0.0, 0.0]]),
        np.diag([sighting.variance, sighting.variance, speed, speed])[None],
        np.array([NONE]),
        np.array([number]),
        np.zeros(1),
    )


def mixture(beliefs: Beliefs) -> tuple[float, Floats, Floats]:
    """Logarithm of the whole weight, (4,) mean and (4, 4) covariance of all beliefs together."""
    top = float(beliefs.weight.max())
    share = np.exp(beliefs.weight - top)
    total = float(share.sum())
    share = share / total
    mean = share @ beliefs.mean
    off = beliefs.mean - mean
    covariance = np.einsum("n,nij->ij", share, beliefs.covariance + off[:, :, None] * off[:, None, :])
    return top + float(np.log(total)), mean, covariance


def merged(beliefs: Beliefs, most: int, faintest: float, near: float = 1.0) -> Beliefs:
    """Beliefs, best first, with those that say the same made one; at most `most`, none fainter than `faintest`.

    faintest: logarithm of the weight below the best's. near: squared distance, in covariances, of two that say the
    same. The heaviest gives its parent, sighting and misses to the merged one.
    """
    if len(beliefs) == 0:
        return beliefs
    order = np.argsort(-beliefs.weight, kind="stable")
    order = order[beliefs.weight[order] >= beliefs.weight[order[0]] - faintest]
    left = beliefs.take(order[: 4 * most])
    made: list[Beliefs] = []
    while len(left) and len(made) < most:
        off = left.mean - left.mean[0]
        far = np.einsum(
            "ni,ni->n", off, np.linalg.solve(left.covariance + left.covariance[0], off[:, :, None])[:, :, 0]
        )
        same = far < near
        weight, mean, covariance = mixture(left.take(same))
        head = left.take(np.array([0]))
        made.append(Beliefs(np.array([weight]), mean[None], covariance[None], head.parent, head.sighting, head.misses))
        left = left.take(~same)
    return joined(made)
