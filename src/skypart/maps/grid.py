"""Georeferencing: where the pixels of a map lie on the Earth."""

import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from pyproj import CRS, Transformer
from pyproj.enums import TransformDirection
from pyproj.exceptions import CRSError, ProjError
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.crs_files import files_elsewhere, parameters_elsewhere
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import GEOD, Degrees, FloatArray, wrap_longitude
from skypart.maps.files import read_file

AREA_MARGIN = 3.0
"""Degrees by which a map may lie outside the area of use of its coordinate system."""
MAX_DEFINITION_BYTES = 1 << 20
"""Of a .prj file."""
GSD_RANGE = (1e-3, 1e4)
"""Metres per pixel; values outside this range mean that the coordinate system is wrong."""


class Point(NamedTuple):
    """Points of a plane: two arrays of the same shape, in units of the plane."""

    x: FloatArray
    y: FloatArray


class Pixels(NamedTuple):
    """Points of an image: two arrays of the same shape. (0, 0) is the outer corner of the first pixel."""

    column: FloatArray
    row: FloatArray


class Plane(Protocol):
    """A map projection. Points outside its range become infinite."""

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Convert points of the plane to WGS 84 degrees."""

    def to_plane(self, *, latitude: ArrayLike, longitude: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Convert WGS 84 degrees to units of the plane."""


