"""Heights of the ground from a raster, and the camera's position and sight over them instead of over a plane."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer
from pyproj.exceptions import ProjError

from skypart.errors import SkyPartError
from skypart.geo.crs_files import files_elsewhere
from skypart.geo.geodesy import offset
from skypart.images.raster_files import read_geotiff
from skypart.position.camera import MIN_POSITION_TILT, VERTICAL_TILT
from skypart.position.fix import Fix, Hints, Place

MAX_CELLS = 100_000_000
STEP_M = 2.0
"""Step along a line of sight, in metres."""
MAX_SIGHT_M = 5_000.0
ITERATIONS = 30
HEIGHT_ERROR_M = 3.0
"""Standard deviation of a height from flight data together with that of the ground."""
SIZE_ERROR = 0.03
"""Standard deviation of a distance that follows from the match's size and the lens, as a share of it."""
TILT_ERROR = math.radians(1.0)
"""Standard deviation of the camera's tilt."""


@dataclass(frozen=True)
class Terrain:
    """Heights in metres on a grid, (rows, columns); NaN where unknown.

    inverse: from the raster's coordinates to (column, row). to_raster: from longitude and latitude to them.
    """

    heights: NDArray[np.float32]
    inverse: tuple[float, float, float, float, float, float]
    to_raster: Transformer

    @staticmethod
    def read(path: Path) -> "Terrain":
        """Read the first band of a raster such as a GeoTIFF."""
        if not path.is_file():
            raise SkyPartError(f"{path}: no such file; give heights of the ground as a GeoTIFF")
        heights, inverse, crs = read_geotiff(
            path, lambda raster: _read_heights(raster, path), "give heights of the ground as a GeoTIFF"
        )
        if elsewhere := files_elsewhere(crs):
            raise SkyPartError(
                f"{path}: its coordinate system names the file {elsewhere[0][:60]}, which is not followed; "
                "georeference it again"
            )
        try:
            to_raster = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        except ProjError as error:
            raise SkyPartError(
                f"{path}: its coordinate system cannot be used ({error}); georeference it again"
            ) from error
        return Terrain(heights, inverse, to_raster)

    def height(self, latitude: float, longitude: float) -> float:
        """Metres above the raster's zero, between its cells; NaN outside."""
        x, y = self.to_raster.transform(longitude, latitude)
        a, b, c, d, e, f = self.inverse
        column, row = a * x + b * y + c - 0.5, d * x + e * y + f - 0.5
        rows, columns = self.heights.shape
        if not (-0.5 <= column <= columns - 0.5 and -0.5 <= row <= rows - 0.5):
            return math.nan
        column, row = min(max(column, 0.0), columns - 1.0), min(max(row, 0.0), rows - 1.0)
        left, top = min(int(column), max(columns - 2, 0)), min(int(row), max(rows - 2, 0))
        right, below = min(left + 1, columns - 1), min(top + 1, rows - 1)
        s, t = column - left, row - top
        upper = (1 - s) * self.heights[top, left] + s * self.heights[top, right]
        lower = (1 - s) * self.heights[below, left] + s * self.heights[below, right]
        return float((1 - t) * upper + t * lower)

    def drone_above(
        self,
        ground: Place,
        *,
        heading_deg: float | None,
        tilt_deg: float,
        height_m: float,
        takeoff_m: float | None = None,
    ) -> tuple[Place, float] | None:
        """Position and height above the raster's zero of a drone whose photo is centred on `ground`.

        height_m: above take-off, whose own height is takeoff_m; without it, above the ground below the drone. None if
        the angles do not tell or the ground is not on the raster.
        """
        here = self.height(*ground)
        if not math.isfinite(here) or tilt_deg < MIN_POSITION_TILT:
            return None
        if heading_deg is None and tilt_deg < VERTICAL_TILT:
            return None
        slope = math.tan(math.radians(min(tilt_deg, 89.99)))
        place, altitude = ground, math.nan
        for _ in range(ITERATIONS):
            base = takeoff_m if takeoff_m is not None else self.height(*place)
            if not math.isfinite(base):
                return None
            before, altitude = altitude, base + height_m
            back = max(altitude - here, 1.0) / slope
            spot = offset(
                latitude=ground.latitude,
                longitude=ground.longitude,
                bearing=(heading_deg or 0.0) + 180.0,
                metres=0.0 if tilt_deg >= VERTICAL_TILT and heading_deg is None else back,
            )
            place = Place(float(spot.latitude), float(spot.longitude))
            if abs(altitude - before) < 0.01:
                break
        return place, altitude

    def sight(self, drone: Place, altitude_m: float, *, heading_deg: float, tilt_deg: float) -> Place | None:
        """Where a line of sight from a drone at `altitude_m` above the raster's zero meets the ground, if it does."""
        slope = math.tan(math.radians(tilt_deg))
        reach = MAX_SIGHT_M if slope < 1e-3 else min(MAX_SIGHT_M, max(altitude_m + 500.0, 10.0) / slope + STEP_M)
        metres = np.arange(0.0, reach + STEP_M, STEP_M)
        spots = offset(latitude=drone.latitude, longitude=drone.longitude, bearing=heading_deg, metres=metres)
        above_before, before = math.inf, 0
        for number, run in enumerate(metres.tolist()):
            ground = self.height(float(spots.latitude[number]), float(spots.longitude[number]))
            above = altitude_m - slope * run - ground
            if math.isnan(above):
                return None
            if above <= 0.0:
                share = above_before / (above_before - above) if math.isfinite(above_before) else 1.0
                end = offset(
                    latitude=drone.latitude,
                    longitude=drone.longitude,
                    bearing=heading_deg,
                    metres=metres[before] + share * (run - metres[before]),
                )
                return Place(float(end.latitude), float(end.longitude))
            above_before, before = above, number
        return None


