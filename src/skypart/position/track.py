"""A track, the filtered path of a flight: its points, and the assumptions of the filter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from skypart.errors import SkyPartError
from skypart.position.fix import Fix

TrackState: TypeAlias = Literal["tracking", "coasting", "lost"]
Source: TypeAlias = Literal["matched", "window", "dead reckoning", "carried on", ""]
"""Where a position comes from: the photo's own match, several photos aligned together, a measured velocity, the motion
model alone, or nowhere."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TrackPoint:
    """The filtered position at one photo.

    time_s: seconds from the start of the flight. latitude, longitude: of the ground at the photo's centre, WGS 84
    degrees; None while lost. radius_m: the true position lies within it with 95 % probability, if the track is right.
    confidence: probability, 0..1, that the track is right. state: `tracking` if the photo's own fix was used,
    `coasting` if the position is predicted from earlier ones, `lost` if it is unknown. raw: the photo's own fix, before
    the filter.

    source: see Source. anchor_age_s: seconds since the last fix that was used. covariance: (east-east, east-north,
    north-north) of the position, m^2, with the map's own error. protection_m: horizontal protection level: the drone is
    outside with at most the probability `TrackOptions.integrity_risk`; None if that cannot be promised. velocity_east,
    velocity_north: m/s. heading_deg: compass direction of the camera. of: whose position it is.
    """

    time_s: float
    latitude: float | None = None
    longitude: float | None = None
    radius_m: float | None = None
    confidence: float = 0.0
    state: TrackState = "lost"
    raw: Fix | None = None
    source: Source = ""
    anchor_age_s: float | None = None
    covariance: tuple[float, float, float] | None = None
    protection_m: float | None = None
    velocity_east: float | None = None
    velocity_north: float | None = None
    heading_deg: float | None = None
    of: Literal["ground", "drone"] = "ground"

    def __repr__(self) -> str:
        """One line: time, state, position and radius."""
        if self.latitude is None or self.longitude is None or self.radius_m is None:
            return f"<{self.time_s:g} s: {self.state}>"
        place = f"{self.latitude:.6f}, {self.longitude:.6f}"
        return f"<{self.time_s:g} s: {self.state}, {place}, 95 % within {self.radius_m:.0f} m>"


@dataclass(frozen=True, kw_only=True)
class TrackOptions:
    """Assumptions of the filter.

    max_speed: m/s. max_acceleration: m/s^2; choose a small one for a slow drone, because the direction of flight is
    forgotten within 2 (max_speed / max_acceleration)^2 seconds without a fix. area_km2: of the map, over which wrong
    fixes are spread. recover_after: consecutive fixes that must agree on another place before the track jumps there.
    lost_after: consecutive fixes that contradict a track before it is dropped. lost_radius_m: 95 % radius above which a
    position is not reported. error_memory_s: photos closer in time than this show the same ground, have similar errors
    and count less. smooth: let later photos correct earlier positions.

    slow_share: share of a fix's variance that it has in common with those before, which fades within slow_s seconds.
    drift_s: the same for the error of measured velocities. min_confidence: below it no position is reported. outside_s:
    seconds without a fix after which a track that is probably outside the map is lost. integrity_risk: of the
    protection level. follow: whether the track is that of the ground at the photo's centre, or of the drone. window_s:
    photos without a fix that are at most this many seconds old are aligned with the map together, where their motion
    was measured; 0: they are left out.
    """

    max_speed: float = 25.0
    max_acceleration: float = 4.0
    area_km2: float = 4.0
    recover_after: int = 5
    lost_after: int = 10
    lost_radius_m: float = 300.0
    error_memory_s: float = 1.0
    smooth: bool = True
    slow_share: float = 0.5
    slow_s: float = 15.0
    drift_s: float = 60.0
    min_confidence: float = 0.5
    outside_s: float = 3.0
    integrity_risk: float = 1e-3
    follow: Literal["ground", "drone"] = "ground"
    window_s: float = 45.0

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        positive = (
            "max_speed",
            "max_acceleration",
            "area_km2",
            "recover_after",
            "lost_after",
            "lost_radius_m",
            "slow_s",
        )
        for name in (*positive, "drift_s", "outside_s", "integrity_risk"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0):
                raise SkyPartError(f"track option {name} must be a positive number, not {getattr(self, name)}")
        if not (math.isfinite(self.error_memory_s) and self.error_memory_s >= 0):
            raise SkyPartError(f"track option error_memory_s must be 0 or more seconds, not {self.error_memory_s}")
        if not (math.isfinite(self.window_s) and self.window_s >= 0):
            raise SkyPartError(f"track option window_s must be 0 or more seconds, not {self.window_s}")
        if not 0 <= self.slow_share < 1:
            raise SkyPartError(f"track option slow_share must be 0 or more and below 1, not {self.slow_share}")


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
