"""Which points lie in a box or a circle."""

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import GEOD, FloatArray, haversine_m
from skypart.maps.store.interface import Circle, Within

_SPHERE_ERROR = 0.01
"""Bound on the relative difference between distances on the sphere and on the ellipsoid (0.7 % at most)."""
_ROUNDING_M = 0.01
_METRES_PER_DEGREE = 110_574.0
"""Length of a degree of latitude where it is shortest."""
_SMALL_CIRCLE = 5.0
"""Degrees; larger circles are not narrowed down by longitude."""


def is_inside(within: Within, *, latitude: FloatArray, longitude: FloatArray) -> NDArray[np.bool_]:
    """(n,) whether each point, given as (n,) degrees, lies in the box or circle; its edge counts as inside."""
    check_area(within)
    if isinstance(within, Bounds):
        return _in_box(within, latitude, longitude)
    return _in_circle(within, latitude, longitude)


def check_area(within: Within) -> None:
    """Raise if a box or circle is not valid."""
    if isinstance(within, Circle):
        values = [within.latitude, within.longitude, within.radius_m]
        good = all(np.isfinite(values)) and abs(within.latitude) <= 90 and within.radius_m >= 0
    else:
        values = [within.south, within.north, within.west, within.east]
        good = all(np.isfinite(values)) and -90 <= within.south <= within.north <= 90
    if not good:
        raise SkyPartError(
            f"{within} is not a valid area; degrees must be finite, latitudes in -90..90, south below north and the "
            "radius 0 or more"
        )


def _in_box(box: Bounds, latitude: FloatArray, longitude: FloatArray) -> NDArray[np.bool_]:
    rows = (latitude >= box.south) & (latitude <= box.north)
    if box.east - box.west >= 360:
        return rows
    mask: NDArray[np.bool_] = rows & (np.mod(longitude - box.west, 360) <= np.mod(box.east - box.west, 360))
    return mask


def _in_circle(circle: Circle, latitude: FloatArray, longitude: FloatArray) -> NDArray[np.bool_]:
    """Clear cases are decided on the sphere, which is fast; those near the edge on the ellipsoid."""
    near = _in_frame(circle, latitude, longitude)
    centre = np.broadcast_to([circle.longitude, circle.latitude], (len(near), 2))
    rough = haversine_m(np.column_stack([longitude[near], latitude[near]]), centre)
    mask = np.zeros(len(latitude), dtype=np.bool_)
    mask[near[rough <= circle.radius_m * (1 - _SPHERE_ERROR) - _ROUNDING_M]] = True
    edge = near[np.abs(rough - circle.radius_m) <= circle.radius_m * _SPHERE_ERROR + _ROUNDING_M]
    if len(edge):
        mask[edge] = _ellipsoid_metres(circle, latitude[edge], longitude[edge]) <= circle.radius_m
    return mask


def _ellipsoid_metres(circle: Circle, latitude: FloatArray, longitude: FloatArray) -> FloatArray:
    """(n,) distances from the centre of the circle."""
    count = len(latitude)
    _, _, metres = GEOD.inv(np.full(count, circle.longitude), np.full(count, circle.latitude), longitude, latitude)
    return np.asarray(metres)


def area_box(within: Within) -> Bounds:
    """A box of meridians and parallels that contains the area, and a little more."""
    if isinstance(within, Bounds):
        return within
    band, width = _frame(within)
    south, north = max(-90.0, within.latitude - band), min(90.0, within.latitude + band)
    return Bounds(south=south, west=within.longitude - width, north=north, east=within.longitude + width)


def _frame(circle: Circle) -> tuple[float, float]:
    """Half the height and width, in degrees, of a box around a circle; the width is 180 for large circles."""
    band = circle.radius_m * (1 + _SPHERE_ERROR) / _METRES_PER_DEGREE + 1e-6
    if band < _SMALL_CIRCLE and abs(circle.latitude) + band < 89:  # near a pole the circle spans all meridians
        reach = np.sin(np.radians(band)) / np.cos(np.radians(circle.latitude))
        return band, float(np.degrees(np.arcsin(reach)) * (1 + _SPHERE_ERROR))
    return band, 180.0


def _in_frame(circle: Circle, latitude: FloatArray, longitude: FloatArray) -> NDArray[np.int64]:
    """Indices of the points inside a box of meridians and parallels around the circle: a cheap preselection."""
    band, width = _frame(circle)
    near = np.flatnonzero(np.abs(latitude - circle.latitude) <= band)
    if width < 180:
        near = near[np.mod(longitude[near] - circle.longitude + width, 360) <= 2 * width]
    return near
