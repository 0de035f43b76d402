"""Read GeoTIFF orthophotos, with an optional surface model, and write the maps of rendered worlds."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.transform import Affine, from_origin
from rasterio.warp import calculate_default_transform, reproject, transform

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.images.bands import palette_table, stretch, stretch_limits
from skypart.images.decode import MAX_PIXELS, RgbImage
from skypart.images.raster_files import read_geotiff
from skypart.worlds.ground import FloatMap, World
from skypart.worlds.relief import ground_from_raster
from skypart.worlds.sources import RasterSource

_DEEPEST = -500.0
"""Metres: lower values are nodata."""
SURFACE_SUFFIXES = ("_dsm", "_DSM", "_dem", "_DEM")


class MetricGrid(NamedTuple):
    """A north-up grid of square cells. unit: metres per unit of the projection."""

    epsg: int
    unit: float
    transform: Affine
    width: int
    height: int


def geotiff_source(path: Path) -> RasterSource:
    """A GeoTIFF map; `<stem>_dsm.tif` beside it is its surface model."""
    extent = read_geotiff(path, lambda raster: _extent(raster, path))
    stem = path.stem.removesuffix("_ortho")
    beside = (path.with_name(f"{stem}{ending}{path.suffix}") for ending in SURFACE_SUFFIXES)
    surface = next((each for each in beside if each.is_file()), None)
    return RasterSource(path.stem, (path,), surface, extent, load_geotiff)


def _extent(raster: Any, path: Path) -> tuple[float, float]:
    """Width and height in metres."""
    if raster.crs is None:
        raise SkyPartError(f"{path}: has no georeference; add one with gdal_translate -a_srs -a_ullr")
    if raster.width * raster.height > MAX_PIXELS:
        raise SkyPartError(f"{path}: more than {MAX_PIXELS:,} pixels; split it with gdal_translate")
    grid = _metric_grid(raster)
    unit = _metres_per_unit(raster.crs) if _is_metric(raster) else 1.0
    return grid.width * grid.transform.a * unit, grid.height * grid.transform.a * unit


def load_geotiff(source: RasterSource) -> World:
    """Read a GeoTIFF as a World; degrees and web Mercator are resampled to UTM metres, north up."""
    remedy = "copy the damaged file again"
    grid, rgb, valid = read_geotiff(source.files[0], _read_image, remedy)
    gsd = grid.transform.a * grid.unit
    heights = None
    if source.surface is not None:
        heights = read_geotiff(source.surface, lambda raster: _read_surface(raster, grid), remedy)
        known = np.isfinite(heights)
        if not known.any():
            raise SkyPartError(f"{source.surface}: does not overlap its orthophoto; check the georeference of both")
        heights = heights if known.all() else cv2.patchNaNs(heights, 0.0)
        valid &= known
    ground = ground_from_raster(rgb, heights, valid, gsd)
    corner = (grid.transform.c, grid.transform.f)
    return World(source.name, [ground], corner, grid.epsg, grid.unit, None if valid.all() else valid)


def _read_image(raster: Any) -> tuple[MetricGrid, RgbImage, NDArray[np.bool_]]:
    """The grid, and on it the colours (h, w, 3) and where they are known (h, w)."""
    grid = _metric_grid(raster)
    bands, mask = _read_colour(raster)
    if not _is_metric(raster):
        target = {"dst_transform": grid.transform, "dst_crs": f"EPSG:{grid.epsg}"}
        origin = {"src_transform": raster.transform, "src_crs": raster.crs}
        bands = _resample(bands, grid.height, grid.width, Resampling.bilinear, origin, target)
        mask = _resample(mask[None], grid.height, grid.width, Resampling.nearest, origin, target)[0]
    rgb: RgbImage = np.ascontiguousarray(bands.transpose(1, 2, 0))
    return grid, rgb, (mask > 0) & (rgb.max(axis=2) > 0)


def write_geotiff(path: Path, rgb: RgbImage, world: World) -> None:
    """Write (h, w, 3) uint8 that covers all of `world` as a tiled, JPEG-compressed GeoTIFF with its CRS."""
    cell_x = world.extent_m[0] / rgb.shape[1] / world.metres_per_unit
    cell_y = world.extent_m[1] / rgb.shape[0] / world.metres_per_unit
    profile = {
        "driver": "GTiff",
        "height": rgb.shape[0],
        "width": rgb.shape[1],
        "count": 3,
        "dtype": "uint8",
        "crs": f"EPSG:{world.epsg}",
        "transform": from_origin(world.origin[0], world.origin[1], cell_x, cell_y),
        "tiled": True,
        "blockxsize": 256,
        "blockysize": 256,
        "compress": "jpeg",
        "photometric": "ycbcr",
        "jpeg_quality": 90,
    }
    with atomic_path(path) as temporary, rasterio.open(temporary, "w", **profile) as raster:
        raster.write(rgb.transpose(2, 0, 1))


def _is_metric(raster: rasterio.DatasetReader) -> bool:
    """Whether the grid can be used without resampling: projected with true scale, north up, square cells."""
    grid = raster.transform
    square = abs(abs(grid.a) - abs(grid.e)) <= 1e-6 * abs(grid.a)
    true_scale = raster.crs.is_projected and raster.crs.to_epsg() not in (None, 3857)
    return bool(true_scale and square and grid.b == 0 and grid.d == 0 and grid.a > 0 > grid.e)


def _metres_per_unit(crs: rasterio.crs.CRS) -> float:
    return float(crs.linear_units_factor[1])


def _metric_grid(raster: rasterio.DatasetReader) -> MetricGrid:
    """The raster's own grid, or one in UTM if its own is not metric."""
    if _is_metric(raster):
        epsg = int(raster.crs.to_epsg())
        unit = _metres_per_unit(rasterio.crs.CRS.from_epsg(epsg))
        return MetricGrid(epsg, unit, raster.transform, raster.width, raster.height)
    middle = raster.transform @ (raster.width / 2, raster.height / 2)
    lons, lats = transform(raster.crs, "EPSG:4326", [middle[0]], [middle[1]])
    if not (abs(lons[0]) <= 180 and abs(lats[0]) <= 90):
        raise SkyPartError(f"{raster.name}: is not on the Earth; check its georeference with gdalinfo")
    epsg = (32600 if lats[0] >= 0 else 32700) + min(math.floor((lons[0] + 180) / 6), 59) + 1
    grid, width, height = calculate_default_transform(
        raster.crs, f"EPSG:{epsg}", raster.width, raster.height, *raster.bounds
    )
    if width * height > MAX_PIXELS:
        raise SkyPartError(f"{raster.name}: more than {MAX_PIXELS:,} pixels in UTM; check its georeference")
    return MetricGrid(epsg, 1.0, grid, width, height)