@dataclass(frozen=True)
class CrsPlane:
    """The plane of a coordinate reference system. x points east, whatever the official axis order."""

    crs: CRS

    @cached_property
    def _transformer(self) -> Transformer:
        return Transformer.from_crs(self.crs, "EPSG:4326", always_xy=True)

    def to_degrees(self, x: ArrayLike, y: ArrayLike) -> Degrees:
        """Convert points of the plane to WGS 84 degrees; any shape, broadcast."""
        east, north = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        longitude, latitude = self._transformer.transform(east.ravel(), north.ravel())
        outside = ~np.isfinite(longitude) | (np.abs(latitude) > 90)
        longitude = np.where(outside, np.inf, wrap_longitude(np.where(outside, 0.0, longitude)))
        return Degrees(np.where(outside, np.inf, latitude).reshape(east.shape), longitude.reshape(east.shape))

    def to_plane(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Point:
        """Convert WGS 84 degrees to units of the plane; any shape, broadcast."""
        lat, lon = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
        inverse = TransformDirection.INVERSE
        x, y = self._transformer.transform(lon.ravel(), lat.ravel(), direction=inverse)
        return Point(np.asarray(x).reshape(lat.shape), np.asarray(y).reshape(lat.shape))


@lru_cache(maxsize=64)
def crs_plane(definition: str) -> CrsPlane:
    """The plane of an EPSG code (`EPSG:32643`) or WKT; cached, so that equal definitions share one object."""
    return CrsPlane(CRS.from_user_input(definition))


def apply_affine(affine: Affine, one: ArrayLike, other: ArrayLike) -> Point:
    """Apply an affine transform to points of any shape."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # points outside a projection are infinite
        return Point(affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f)


@dataclass(frozen=True)
class MapGrid:
    """An image of width x height pixels in a plane; `affine` maps (column, row) to the plane."""

    plane: Plane
    affine: Affine
    width: int
    height: int

    def to_degrees(self, column: ArrayLike, row: ArrayLike) -> Degrees:
        """Convert points of the image to WGS 84 degrees; any shape, broadcast."""
        return self.plane.to_degrees(*apply_affine(self.affine, column, row))

    def to_pixels(self, *, latitude: ArrayLike, longitude: ArrayLike) -> Pixels:
        """Convert WGS 84 degrees to points of the image, inside it or not; any shape, broadcast."""
        x, y = self.plane.to_plane(latitude=latitude, longitude=longitude)
        if self.period is not None:
            x = wrap_longitude(x, self.plane_centre[0], self.period)
        return Pixels(*apply_affine(~self.affine, x, y))

    @cached_property
    def plane_centre(self) -> tuple[float, float]:
        """Centre of the image, in units of the plane."""
        x, y = apply_affine(self.affine, self.width / 2, self.height / 2)
        return float(x), float(y)

    @cached_property
    def period(self) -> float | None:
        """Units of x after which the plane repeats; None unless x is linear in longitude alone."""
        centre = self.plane.to_degrees(*self.plane_centre)
        if not np.isfinite(centre.longitude):
            return None
        here = float(centre.latitude)
        latitude = np.repeat([here, here / 2 if abs(here) > 20 else 40.0], 3)
        x, _ = self.plane.to_plane(
            latitude=latitude, longitude=wrap_longitude(centre.longitude + np.tile([-2.0, 0.0, 3.0], 2))
        )
        if not np.isfinite(x).all():
            return None
        slope = min((x[1] - x[0]) / 2, (x[2] - x[1]) / 3, key=abs)  # one of the two may wrap around
        linear = np.tile([x[1] - 2 * slope, x[1], x[1] + 3 * slope], 2)
        if slope == 0 or np.abs(wrap_longitude(x, x[1], 360 * slope) - linear).max() > 1e-6 * abs(360 * slope):
            return None
        return float(abs(360 * slope))

    @cached_property
    def centre(self) -> Degrees:
        """Centre of the image, as arrays without dimension."""
        return self.to_degrees(self.width / 2, self.height / 2)

    @cached_property
    def mesh(self) -> Degrees:
        """33 x 33 points over the whole image, including its edges."""
        return self.to_degrees(np.linspace(0, self.width, 33)[None, :], np.linspace(0, self.height, 33)[:, None])

    @cached_property
    def bounds(self) -> Bounds:
        """Bounding box of the image in degrees."""
        latitude, longitude = self.mesh
        south, north = float(latitude.min()), float(latitude.max())
        around = wrap_longitude(longitude, float(self.centre.longitude))
        west, east = float(around.min()), float(around.max())
        for pole in (-90.0, 90.0):
            column, row = self.to_pixels(latitude=pole, longitude=0.0)
            if 0 <= column <= self.width and 0 <= row <= self.height:
                south, north, west, east = min(south, pole), max(north, pole), -180.0, 180.0
        if east - west >= 360:
            return Bounds(south=south, north=north, west=-180.0, east=180.0)
        return Bounds(south=south, north=north, west=float(wrap_longitude(west)), east=float(wrap_longitude(east)))

    def pixel_metres(self, column: ArrayLike, row: ArrayLike) -> Point:
        """Width and height on the ground, in metres, of pixels centred at points of the image."""
        col, line = np.broadcast_arrays(np.asarray(column, dtype=np.float64), np.asarray(row, dtype=np.float64))
        col, line = col.ravel(), line.ravel()
        left, right = self.to_degrees(col - 0.5, line), self.to_degrees(col + 0.5, line)
        above, below = self.to_degrees(col, line - 0.5), self.to_degrees(col, line + 0.5)
        across = GEOD.inv(left.longitude, left.latitude, right.longitude, right.latitude)[2]
        down = GEOD.inv(above.longitude, above.latitude, below.longitude, below.latitude)[2]
        return Point(np.asarray(across), np.asarray(down))

    @cached_property
    def gsd_m(self) -> float:
        """Ground sampling distance: edge of a pixel at the centre, metres."""
        across, down = self.pixel_metres(self.width / 2, self.height / 2)
        return float(np.sqrt(across[0] * down[0]))


def raster_grid(raster: Any, path: str) -> MapGrid:
    """The grid of a rasterio dataset. If it has no coordinate system, the .prj file beside it is read."""
    affine = raster.transform
    if affine == Affine.identity() or affine.determinant == 0 or not np.isfinite(affine[:6]).all():
        raise SkyPartError(
            f"{path}: is not georeferenced; georeference it with gdal_translate -a_srs -a_ullr, "
            "or put a world file (.tfw, .jgw, .pgw, .wld) and a .prj beside it"
        )
    grid = MapGrid(_raster_plane(raster, path), affine, raster.width, raster.height)
    check_grid(grid, path)
    return grid


def _raster_plane(raster: Any, path: str) -> CrsPlane:
    beside = Path(path).with_suffix(".prj")
    if not beside.is_file() and beside.with_suffix(".PRJ").is_file():
        beside = beside.with_suffix(".PRJ")
    if raster.crs:
        definition, source = raster.crs.to_wkt(), path
    elif beside.is_file():
        text = read_file(beside, MAX_DEFINITION_BYTES)
        definition, source = text.decode("utf-8", errors="replace").strip(), str(beside)
    else:
        raise SkyPartError(
            f"{path}: has no coordinate system; write it into {beside.name} beside it, "
            "as WKT or as a code such as EPSG:32643"
        )
    return parse_crs(definition, source)


def parse_crs(definition: str, source: str) -> CrsPlane:
    """The plane of a coordinate system given as WKT or EPSG code in the file `source`."""
    try:
        return _usable_plane(definition)
    except (CRSError, ProjError) as error:
        reason = str(error).strip().rstrip(".").splitlines()[0][:120]
        raise SkyPartError(
            f"{source}: its coordinate system cannot be used ({reason}); set one with gdal_edit.py -a_srs EPSG:code"
        ) from error


@lru_cache(maxsize=64)
def _usable_plane(definition: str) -> CrsPlane:
    """The plane of a coordinate system; once for all images of a map. Raises CRSError or ProjError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _refuse_files(files_elsewhere(definition))
        plane = crs_plane(definition)
        _refuse_files(files_elsewhere(plane.crs.to_wkt()))  # of another notation, as JSON
        _refuse_files(parameters_elsewhere(plane.crs.to_json_dict()))
        if plane.crs.is_compound:
            plane = crs_plane(plane.crs.sub_crs_list[0].to_wkt())
        code = plane.crs.to_epsg(min_confidence=100)
        if code is not None:  # the EPSG registry has better areas of use and datum shifts than most WKT
            plane = crs_plane(f"EPSG:{code}")
        if not (plane.crs.is_geographic or plane.crs.is_projected):
            raise CRSError("it is neither geographic nor projected")
        plane.to_degrees(0.0, 0.0)
    return plane


def _refuse_files(elsewhere: list[str]) -> None:
    """Raise CRSError if a definition names files, which PROJ would open."""
    if elsewhere:
        raise CRSError(f"it names the file {elsewhere[0][:60]}, which is not followed")


def check_grid(grid: MapGrid, path: str) -> None:
    """Raise if a grid does not fit its coordinate system."""
    remedy = "its coordinate system is missing or wrong, set the right one with gdal_edit.py -a_srs EPSG:code"
    if grid.affine.determinant == 0 or not np.isfinite([*grid.affine[:6], 1 / grid.affine.determinant]).all():
        raise SkyPartError(f"{path}: its pixels would have no area; {remedy}")
    latitude, longitude = grid.mesh
    if not (np.isfinite(latitude).all() and np.isfinite(longitude).all()):
        raise SkyPartError(f"{path}: its corners are not on the Earth; {remedy}")
    column, row = grid.to_pixels(latitude=latitude, longitude=longitude)
    right, down = np.meshgrid(np.linspace(0, grid.width, 33), np.linspace(0, grid.height, 33))
    off = np.hypot(column - right, row - down)[:, 1:-1]  # of a global map, the first and last columns coincide
    if not off.max() < 0.5:
        raise SkyPartError(f"{path}: its corners are outside the range of its projection; {remedy}")
    if not GSD_RANGE[0] <= grid.gsd_m <= GSD_RANGE[1]:
        raise SkyPartError(f"{path}: its pixels would be {grid.gsd_m:.3g} m wide; {remedy}")
    crs = grid.plane.crs if isinstance(grid.plane, CrsPlane) else None
    if crs is not None and crs.area_of_use is not None and _degrees_outside(grid, crs.area_of_use.bounds) > AREA_MARGIN:
        latitude, longitude = grid.centre
        raise SkyPartError(
            f"{path}: would lie at latitude {float(latitude):.3f}, longitude {float(longitude):.3f}, "
            f"far outside the area of {crs.name}; {remedy}"
        )


def _degrees_outside(grid: MapGrid, area: tuple[float, float, float, float]) -> float:
    """Degrees by which the centre lies outside the area (west, south, east, north)."""
    west, south, east, north = area
    width = (east - west) % 360.0 or 360.0
    middle = west + width / 2
    beside = abs(float(wrap_longitude(grid.centre.longitude, middle)) - middle) - width / 2
    return max(beside, south - float(grid.centre.latitude), float(grid.centre.latitude) - north)
