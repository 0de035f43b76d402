"""A track, the filtered path of a flight: its points, and the assumptions of the filter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from skypart.errors import SkyPartError
from skypart.position.fix import Fix

TrackState: TypeAlias = Literal["tracking", "coasting", "lost"]


@dataclass(frozen=True, kw_only=True)
class TrackPoint:
    """The filtered position at one photo.

    time_s: seconds from the start of the flight. latitude, longitude: of the ground at the photo's centre, WGS 84
    degrees; None while lost. radius_m: the true position lies within it with 95 % probability, if the track is right.
    confidence: probability, 0..1, that the track is right. state: `tracking` if the photo's own fix was used,
    `coasting` if the position is predicted from earlier ones, `lost` if it is unknown. raw: the photo's own fix, before
    the filter.
    """

    time_s: float
    latitude: float | None = None
    longitude: float | None = None
    radius_m: float | None = None
    confidence: float = 0.0
    state: TrackState = "lost"
    raw: Fix | None = None


@dataclass(frozen=True, kw_only=True)
class TrackOptions:
    """Assumptions of the filter.

    max_speed: m/s. max_acceleration: m/s^2; choose a small one for a slow drone, because the direction of flight is
    forgotten within 2 (max_speed / max_acceleration)^2 seconds without a fix. area_km2: of the map, over which wrong
    fixes are spread. recover_after: consecutive fixes that must agree on another place before the track jumps there.
    lost_after: consecutive fixes that contradict a track before it is dropped. lost_radius_m: 95 % radius above which a
    position is not reported. error_memory_s: photos closer in time than this show the same ground, have similar errors
    and count less. smooth: let later photos correct earlier positions.
    """

    max_speed: float = 25.0
    max_acceleration: float = 4.0
    area_km2: float = 4.0
    recover_after: int = 5
    lost_after: int = 10
    lost_radius_m: float = 300.0
    error_memory_s: float = 1.0
    smooth: bool = True

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        for name in ("max_speed", "max_acceleration", "area_km2", "recover_after", "lost_after", "lost_radius_m"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0):
                raise SkyPartError(f"track option {name} must be a positive number, not {getattr(self, name)}")
        if not (math.isfinite(self.error_memory_s) and self.error_memory_s >= 0):
            raise SkyPartError(f"track option error_memory_s must be 0 or more seconds, not {self.error_memory_s}")


def raw_track(points: Sequence[TrackPoint]) -> list[TrackPoint]:
    """The photos' own fixes in the form of a track."""
    bare = [TrackPoint(time_s=point.time_s, raw=point.raw) for point in points]
    return [
        replace(
            point,
            latitude=point.raw.latitude,
            longitude=point.raw.longitude,
            radius_m=point.raw.radius_m,
            confidence=point.raw.confidence,
            state="tracking",
        )
        if point.raw is not None and point.raw.found
        else point
        for point in bare
    ]
