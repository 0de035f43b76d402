"""Distance and offset on the WGS 84 ellipsoid. Degrees are always named, never positional."""

import numpy as np
from numpy.typing import ArrayLike

from skypart.maps.local_frame import GEOD, Degrees, FloatArray


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
