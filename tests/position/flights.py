"""Synthetic flights: a true path, and the fixes that a locator might give along it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix, Peak
from skypart.position.hypotheses import RADIUS_95
from skypart.position.track import TrackPoint

Floats = NDArray[np.float64]
FRAME = LocalFrame(latitude=48.2, longitude=16.4)


def straight(seconds: Floats, speed: tuple[float, float] = (12.0, 4.0)) -> Floats:
    """(n, 2) metres of a flight at constant velocity."""
    path: Floats = seconds[:, None] * np.array(speed)
    return path


def circle(seconds: Floats, radius: float = 300.0, speed: float = 10.0) -> Floats:
    """(n, 2) metres of a flight around a point."""
    turn = seconds * speed / radius
    return radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def lanes(seconds: Floats, speed: float = 12.0, brake: float = 3.0) -> Floats:
    """(n, 2) metres of a survey in lanes of 44 s with turns of 6 s; accelerations are at most `brake` m/s^2."""
    step = 0.05
    place, velocity, path = np.zeros(2), np.zeros(2), []
    times = np.arange(0.0, float(seconds.max()) + 2 * step, step)
    for now in times:
        along = speed if int(now // 50) % 2 == 0 else -speed
        wanted = np.array([along, 0.0]) if now % 50 < 44 else np.array([0.0, 8.0])
        change = wanted - velocity
        velocity = velocity + change * min(1.0, brake * step / max(float(np.linalg.norm(change)), 1e-9))
        place = place + velocity * step
        path.append(place)
    whole = np.array(path)
    return np.stack([np.interp(seconds, times, whole[:, i]) for i in (0, 1)], axis=1)


def fix_at(place: Floats, sigma: float = 15.0, confidence: float = 0.9, frame: LocalFrame = FRAME) -> Fix:
    """A fix at `place` (2,) in metres, with the 95 % radius of a standard deviation `sigma`."""
    degrees = frame.to_degrees(place[0], place[1])
    latitude, longitude = float(degrees.latitude), float(degrees.longitude)
    peak = Peak(latitude=latitude, longitude=longitude, weight=0.6, spread_m=3 * sigma)
    return Fix(
        photo="photo",
        latitude=latitude,
        longitude=longitude,
        radius_m=RADIUS_95 * sigma,
        confidence=confidence,
        peaks=(peak,),
    )


def no_fix() -> Fix:
    """The result for a photo that resembles nothing."""
    return Fix(photo="photo", reason="nothing in this map resembles the photo")


def noisy_fixes(
    rng: np.random.Generator,
    truth: Floats,
    *,
    sigma: float = 15.0,
    wrong: float = 0.0,
    missing: float = 0.0,
    confidence: float = 0.9,
    frame: LocalFrame = FRAME,
) -> list[Fix]:
    """One fix per position; a share `missing` has none, a share `wrong` of the rest is at one of three others."""
    similar = truth.mean(axis=0) + rng.uniform(-1500, 1500, size=(3, 2))
    fixes = []
    for place in truth:
        if rng.random() < missing:
            fixes.append(no_fix())
            continue
        centre = similar[rng.integers(3)] if rng.random() < wrong else place
        fixes.append(fix_at(centre + rng.normal(size=2) * sigma, sigma, confidence, frame))
    return fixes


def errors(points: Sequence[TrackPoint | Fix], truth: Floats, frame: LocalFrame = FRAME) -> Floats:
    """(n,) metres between points or fixes and the truth, NaN without a position."""
    found = []
    for point, place in zip(points, truth, strict=True):
        if point.latitude is None or point.longitude is None:
            found.append(np.nan)
        else:
            metres = frame.to_metres(latitude=point.latitude, longitude=point.longitude)
            found.append(float(np.hypot(float(metres.x) - place[0], float(metres.y) - place[1])))
    return np.array(found)
