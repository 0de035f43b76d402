"""Where a raster lies: its geotransform and coordinate system, or one sentence why that is not known."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from pyproj.exceptions import CRSError, ProjError
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.geodesy import wrapped
from skypart.maps.grid import CrsPlane, Grid, crs_plane

AREA_MARGIN = 3.0
"""Degrees by which a map may lie outside the area its coordinate system is made for."""
GSD_RANGE = (1e-3, 1e4)
"""Metres; pixels outside of it betray a wrong coordinate system."""


def raster_grid(raster: Any, path: str) -> Grid:
    """The grid of a rasterio dataset; a coordinate system that it lacks is taken from the .prj file beside it."""
    affine = raster.transform
    if affine == Affine.identity() or affine.determinant == 0 or not np.isfinite(affine[:6]).all():
        raise SkyPartError(
            f"{path}: has no georeference; give it one with gdal_translate -a_srs -a_ullr, "
            "or put a world file (.tfw, .jgw, .pgw, .wld) and a .prj beside it"
        )
    grid = Grid(_plane(raster, path), affine, raster.width, raster.height)
    check_grid(grid, path)
    return grid


def _plane(raster: Any, path: str) -> CrsPlane:
    beside = Path(path).with_suffix(".prj")
    if not beside.is_file() and beside.with_suffix(".PRJ").is_file():
        beside = beside.with_suffix(".PRJ")
    if raster.crs:
        definition, source = raster.crs.to_wkt(), path
    elif beside.is_file():
        definition, source = beside.read_text(encoding="utf-8", errors="replace").strip(), str(beside)
    else:
        raise SkyPartError(
            f"{path}: its coordinate system is not known; write it into {beside.name} beside it, "
            "as WKT or as a code such as EPSG:32643"
        )
    return plane_of(definition, source)


def plane_of(definition: str, source: str) -> CrsPlane:
    """The plane of a coordinate system given as WKT or code in the file `source`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plane = crs_plane(definition)
            if plane.crs.is_compound:
                plane = crs_plane(plane.crs.sub_crs_list[0].to_wkt())
            code = plane.crs.to_epsg(min_confidence=100)
            if code is not None:  # the register knows the area and the datum shifts better than most WKT
                plane = crs_plane(f"EPSG:{code}")
            if not (plane.crs.is_geographic or plane.crs.is_projected):
                raise CRSError("it is neither geographic nor projected")
            plane.to_degrees(0.0, 0.0)
    except (CRSError, ProjError) as error:
        reason = str(error).strip().rstrip(".").splitlines()[0][:120]
        raise SkyPartError(
            f"{source}: its coordinate system cannot be used ({reason}); set one with gdal_edit.py -a_srs EPSG:code"
        ) from error
    return plane


def check_grid(grid: Grid, path: str) -> None:
    """Refuse a grid whose numbers do not fit its coordinate system."""
    cure = "its coordinate system is missing or wrong, set the right one with gdal_edit.py -a_srs EPSG:code"
    latitude, longitude = grid.mesh
    if not (np.isfinite(latitude).all() and np.isfinite(longitude).all()):
        raise SkyPartError(f"{path}: its corners do not lie on Earth; {cure}")
    column, row = grid.to_pixels(latitude=latitude, longitude=longitude)
    right, down = np.meshgrid(np.linspace(0, grid.width, 33), np.linspace(0, grid.height, 33))
    off = np.hypot(column - right, row - down)[:, 1:-1]  # the first and last column are one where a map spans the globe
    if not off.max() < 0.5:
        raise SkyPartError(f"{path}: its corners lie beyond the reach of its projection; {cure}")
    if not GSD_RANGE[0] <= grid.gsd_m <= GSD_RANGE[1]:
        raise SkyPartError(f"{path}: its pixels would be {grid.gsd_m:.3g} m wide; {cure}")
    crs = grid.plane.crs if isinstance(grid.plane, CrsPlane) else None
    if crs is not None and crs.area_of_use is not None and _beyond(grid, crs.area_of_use.bounds) > AREA_MARGIN:
        latitude, longitude = grid.centre
        raise SkyPartError(
            f"{path}: would lie at latitude {float(latitude):.3f}, longitude {float(longitude):.3f}, "
            f"far outside of {crs.name}; {cure}"
        )


def _beyond(grid: Grid, area: tuple[float, float, float, float]) -> float:
    """Degrees by which the centre lies outside west, south, east, north."""
    west, south, east, north = area
    width = (east - west) % 360.0 or 360.0
    middle = west + width / 2
    beside = abs(float(wrapped(grid.centre.longitude, middle)) - middle) - width / 2
    return max(beside, south - float(grid.centre.latitude), float(grid.centre.latitude) - north)
