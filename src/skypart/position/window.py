"""Align a window of photos with the map together: places that no photo tells alone follow from those around it.

Every photo without a fix still has candidate places, each with a probability. Moved on by the measured motion, those
of several photos agree at the true place and scatter elsewhere. A place is claimed only if enough new ground was seen,
most photos agree on it, no other place explains them nearly as well, and the agreement passes a chi-square test.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from skypart.geo.geodesy import LocalFrame
from skypart.position.camera import drone_position
from skypart.position.confidence import CORRECT_WITHIN_M
from skypart.position.fix import Fix, Hints
from skypart.position.hypotheses import RADIUS_95, Floats, MeasuredVelocity, Observation
from skypart.position.odometer import Odometer, Reading

MAX_PHOTOS = 24
MIN_AGREEING = 4
"""Photos that must agree on a place."""
MIN_NEW_GROUND = 2.0
"""Photos' worth of new ground that they must have seen."""
MIN_AGREEING_SHARE = 0.5
"""Share of all photos of the window, by new ground, that must agree."""
MIN_POSTERIOR = 0.99
"""Probability of the best place, against all others and against being nowhere on the map."""
CHI_SQUARE_LEVEL = 0.999
GATE = 9.21
"""Squared Mahalanobis distance within which a candidate agrees with a place: 99 % of the right ones."""
MAX_LOG_FACTOR = math.log(20.0)
"""The most that one photo of new ground adds to the log odds of a place."""
MAX_VOTES = 3.0
"""Photos with a fix that a window counts for at most."""
GUESS_M = CORRECT_WITHIN_M / RADIUS_95
"""Standard deviation of a best guess that is right: its confidence is the probability to be within CORRECT_WITHIN_M."""
PEAK_SHARE = 0.3
"""Share of the probability that the best guess leaves for the other places that the views vote for."""
NEW_GROUND_SHARE = 0.4
"""Movement after which a photo counts as new, in widths of its ground; photos of the same ground repeat its errors."""
MIN_NOVELTY = 0.05
DEFAULT_GROUND_M = 100.0
SHARED = 0.5
"""Share of the variance of candidates that all photos of a window have in common."""
SIGHT_ERROR = 0.1
"""Error of the drone's distance from the ground it sees, as a share of that distance."""


@dataclass(frozen=True)
class Candidates:
    """Where one photo may have been taken.

    places: (n, 2) metres. variance: (n,) along an axis. share: (n,) probability of each; the rest is anywhere on the
    map or outside it. ground_m: metres of ground across the photo.
    """

    places: Floats
    variance: Floats
    share: Floats
    ground_m: float = DEFAULT_GROUND_M


def candidates_of(fix: Fix | None, frame: LocalFrame, hints: Hints | None = None, *, drone: bool) -> Candidates | None:
    """The candidate places of a photo that got no fix; None if it has none, or got one.

    drone: places of the drone instead of the ground at the photo's centre; they need hints of tilt, heading and height.
    """
    if fix is None or fix.found or fix.best_guess is None:
        return None
    confidence = min(max(fix.confidence, 0.0), 0.95)
    found = [(fix.best_guess.latitude, fix.best_guess.longitude, GUESS_M, confidence)]
    left = PEAK_SHARE * (1.0 - confidence)
    found += [(peak.latitude, peak.longitude, peak.spread_m, left * min(peak.weight, 1.0)) for peak in fix.peaks]
    ground_m = fix.evidence.ground_m if fix.evidence is not None and fix.evidence.ground_m > 0 else DEFAULT_GROUND_M
    rows: list[tuple[float, float, float, float]] = []
    for latitude, longitude, deviation, share in found:
        variance = deviation**2
        if drone:
            spot = drone_position(
                latitude=latitude,
                longitude=longitude,
                heading=None if hints is None else hints.heading_deg,
                ground_m=None if hints is not None and hints.altitude_m is not None else ground_m,
                hints=hints or Hints(),
            )
            if spot is None:
                return None
            away = frame.to_metres(latitude=[latitude, spot.latitude], longitude=[longitude, spot.longitude])
            variance += SIGHT_ERROR**2 * float(np.diff(away.x)[0] ** 2 + np.diff(away.y)[0] ** 2)
            latitude, longitude = spot
        metres = frame.to_metres(latitude=latitude, longitude=longitude)
        x, y = float(metres.x), float(metres.y)
        if not all(map(math.isfinite, (x, y, variance, share))) or share <= 0.0:
            continue
        if rows and math.dist((x, y), rows[0][:2]) < 2.0 * GUESS_M:
            continue  # the peak that the best guess was refined from
        rows.append((x, y, variance, share))
    if not rows:
        return None
    table = np.array(rows)
    return Candidates(table[:, :2], np.maximum(table[:, 2], 1.0), table[:, 3], ground_m)


@dataclass(frozen=True)
class _Seen:
    """A photo of the window. reading: the odometer when it was taken. novelty: 0..1, how much of it is new ground."""

    time_s: float
    candidates: Candidates
    reading: Reading
    novelty: float


@dataclass(frozen=True)
class _Mode:
    """A place that photos agree on. log_mass: its log weight. variance: along an axis. agreeing: (k,) which photos."""

    place: Floats
    log_mass: float
    variance: float
    agreeing: NDArray[np.bool_]
    chi_square: float


