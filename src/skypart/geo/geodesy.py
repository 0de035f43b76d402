"""Distances, offsets and flat metric frames on the WGS 84 ellipsoid. Degrees are keyword arguments."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyproj import Geod

from skypart.errors import SkyPartError

FloatArray: TypeAlias = NDArray[np.float64]
GEOD = Geod(ellps="WGS84")
EARTH_RADIUS_M = 6_378_137.0
"""Radius of the sphere of `haversine_m`: the equatorial radius of WGS 84."""


class Degrees(NamedTuple):
    """Points in WGS 84 degrees: two arrays of the same shape, longitudes in -180..180."""

    latitude: FloatArray
    longitude: FloatArray


class Metres(NamedTuple):
    """Points in metres: two arrays of the same shape, x to the east, y to the north."""

    x: FloatArray
    y: FloatArray


@dataclass(frozen=True, kw_only=True)
class LocalFrame:
    """Azimuthal equidistant frame: distances and directions from its centre are those on the WGS 84 ellipsoid.

    latitude, longitude: of the centre, degrees. North is up at the centre. Lengths perpendicular to the
    direction of the centre are too long by 4 parts per million at 30 km.
    """

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        """Raise if the centre is not a point on the Earth."""
        if not (np.isfinite(self.longitude) and abs(self.latitude) <= 90):
            raise SkyPartError(
                f"latitude {self.latitude}, longitude {self.longitude} is not a point on the Earth; give degrees"
            )

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Positions of points x metres east and y metres north of the centre; any shape, broadcast."""
        east, north = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        bearing = np.degrees(np.arctan2(east, north)).ravel()
        centre = np.full(bearing.shape, self.longitude), np.full(bearing.shape, self.latitude)
        longitude, latitude, _ = GEOD.fwd(*centre, bearing, np.hypot(east, north).ravel())
        return Degrees(latitude.reshape(east.shape), longitude.reshape(east.shape))

    def to_metres(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Metres:
        """Metres east and north of the centre for points in degrees; any shape, broadcast."""
        lat, lon = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
        centre = np.full(lat.size, self.longitude), np.full(lat.size, self.latitude)
        bearing, _, distance = GEOD.inv(*centre, lon.ravel(), lat.ravel())
        turn = np.radians(bearing)
        x, y = distance * np.sin(turn), distance * np.cos(turn)
        return Metres(x.reshape(lat.shape), y.reshape(lat.shape))

    to_plane = to_metres


def wrap_longitude(longitude: ArrayLike, around: float = 0.0, period: float = 360.0) -> FloatArray:
    """Longitudes of any shape, shifted by whole periods to within half a period of `around`."""
    offset = np.asarray(longitude, dtype=np.float64) - around
    result: FloatArray = around + offset - period * np.round(offset / period)
    return result


def distance_m(
    *, latitude: ArrayLike, longitude: ArrayLike, to_latitude: ArrayLike, to_longitude: ArrayLike
) -> FloatArray:
    """Distance in metres along the ellipsoid between points in degrees; any shapes, broadcast."""
    points = (longitude, latitude, to_longitude, to_latitude)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in points))
    one, other, to_one, to_other = (each.ravel() for each in arrays)
    metres: FloatArray = GEOD.inv(one, other, to_one, to_other)[2]
    return metres.reshape(arrays[0].shape)


def haversine_m(one: FloatArray, other: FloatArray) -> FloatArray:
    """(n,) great-circle distance in metres, on a sphere, between (n, 2) degrees, longitude first."""
    a, b = np.radians(one), np.radians(other)
    half = np.sin((a - b) / 2) ** 2
    inner = half[:, 1] + np.cos(a[:, 1]) * np.cos(b[:, 1]) * half[:, 0]
    distance: FloatArray = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.clip(inner, 0.0, 1.0)))
    return distance


def offset(*, latitude: ArrayLike, longitude: ArrayLike, bearing: ArrayLike, metres: ArrayLike) -> Degrees:
    """The points reached from others after `metres` along a compass bearing; any shapes, broadcast."""
    values = (longitude, latitude, bearing, metres)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in values))
    east, north, turn, length = (each.ravel() for each in arrays)
    to_longitude, to_latitude, _ = GEOD.fwd(east, north, turn, length)
    shape = arrays[0].shape
    return Degrees(to_latitude.reshape(shape), to_longitude.reshape(shape))
