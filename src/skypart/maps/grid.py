"""Where the pixels of a map lie on the Earth."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from pyproj import CRS, Transformer
from pyproj.enums import TransformDirection
from rasterio.transform import Affine

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import GEOD, Degrees, FloatArray, wrapped


class Point(NamedTuple):
    """Points of a plane: two arrays of one shape, in the plane's units."""

    x: FloatArray
    y: FloatArray


class Pixels(NamedTuple):
    """Points of a picture: two arrays of one shape. (0, 0) is the outer corner of the first pixel."""

    column: FloatArray
    row: FloatArray


class Plane(Protocol):
    """A map projection. Points outside its reach come out as infinite."""

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Points of the plane in WGS 84 degrees."""

    def to_plane(self, *, latitude: ArrayLike, longitude: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """WGS 84 degrees in units of the plane."""


@dataclass(frozen=True)
class CrsPlane:
    """The plane of a coordinate reference system, x to the east first whatever its official axis order."""

    crs: CRS

    @cached_property
    def _transformer(self) -> Transformer:
        return Transformer.from_crs(self.crs, "EPSG:4326", always_xy=True)

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Points of the plane in WGS 84 degrees; any shape, broadcast."""
        east, north = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        longitude, latitude = self._transformer.transform(east.ravel(), north.ravel())
        beyond = ~np.isfinite(longitude) | (np.abs(latitude) > 90)
        longitude = np.where(beyond, np.inf, wrapped(np.where(beyond, 0.0, longitude)))
        return Degrees(np.where(beyond, np.inf, latitude).reshape(east.shape), longitude.reshape(east.shape))

    def to_plane(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Point:
        """WGS 84 degrees in units of the plane; any shape, broadcast."""
        lat, lon = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
        back = TransformDirection.INVERSE
        x, y = self._transformer.transform(lon.ravel(), lat.ravel(), direction=back)
        return Point(np.asarray(x).reshape(lat.shape), np.asarray(y).reshape(lat.shape))


@lru_cache(maxsize=64)
def crs_plane(definition: str) -> CrsPlane:
    """The plane of an EPSG code (`EPSG:32643`) or WKT; the same object for the same text."""
    return CrsPlane(CRS.from_user_input(definition))


def apply_affine(affine: Affine, one: ArrayLike, other: ArrayLike) -> Point:
    """Both coordinates of points, any shape, after an affine map."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # what lies beyond a projection is infinite
        return Point(affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f)


@dataclass(frozen=True)
class Grid:
    """A picture of width x height pixels lying in a plane; affine takes (column, row) to the plane."""

    plane: Plane
    affine: Affine
    width: int
    height: int

    def to_degrees(self, column: ArrayLike, row: ArrayLike) -> Degrees:
        """Points of the picture in WGS 84 degrees; any shape, broadcast."""
        return self.plane.to_degrees(*apply_affine(self.affine, column, row))

    def to_pixels(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Pixels:
        """WGS 84 degrees as points of the picture, also outside of it; any shape, broadcast."""
        x, y = self.plane.to_plane(latitude=latitude, longitude=longitude)
        if self.period is not None:
            x = wrapped(x, self.middle[0], self.period)
        return Pixels(*apply_affine(~self.affine, x, y))

    @cached_property
    def middle(self) -> tuple[float, float]:
        """Of the picture, in units of the plane."""
        x, y = apply_affine(self.affine, self.width / 2, self.height / 2)
        return float(x), float(y)

    @cached_property
    def period(self) -> float | None:
        """Units of x after which the plane repeats, None if it does not: true where x is linear in longitude alone."""
        centre = self.plane.to_degrees(*self.middle)
        if not np.isfinite(centre.longitude):
            return None
        here = float(centre.latitude)
        latitude = np.repeat([here, here / 2 if abs(here) > 20 else 40.0], 3)
        x, _ = self.plane.to_plane(
            latitude=latitude, longitude=wrapped(centre.longitude + np.tile([-2.0, 0.0, 3.0], 2))
        )
        if not np.isfinite(x).all():
            return None
        slope = min((x[1] - x[0]) / 2, (x[2] - x[1]) / 3, key=abs)  # one of the two may jump back a whole turn
        linear = np.tile([x[1] - 2 * slope, x[1], x[1] + 3 * slope], 2)
        if slope == 0 or np.abs(wrapped(x, x[1], 360 * slope) - linear).max() > 1e-6 * abs(360 * slope):
            return None
        return float(abs(360 * slope))

    @cached_property
    def centre(self) -> Degrees:
        """Of the picture; arrays without dimension."""
        return self.to_degrees(self.width / 2, self.height / 2)

    @cached_property
    def mesh(self) -> Degrees:
        """33 x 33 points over the whole picture, edges included."""
        return self.to_degrees(np.linspace(0, self.width, 33)[None, :], np.linspace(0, self.height, 33)[:, None])

    @cached_property
    def bounds(self) -> Bounds:
        """Box in degrees around the picture."""
        latitude, longitude = self.mesh
        south, north = float(latitude.min()), float(latitude.max())
        around = wrapped(longitude, float(self.centre.longitude))
        west, east = float(around.min()), float(around.max())
        for pole in (-90.0, 90.0):
            column, row = self.to_pixels(latitude=pole, longitude=0.0)
            if 0 <= column <= self.width and 0 <= row <= self.height:
                south, north, west, east = min(south, pole), max(north, pole), -180.0, 180.0
        if east - west >= 360:
            return Bounds(south=south, north=north, west=-180.0, east=180.0)
        return Bounds(south=south, north=north, west=float(wrapped(west)), east=float(wrapped(east)))

    def pixel_metres(self, column: ArrayLike, row: ArrayLike) -> Point:
        """Width and height on the ground, in metres, of pixels around points of the picture."""
        col, line = np.broadcast_arrays(np.asarray(column, dtype=np.float64), np.asarray(row, dtype=np.float64))
        col, line = col.ravel(), line.ravel()
        left, right = self.to_degrees(col - 0.5, line), self.to_degrees(col + 0.5, line)
        above, below = self.to_degrees(col, line - 0.5), self.to_degrees(col, line + 0.5)
        across = GEOD.inv(left.longitude, left.latitude, right.longitude, right.latitude)[2]
        down = GEOD.inv(above.longitude, above.latitude, below.longitude, below.latitude)[2]
        return Point(np.asarray(across), np.asarray(down))

    @cached_property
    def gsd_m(self) -> float:
        """Edge of a pixel on the ground at the centre, metres."""
        across, down = self.pixel_metres(self.width / 2, self.height / 2)
        return float(np.sqrt(across[0] * down[0]))
