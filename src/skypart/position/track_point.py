"""One moment of a flight: where the drone's picture was centred, and how that is known."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from skypart.position.fix import Fix

TrackState: TypeAlias = Literal["tracking", "coasting", "lost"]


@dataclass(frozen=True, kw_only=True)
class TrackPoint:
    """The filtered position at one photo.

    time_s: seconds from the start of the flight. latitude, longitude: WGS 84 degrees, None while lost. radius_m: the
    true position lies within it with 95 % probability if the track is right, and confidence is the probability, 0..1,
    that it is. state: `tracking` where the photo's own fix was used, `coasting` where the position is carried on from
    earlier ones, `lost` where nothing is known. raw: the photo's own fix, before the filter.
    """

    time_s: float
    latitude: float | None = None
    longitude: float | None = None
    radius_m: float | None = None
    confidence: float = 0.0
    state: TrackState = "lost"
    raw: Fix | None = None
