"""The places that a photo speaks for."""

import math
from dataclasses import dataclass

import numpy as np

from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix
from skypart.position.motion import RADIUS_95, Floats

_LEAST_M = 1.0
"""Standard deviation below which no place is believed."""
_LEAST_TRUST, _MOST_TRUST = 0.3, 0.95
"""Of a fix, whatever its confidence: it is neither nothing nor certain."""
_FAINT = 0.02
"""Trust below which a place is not worth a track of its own."""


@dataclass(frozen=True)
class Sighting:
    """A place that a photo speaks for: position (2,) in metres, variance along an axis, and trust, 0..1."""

    place: Floats
    variance: float
    trust: float


def sightings_of(fix: Fix | None, frame: LocalFrame, fresh: float) -> tuple[Sighting, ...]:
    """The fix's own place, and the other peaks with what trust it leaves; none without a fix.

    fresh: 0..1, how much of the photo is news after the one before.
    """
    if fix is None or not fix.found:
        return ()
    trust = min(max(fix.confidence, 0.0), _MOST_TRUST)
    places: list[tuple[float, float, float, float]] = []
    if fix.latitude is not None and fix.longitude is not None and fix.radius_m is not None:
        trust = max(trust, _LEAST_TRUST)
        own = math.sqrt(max(fix.radius_m**2 - fix.map_error_m**2, 0.0))  # the map's error moves all places alike
        places.append((fix.latitude, fix.longitude, own / RADIUS_95, trust))
    left = 1.0 - trust if places else trust
    places += [(peak.latitude, peak.longitude, peak.spread_m, left * min(peak.weight, 1.0)) for peak in fix.peaks]
    made: list[Sighting] = []
    for latitude, longitude, spread, share in places:
        spot = frame.to_metres(latitude=latitude, longitude=longitude)
        place = np.array([float(spot.x), float(spot.y)])
        if share < _FAINT or not (np.isfinite(place).all() and math.isfinite(spread)):
            continue
        if made and math.dist(place, made[0].place) < 2.0 * spread:
            continue  # the fix again, as it was before its refinement
        made.append(Sighting(place, max(spread, _LEAST_M) ** 2 / fresh, share * fresh))
    return tuple(made)