def _read_colour(raster: rasterio.DatasetReader) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The raster's colours as (3, h, w) uint8, palettes expanded, and its (h, w) mask."""
    mask = raster.dataset_mask()
    if raster.count == 1 and raster.colorinterp[0] == rasterio.enums.ColorInterp.palette:
        table = palette_table(raster.colormap(1))[:, :3]
        return np.ascontiguousarray(table[raster.read(1)].transpose(2, 0, 1)), mask
    bands = raster.read([1, 2, 3] if raster.count >= 3 else [1, 1, 1])
    if bands.dtype != np.uint8:
        bands = stretch(bands, stretch_limits(bands[:, mask > 0]))
    return bands, mask


def _resample(
    bands: NDArray[np.uint8],
    height: int,
    width: int,
    method: Resampling,
    origin: dict[str, object],
    target: dict[str, object],
) -> NDArray[np.uint8]:
    out = np.zeros((len(bands), height, width), dtype=bands.dtype)
    reproject(bands, out, resampling=method, **origin, **target)
    return out


def _read_surface(raster: Any, grid: MetricGrid) -> FloatMap:
    """(h, w) heights on the orthophoto's grid, NaN where they are not known."""
    heights = np.full((grid.height, grid.width), np.nan, dtype=np.float32)
    reproject(
        rasterio.band(raster, 1),
        heights,
        dst_transform=grid.transform,
        dst_crs=f"EPSG:{grid.epsg}",
        dst_nodata=np.nan,
        resampling=Resampling.bilinear,
    )
    heights[heights < _DEEPEST] = np.nan  # -9999 and similar, in files that do not declare nodata
    return heights