class Window:
    """The photos without a fix of the last `seconds`, and the motion between them.

    area_m2: of the map.
    """

    def __init__(self, area_m2: float, seconds: float) -> None:
        self.area_m2, self.seconds = area_m2, seconds
        self._seen: deque[_Seen] = deque(maxlen=MAX_PHOTOS)
        self._odometer = Odometer()

    def __len__(self) -> int:
        """How many photos."""
        return len(self._seen)

    def clear(self) -> None:
        """Forget the photos: they were used, or the motion since is unknown."""
        self._seen.clear()

    def move(self, time_s: float, velocity: MeasuredVelocity | None) -> None:
        """Go on to `time_s` with a measured velocity. A gap without one ends the window."""
        if not self._odometer.move(time_s, velocity):
            self.clear()
        while self._seen and self._seen[0].time_s < time_s - self.seconds:
            self._seen.popleft()

    def add(self, time_s: float, candidates: Candidates) -> None:
        """Add a photo, after `move` to its time."""
        novelty = 1.0
        if self._seen:
            moved = float(np.linalg.norm(self._odometer.since(self._seen[-1].reading)[0]))
            novelty = min(1.0, max(MIN_NOVELTY, moved / (NEW_GROUND_SHARE * candidates.ground_m)))
        self._seen.append(_Seen(time_s, candidates, self._odometer.reading, novelty))

    def align(self) -> Observation | None:
        """Where the photos say that the last one was taken; None if they do not tell."""
        if len(self._seen) < MIN_AGREEING:
            return None
        modes = self._modes()
        best = modes[0]
        novelty = np.array([seen.novelty for seen in self._seen])
        agreeing = float(novelty[best.agreeing].sum())
        count = int(best.agreeing.sum())
        if count < MIN_AGREEING or agreeing < max(MIN_NEW_GROUND, MIN_AGREEING_SHARE * float(novelty.sum())):
            return None
        if best.chi_square > float(chi2.ppf(CHI_SQUARE_LEVEL, 2 * count - 2)):
            return None
        against = float(np.logaddexp.reduce([0.0, *(mode.log_mass for mode in modes[1:])]))
        log_odds = best.log_mass - against
        if log_odds < math.log(MIN_POSTERIOR / (1.0 - MIN_POSTERIOR)):
            return None
        return Observation(
            best.place,
            (1.0 - SHARED) * best.variance,
            MIN_POSTERIOR,
            math.sqrt(SHARED * best.variance),
            photos=count,
            votes=min(log_odds / MAX_LOG_FACTOR, MAX_VOTES),
        )

    def _modes(self) -> list[_Mode]:
        """Places that candidates of the photos agree on, heaviest first; each candidate is a place to start from."""
        seen = list(self._seen)
        count = len(seen)
        owner = np.repeat(np.arange(count), [len(each.candidates.share) for each in seen])
        drift = np.array([self._odometer.reading.drift - each.reading.drift for each in seen])
        walked = [self._odometer.since(each.reading) for each in seen]
        motion = np.array([variance for _, variance in walked])
        places = np.concatenate([each.candidates.places + moved for each, (moved, _) in zip(seen, walked, strict=True)])
        own = np.concatenate([each.candidates.variance for each in seen])
        share = np.concatenate([each.candidates.share for each in seen])
        variance = own + motion[owner]
        elsewhere = np.array([1.0 - float(each.candidates.share.sum()) for each in seen])
        novelty = np.array([each.novelty for each in seen])
        first = np.flatnonzero(np.diff(owner, prepend=-1))  # where the candidates of each photo begin
        centre = places
        for _ in range(4):
            distance = ((centre[:, None] - places[None]) ** 2).sum(axis=-1) / variance
            pull = np.where(distance <= GATE, novelty[owner] * share / variance * np.exp(-0.5 * distance), 0.0)
            centre = (pull[:, :, None] * places[None]).sum(axis=1) / pull.sum(axis=1)[:, None]
        distance = ((centre[:, None] - places[None]) ** 2).sum(axis=-1) / variance
        density = share * self.area_m2 * np.exp(-0.5 * distance) / (2.0 * math.pi * variance)
        factors = np.log(elsewhere + np.add.reduceat(density, first, axis=1))
        scores = (novelty * np.minimum(factors, MAX_LOG_FACTOR)).sum(axis=1)
        nearest = np.minimum.reduceat(distance, first, axis=1)
        agree = nearest <= GATE
        ends = [*first[1:].tolist(), len(owner)]
        groups = [slice(begin, end) for begin, end in zip(first.tolist(), ends, strict=True)]
        # The candidate of each photo that agrees best, for each place.
        closest = np.stack([group.start + distance[:, group].argmin(axis=1) for group in groups], axis=1)
        precision = (agree * novelty / variance[closest]).sum(axis=1)
        modes: list[_Mode] = []
        order = np.argsort(-scores, kind="stable")
        for number in order.tolist():
            fused = 1.0 / max(float(precision[number]), 1e-12)
            at = agree[number]
            common = SHARED * float(own[closest[number]][at].mean()) if at.any() else 0.0
            slid = float(drift[at].mean()) ** 2 if at.any() else 0.0
            whole = (1.0 - SHARED) * fused + common + slid
            mode = _Mode(
                centre[number],
                float(scores[number]) + math.log(2.0 * math.pi * fused / self.area_m2),
                whole,
                at,
                float(nearest[number][at].sum()),
            )
            if all(math.dist(mode.place, each.place) > 3.0 * math.sqrt(fused + each.variance) for each in modes):
                modes.append(mode)
        return sorted(modes, key=lambda mode: mode.log_mass, reverse=True)
