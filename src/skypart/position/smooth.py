"""Let later photos correct earlier positions: the winning track is walked back and smoothed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skypart.geo.geodesy import LocalFrame
from skypart.position.beliefs import NONE, Beliefs, born, predicted, updated
from skypart.position.motion import Floats, Motion, radius_95
from skypart.position.sightings import Sighting
from skypart.position.track_filter import Step
from skypart.position.track_options import TrackOptions
from skypart.position.track_point import TrackPoint


def smoothed(
    points: Sequence[TrackPoint], steps: Sequence[Step], options: TrackOptions, frame: LocalFrame
) -> list[TrackPoint]:
    """Points of a whole flight, each corrected by the photos after it.

    points, steps: what TrackFilter gave and kept, one each a photo.
    """
    result = [TrackPoint(time_s=point.time_s, raw=point.raw) for point in points]
    for chain in _joined(_chains(steps), steps, options):
        means, covariances = _smooth(chain, options.motion)
        places = frame.to_degrees(means[:, 0], means[:, 1])
        for i, link in enumerate(chain):
            radius = radius_95(covariances[i, :2, :2])
            if radius <= options.lost_radius_m:
                result[link.index] = replace(
                    result[link.index],
                    latitude=float(places.latitude[i]),
                    longitude=float(places.longitude[i]),
                    radius_m=radius,
                    confidence=link.confidence,
                    state="coasting" if link.sighting is None else "tracking",
                )
    return result


@dataclass(frozen=True)
class _Link:
    """One photo of a chain: its index, time, the sighting that was believed, and the track's final confidence."""

    index: int
    time_s: float
    sighting: Sighting | None
    confidence: float


def _chains(steps: Sequence[Step]) -> list[list[_Link]]:
    """Tracks from birth to end, in the order of time, found by walking back from the best belief at each end.

    Where one of them was confirmed, others of fewer than three fixes are taken for what they were: mistakes.
    """
    chains: list[list[_Link]] = []
    chain: list[_Link] = []
    belief, confidence = NONE, 0.0
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if belief == NONE:
            belief, confidence = step.best, step.confidence
            if belief == NONE:
                continue
        number = int(step.sighting[belief])
        chain.append(_Link(index, step.time_s, None if number == NONE else step.sightings[number], confidence))
        belief = int(step.parent[belief])
        if belief == NONE:
            chains.append(chain[::-1])
            chain = []
    longest = max((_supports(chain) for chain in chains), default=0)
    return [chain for chain in chains[::-1] if _supports(chain) >= min(3, longest)]


def _supports(chain: Sequence[_Link]) -> int:
    return sum(link.sighting is not None for link in chain)


def _joined(chains: Sequence[list[_Link]], steps: Sequence[Step], options: TrackOptions) -> list[list[_Link]]:
    """Chains made one across a gap that a drone could have flown, so that both ends say what lay between."""
    joined: list[list[_Link]] = []
    for chain in chains:
        if joined and _flyable(joined[-1], chain, options.max_speed):
            gap = range(joined[-1][-1].index + 1, chain[0].index)
            joined[-1] += [_Link(i, steps[i].time_s, None, chain[0].confidence) for i in gap]
            joined[-1] += chain
        else:
            joined.append(list(chain))
    return joined


def _flyable(first: Sequence[_Link], second: Sequence[_Link], max_speed: float) -> bool:
    """Whether a drone could have come from the last fix of one chain to the first of the next."""
    last, begin = [link for link in first if link.sighting is not None][-1], second[0]
    assert last.sighting is not None and begin.sighting is not None  # a track is born at a sighting
    away = math.dist(last.sighting.place, begin.sighting.place)
    blur = math.sqrt(last.sighting.variance) + math.sqrt(begin.sighting.variance)
    return away <= max_speed * (begin.time_s - last.time_s) + 3.0 * blur


def _smooth(chain: Sequence[_Link], motion: Motion) -> tuple[Floats, Floats]:
    """(n, 4) means and (n, 4, 4) covariances of a chain, by Rauch, Tung and Striebel's smoother."""
    ahead: list[Beliefs] = []
    behind: list[Beliefs] = []
    for i, link in enumerate(chain):
        if i == 0:
            assert link.sighting is not None  # a track is born at a sighting
            now = born(link.sighting, 0, 0.0, motion)
            ahead.append(now)
        else:
            ahead.append(predicted(behind[-1], motion, link.time_s - chain[i - 1].time_s))
            now = ahead[-1] if link.sighting is None else updated(ahead[-1], link.sighting, 0, motion)
        behind.append(now)
    means, covariances = [behind[-1].mean[0]], [behind[-1].covariance[0]]
    for i in range(len(chain) - 2, -1, -1):
        transition, _ = motion.over(chain[i + 1].time_s - chain[i].time_s)
        before, after = behind[i], ahead[i + 1]
        gain = np.linalg.solve(after.covariance[0], transition @ before.covariance[0]).T
        means.append(before.mean[0] + gain @ (means[-1] - after.mean[0]))
        covariances.append(before.covariance[0] + gain @ (covariances[-1] - after.covariance[0]) @ gain.T)
    return np.array(means[::-1]), np.array(covariances[::-1])