def _read_heights(
    raster: Any, path: Path
) -> tuple[NDArray[np.float32], tuple[float, float, float, float, float, float], str]:
    """The first band, the transform from coordinates to cells, and the coordinate system as WKT."""
    if raster.crs is None:
        raise SkyPartError(f"{path}: has no coordinate system; georeference it with gdal_edit -a_srs")
    size = raster.transform.determinant
    if size == 0 or not np.isfinite([*raster.transform[:6], size, 1 / size]).all():
        raise SkyPartError(f"{path}: its cells would have no area; correct its georeference with gdal_edit -a_ullr")
    if raster.width * raster.height > MAX_CELLS:
        raise SkyPartError(f"{path}: has more than {MAX_CELLS:,} cells; cut out the area of the flight")
    band = raster.read(1, masked=True).astype(np.float32)
    return np.ma.filled(band, np.nan), tuple(~raster.transform)[:6], raster.crs.to_wkt()


def add_terrain(fix: Fix, hints: Hints, terrain: Terrain, takeoff_m: float | None) -> Fix:
    """A fix whose drone position is computed over heights; unchanged if tilt or height are unknown.

    With a lens the size of the match measures the distance, too; then the position is the mean of both, weighted by
    their errors.
    """
    if fix.latitude is None or fix.longitude is None or hints.tilt_deg is None or hints.altitude_m is None:
        return fix
    heading = fix.heading_deg if fix.heading_deg is not None else hints.heading_deg
    found = terrain.drone_above(
        Place(fix.latitude, fix.longitude),
        heading_deg=None if heading is None else heading - (hints.turn_deg or 0.0),
        tilt_deg=hints.tilt_deg,
        height_m=hints.altitude_m,
        takeoff_m=takeoff_m,
    )
    if found is None:
        return fix
    place, above = found[0], found[1] - terrain.height(fix.latitude, fix.longitude)
    by_size = fix.ground_m is not None and hints.fov_deg is not None
    if by_size and fix.drone_latitude is not None and fix.drone_longitude is not None:
        share = _share_of_heights(max(above, 1.0), math.radians(min(hints.tilt_deg, 89.0)))
        place = Place(
            share * place.latitude + (1.0 - share) * fix.drone_latitude,
            fix.drone_longitude + share * _east(place.longitude - fix.drone_longitude),
        )
    return replace(fix, drone_latitude=place.latitude, drone_longitude=place.longitude)


def _share_of_heights(above: float, tilt: float) -> float:
    """Weight of the position by heights in the mean with that by the match's size, 0..1.

    above: metres of the drone above the photo's centre. tilt: radians. A wrong tilt shifts both to the same side, that
    by heights further.
    """
    by_heights, by_size = above * TILT_ERROR / math.sin(tilt) ** 2, above * TILT_ERROR
    common = by_heights * by_size
    heights = (HEIGHT_ERROR_M / math.tan(tilt)) ** 2 + by_heights**2
    size = (SIZE_ERROR * above / math.tan(tilt)) ** 2 + by_size**2
    return min(max((size - common) / (heights + size - 2.0 * common), 0.0), 1.0)


def _east(degrees: float) -> float:
    """A difference of longitudes, -180..180."""
    return (degrees + 180.0) % 360.0 - 180.0


def parse_place(text: str, option: str) -> Place:
    """LAT,LON of an option."""
    try:
        values: Sequence[float] = [float(part) for part in text.split(",")]
        latitude, longitude = values
    except ValueError as error:
        raise SkyPartError(
            f"{option} {text}: give latitude and longitude in degrees, for instance 48.1,11.5"
        ) from error
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise SkyPartError(f"{option} {text}: latitude comes first (-90..90), then longitude (-180..180)")
    return Place(latitude, longitude)
