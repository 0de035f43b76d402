"""The square of ground that a view shows, and boxes in degrees."""

from collections.abc import Sequence
from dataclasses import dataclass

from skypart.geo.geodesy import LocalFrame, wrap_longitude


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """A square of ground around a centre.

    latitude, longitude: of the centre, WGS 84 degrees. metres: edge on the ground. rotation: compass degrees of the
    direction that is up in the view; 0 is north.
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

    @property
    def frame(self) -> LocalFrame:
        """A metric frame centred on the box."""
        east = self.east if self.east >= self.west else self.east + 360
        return LocalFrame(
            latitude=(self.south + self.north) / 2, longitude=float(wrap_longitude((self.west + east) / 2))
        )


def join_bounds(boxes: Sequence[Bounds]) -> Bounds:
    """The smallest box that contains all `boxes`; it crosses the antimeridian where that is shorter."""
    south, north = min(box.south for box in boxes), max(box.north for box in boxes)

    def width(west: float) -> float:
        """Degrees from `west` eastwards to the far edge of the last box."""
        return max((box.west - west) % 360 + box.degrees_wide for box in boxes)

    west = min((box.west for box in boxes), key=width)
    if width(west) >= 360:
        return Bounds(south=south, west=-180.0, north=north, east=180.0)
    return Bounds(south=south, west=west, north=north, east=_wrap(west + width(west)))


def _wrap(longitude: float) -> float:
    """A longitude in -180..180."""
    return longitude if -180 <= longitude <= 180 else (longitude + 180) % 360 - 180
