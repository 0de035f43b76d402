"""Distances, offsets and flat metric frames on the WGS 84 ellipsoid. Degrees are always passed by name."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyproj import Geod

from skypart.errors import SkyPartError

FloatArray: TypeAlias = NDArray[np.float64]
GEOD = Geod(ellps="WGS84")


class Degrees(NamedTuple):
    """Points in WGS 84 degrees; two arrays of one shape, longitudes in -180..180."""

    latitude: FloatArray
    longitude: FloatArray


class Metres(NamedTuple):
    """Points in metres; two arrays of one shape: x to the east, y to the north."""

    x: FloatArray
    y: FloatArray


@dataclass(frozen=True, kw_only=True)
class LocalFrame:
    """Azimuthal equidistant frame: distance and direction from its centre are those of the WGS 84 ellipsoid.

    latitude, longitude: of the centre, degrees. North is up at the centre. Lengths across the direction to the
    centre are too long by 4 parts in a million at 30 km.
    """

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        """Refuse what is no place on Earth."""
        if not (np.isfinite(self.longitude) and abs(self.latitude) <= 90):
            raise SkyPartError(
                f"latitude {self.latitude}, longitude {self.longitude} is no place on Earth; give degrees"
            )

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Where points lie that are x metres east and y metres north of the centre; any shape, broadcast."""
        east, north = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        bearing = np.degrees(np.arctan2(east, north)).ravel()
        here = np.full(bearing.shape, self.longitude), np.full(bearing.shape, self.latitude)
        longitude, latitude, _ = GEOD.fwd(*here, bearing, np.hypot(east, north).ravel())
        return Degrees(latitude.reshape(east.shape), longitude.reshape(east.shape))

    def to_metres(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Metres:
        """Metres east and north of the centre for points in degrees; any shape, broadcast."""
        lat, lon = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
        here = np.full(lat.size, self.longitude), np.full(lat.size, self.latitude)
        bearing, _, distance = GEOD.inv(*here, lon.ravel(), lat.ravel())
        turn = np.radians(bearing)
        x, y = distance * np.sin(turn), distance * np.cos(turn)
        return Metres(x.reshape(lat.shape), y.reshape(lat.shape))

    to_plane = to_metres


def wrapped(longitude: ArrayLike, around: float = 0.0, period: float = 360.0) -> FloatArray:
    """Longitudes (any shape) moved by whole turns to within half a turn of `around`."""
    offset = np.asarray(longitude, dtype=np.float64) - around
    result: FloatArray = around + offset - period * np.round(offset / period)
    return result


def distance_m(
    *, latitude: ArrayLike, longitude: ArrayLike, to_latitude: ArrayLike, to_longitude: ArrayLike
) -> FloatArray:
    """Metres along the ellipsoid between points in degrees; any shapes, broadcast."""
    points = (longitude, latitude, to_longitude, to_latitude)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in points))
    one, other, to_one, to_other = (each.ravel() for each in arrays)
    metres: FloatArray = GEOD.inv(one, other, to_one, to_other)[2]
    return metres.reshape(arrays[0].shape)


def offset(*, latitude: ArrayLike, longitude: ArrayLike, bearing: ArrayLike, metres: ArrayLike) -> Degrees:
    """Where one arrives from points in degrees along a compass bearing after `metres`; any shapes, broadcast."""
    values = (longitude, latitude, bearing, metres)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in values))
    east, north, turn, length = (each.ravel() for each in arrays)
    to_longitude, to_latitude, _ = GEOD.fwd(east, north, turn, length)
    shape = arrays[0].shape
    return Degrees(to_latitude.reshape(shape), to_longitude.reshape(shape))
