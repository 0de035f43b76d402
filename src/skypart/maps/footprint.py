"""The square of ground that a view shows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """A square of ground around a centre.

    latitude, longitude: of the centre, WGS 84 degrees. metres: edge on the ground. rotation: compass degrees of the
    direction that is up in the view's picture; 0 is north.
    """

    latitude: float
    longitude: float
    metres: float
    rotation: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """A box in WGS 84 degrees. `west` is greater than `east` where the box crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float

    @property
    def degrees_wide(self) -> float:
        """Degrees of longitude from west to east, 0..360."""
        return (self.east - self.west) % 360.0 or (360.0 if self.east > self.west else 0.0)
