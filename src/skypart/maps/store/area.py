"""Which places lie in a box or a circle."""

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.evaluation.distance import haversine
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import GEOD
from skypart.maps.store.interface import Circle, Within

_SPHERE_ERROR = 0.01
"""Distances on the sphere of `haversine` and on the ellipsoid differ by less than this share (0.7 % at most)."""
_ROUNDING_M = 0.01
_METRES_A_DEGREE = 110_574.0
"""Of latitude, where a degree is shortest."""
_SMALL_CIRCLE = 5.0
"""Degrees; larger circles look at all longitudes."""
Degrees = NDArray[np.float64]


def inside(within: Within, *, latitude: Degrees, longitude: Degrees) -> NDArray[np.bool_]:
    """(n,) whether each place, (n,) degrees, lies in the box or circle; edges count as inside."""
    check_area(within)
    if isinstance(within, Bounds):
        return _in_box(within, latitude, longitude)
    return _in_circle(within, latitude, longitude)


def check_area(within: Within) -> None:
    """Refuse a box or circle that is none."""
    if isinstance(within, Circle):
        values = [within.latitude, within.longitude, within.radius_m]
        good = all(np.isfinite(values)) and abs(within.latitude) <= 90 and within.radius_m >= 0
    else:
        values = [within.south, within.north, within.west, within.east]
        good = all(np.isfinite(values)) and -90 <= within.south <= within.north <= 90
    if not good:
        raise SkyPartError(f"{within} is no area: degrees must be finite, latitudes in -90..90, south below north")


def _in_box(box: Bounds, latitude: Degrees, longitude: Degrees) -> NDArray[np.bool_]:
    rows = (latitude >= box.south) & (latitude <= box.north)
    if box.east - box.west >= 360:
        return rows
    mask: NDArray[np.bool_] = rows & (np.mod(longitude - box.west, 360) <= np.mod(box.east - box.west, 360))
    return mask


def _in_circle(circle: Circle, latitude: Degrees, longitude: Degrees) -> NDArray[np.bool_]:
    """Sure cases by the sphere, those near the edge by the ellipsoid."""
    near = _in_frame(circle, latitude, longitude)
    centre = np.broadcast_to([circle.longitude, circle.latitude], (len(near), 2))
    rough = haversine(np.column_stack([longitude[near], latitude[near]]), centre)
    mask = np.zeros(len(latitude), dtype=np.bool_)
    mask[near[rough <= circle.radius_m * (1 - _SPHERE_ERROR) - _ROUNDING_M]] = True
    edge = near[np.abs(rough - circle.radius_m) <= circle.radius_m * _SPHERE_ERROR + _ROUNDING_M]
    if len(edge):
        count = len(edge)
        _, _, metres = GEOD.inv(
            np.full(count, circle.longitude), np.full(count, circle.latitude), longitude[edge], latitude[edge]
        )
        mask[edge] = np.asarray(metres) <= circle.radius_m
    return mask


def _in_frame(circle: Circle, latitude: Degrees, longitude: Degrees) -> NDArray[np.int64]:
    """Which places lie in a frame of meridians and parallels around the circle: a cheap first choice."""
    band = circle.radius_m * (1 + _SPHERE_ERROR) / _METRES_A_DEGREE + 1e-6
    near = np.flatnonzero(np.abs(latitude - circle.latitude) <= band)
    if band < _SMALL_CIRCLE and abs(circle.latitude) + band < 89:  # else a pole is near, and all meridians with it
        reach = np.sin(np.radians(band)) / np.cos(np.radians(circle.latitude))
        width = np.degrees(np.arcsin(reach)) * (1 + _SPHERE_ERROR)
        near = near[np.mod(longitude[near] - circle.longitude + width, 360) <= 2 * width]
    return near
