"""Distance, bearing and offset on the WGS 84 ellipsoid. Degrees are always named, never positional."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skypart.maps.local_frame import GEOD, Degrees, FloatArray


class Inverse(NamedTuple):
    """From one point to another: metres along the geodesic, compass degrees 0..360 at its start."""

    metres: FloatArray
    bearing: FloatArray


def between(*, latitude: ArrayLike, longitude: ArrayLike, to_latitude: ArrayLike, to_longitude: ArrayLike) -> Inverse:
    """Metres and bearing from points to points, in degrees; any shapes, broadcast."""
    points = (longitude, latitude, to_longitude, to_latitude)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in points))
    one, other, to_one, to_other = (each.ravel() for each in arrays)
    bearing, _, metres = GEOD.inv(one, other, to_one, to_other)
    shape = arrays[0].shape
    return Inverse(metres.reshape(shape), np.mod(bearing, 360.0).reshape(shape))


def distance_m(
    *, latitude: ArrayLike, longitude: ArrayLike, to_latitude: ArrayLike, to_longitude: ArrayLike
) -> FloatArray:
    """Metres along the ellipsoid between points in degrees; any shapes, broadcast."""
    return between(latitude=latitude, longitude=longitude, to_latitude=to_latitude, to_longitude=to_longitude).metres


def offset(*, latitude: ArrayLike, longitude: ArrayLike, bearing: ArrayLike, metres: ArrayLike) -> Degrees:
    """Where one arrives from points in degrees along a compass bearing after `metres`; any shapes, broadcast."""
    values = (longitude, latitude, bearing, metres)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in values))
    east, north, turn, length = (each.ravel() for each in arrays)
    to_longitude, to_latitude, _ = GEOD.fwd(east, north, turn, length)
    shape = arrays[0].shape
    return Degrees(to_latitude.reshape(shape), to_longitude.reshape(shape))
