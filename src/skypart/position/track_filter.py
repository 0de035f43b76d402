"""A Bayes filter over positions: it follows fixes that agree with how a drone can move, and doubts those that do not.

The belief is a sum of normal distributions, each a possible track, beside the possibility that the drone is anywhere
on the map. A photo's places are either where the drone is, or mistaken; every track is kept both ways until the
others outweigh it. Nothing is drawn at random: the same fixes give the same track.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.beliefs import (
    NONE,
    Beliefs,
    Ints,
    born,
    density,
    joined,
    merged,
    mixture,
    no_beliefs,
    predicted,
    updated,
)
from skypart.position.fix import Fix
from skypart.position.motion import Floats, radius_95
from skypart.position.sightings import Sighting, sightings_of
from skypart.position.track_options import TrackOptions
from skypart.position.track_point import TrackPoint

_CAP = math.log(20.0)
"""The most that a fully trusted photo can say for a track, as a logarithm of odds."""
_MOST, _FAINTEST = 48, 25.0


@dataclass(frozen=True)
class Step:
    """What the smoother needs of one step: time, sightings, each belief's parent and sighting, and the best belief."""

    time_s: float
    sightings: tuple[Sighting, ...]
    parent: Ints
    sighting: Ints
    best: int
    confidence: float


class TrackFilter:
    """Takes the fixes of a flight one by one, in the order of their times, in the metric `frame` of the map."""

    def __init__(self, options: TrackOptions, frame: LocalFrame) -> None:
        self.options, self.frame, self.motion = options, frame, options.motion
        self.steps: list[Step] = []
        self._beliefs = no_beliefs()
        self._unknown = 0.0  # logarithm of the weight of "anywhere"
        self._time: float | None = None
        self._heard: float | None = None

    def step(self, time_s: float, fix: Fix | None) -> TrackPoint:
        """The position at `time_s`, given the photo's fix (or none)."""
        before, after = self._beliefs, self._predict(time_s)
        fresh = self._fresh(time_s)
        sightings = sightings_of(fix, self.frame, fresh)
        if sightings:
            after = replace(after, misses=after.misses + fresh)
            seconds = time_s - self._time if self._time is not None else 0.0
            leak = math.log(fresh) - _CAP * max(self.options.recover_after - 1, 0.5)
            total = float(np.logaddexp.reduce([self._unknown, *after.weight]))
            self._unknown = float(np.logaddexp(self._unknown, total + leak))
            after = self._weigh(before, after, sightings, seconds)
            self._heard = time_s
        self._time = time_s
        self._beliefs = self._kept(merged(after, _MOST, _FAINTEST))
        point, best = self._point(time_s, fix)
        self.steps.append(Step(time_s, sightings, self._beliefs.parent, self._beliefs.sighting, best, point.confidence))
        return point

    def _predict(self, time_s: float) -> Beliefs:
        if not math.isfinite(time_s) or (self._time is not None and time_s < self._time):
            raise SkyPartError(
                f"photos must come in the order of their times, but {time_s} s follows {self._time} s; sort them"
            )
        return predicted(self._beliefs, self.motion, time_s - self._time if self._time is not None else 0.0)

    def _fresh(self, time_s: float) -> float:
        """How much of a photo is news, 0.05..1, by the time since the one before that had something to say."""
        if self._heard is None or self.options.error_memory_s == 0:
            return 1.0
        return min(1.0, max(0.05, (time_s - self._heard) / self.options.error_memory_s))

    def _weigh(self, before: Beliefs, after: Beliefs, sightings: tuple[Sighting, ...], seconds: float) -> Beliefs:
        """Every track without and with each sighting, and tracks that begin at one."""
        groups = [after]
        for number, sighting in enumerate(sightings):
            odds = math.log(self.options.area_km2 * 1e6) + density(after, sighting)
            able = (odds > 0.0) & self._reachable(before, sighting, seconds)
            supported = updated(after.take(able), sighting, number, self.motion)
            gain = sighting.trust * np.minimum(odds[able], _CAP)
            groups.append(replace(supported, weight=supported.weight + gain))
            groups.append(born(sighting, number, self._unknown + (sighting.trust - 1.0) * _CAP, self.motion))
        return joined(groups)

    def _reachable(self, before: Beliefs, sighting: Sighting, seconds: float) -> NDArray[np.bool_]:
        """(n,) whether a drone could have flown from each belief to the sighting in this time."""
        away = np.linalg.norm(before.mean[:, :2] - sighting.place, axis=1)
        spread = np.trace(before.covariance[:, :2, :2], axis1=1, axis2=2) / 2.0
        blur = np.sqrt(spread) + math.sqrt(sighting.variance)
        return np.asarray(away <= self.options.max_speed * seconds + 3.0 * blur)

    def _kept(self, beliefs: Beliefs) -> Beliefs:
        """Beliefs without those that are refuted or have grown too wide; their weight goes to "anywhere"."""
        wide = np.array([radius_95(each[:2, :2]) for each in beliefs.covariance]) > self.options.lost_radius_m
        gone = (wide & (beliefs.sighting == NONE)) | (beliefs.misses >= self.options.lost_after)
        unknown = float(np.logaddexp.reduce([self._unknown, *beliefs.weight[gone]]))
        left = beliefs.take(~gone)
        total = float(np.logaddexp.reduce([unknown, *left.weight]))
        self._unknown = unknown - total
        return replace(left, weight=left.weight - total)

    def _point(self, time_s: float, fix: Fix | None) -> tuple[TrackPoint, int]:
        """The answer now, and the index of the best belief."""
        if len(self._beliefs) == 0:
            return TrackPoint(time_s=time_s, raw=fix), NONE
        best = int(np.argmax(self._beliefs.weight))
        weight, mean, covariance = _cluster(self._beliefs, best)
        confidence, radius = min(1.0, math.exp(weight)), radius_95(covariance[:2, :2])
        if confidence < 0.5 or radius > self.options.lost_radius_m:
            return TrackPoint(time_s=time_s, raw=fix), NONE
        place = self.frame.to_degrees(mean[0], mean[1])
        point = TrackPoint(
            time_s=time_s,
            latitude=float(place.latitude),
            longitude=float(place.longitude),
            radius_m=radius,
            confidence=confidence,
            state="tracking" if self._beliefs.sighting[best] != NONE else "coasting",
            raw=fix,
        )
        return point, best


def _cluster(beliefs: Beliefs, best: int) -> tuple[float, Floats, Floats]:
    """Weight, mean and covariance of all tracks that say the same place as the best."""
    off = beliefs.mean[:, :2] - beliefs.mean[best, :2]
    spread = beliefs.covariance[:, :2, :2] + beliefs.covariance[best, :2, :2]
    far = np.einsum("ni,ni->n", off, np.linalg.solve(spread, off[:, :, None])[:, :, 0])
    return mixture(beliefs.take(far < 9.0))
