"""Read GeoTIFF orthophotos, with an optional surface model, and write the maps of rendered worlds."""

import math
from pathlib import Path

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
from skypart.worlds.ground import FloatMap, World
from skypart.worlds.relief import ground_from_raster
from skypart.worlds.sources import RasterSource

_DEEPEST = -500.0
"""Metres: lower values are nodata."""
SURFACE_SUFFIXES = ("_dsm", "_DSM", "_dem", "_DEM")


def geotiff_source(path: Path) -> RasterSource:
    """A GeoTIFF map; `<stem>_dsm.tif` beside it is its surface model."""
    try:
        with rasterio.open(path) as raster:
            if raster.crs is None:
                raise SkyPartError(f"{path}: has no georeference; add one with gdal_translate -a_srs -a_ullr")
            if raster.width * raster.height > MAX_PIXELS:
                raise SkyPartError(f"{path}: more than {MAX_PIXELS:,} pixels; split it with gdal_translate")
            _, grid, width, height = _metric_grid(raster)
            unit = _metres_per_unit(raster.crs) if _is_metric(raster) else 1.0
    except rasterio.errors.RasterioError as error:
        raise SkyPartError(f"{path}: not a readable GeoTIFF ({error}); copy it again") from error
    stem = path.stem.removesuffix("_ortho")
    beside = (path.with_name(f"{stem}{ending}{path.suffix}") for ending in SURFACE_SUFFIXES)
    surface = next((each for each in beside if each.is_file()), None)
    extent = (width * grid.a * unit, height * grid.a * unit)
    return RasterSource(path.stem, (path,), surface, extent, load_geotiff)


def load_geotiff(source: RasterSource) -> World:
    """Read a GeoTIFF as a World; degrees and web Mercator are resampled to UTM metres, north up."""
    try:
        return _load(source)
    except rasterio.errors.RasterioError as error:
        files = " and ".join(str(file) for file in (*source.files, source.surface) if file is not None)
        raise SkyPartError(f"{files}: cannot be read completely ({error}); copy the damaged file again") from error


def _load(source: RasterSource) -> World:
    """`load_geotiff`, without translating rasterio's errors."""
    with rasterio.open(source.files[0]) as raster:
        epsg, grid, width, height = _metric_grid(raster)
        unit = _metres_per_unit(rasterio.crs.CRS.from_epsg(epsg))
        bands, mask = _read_colour(raster)
        if not _is_metric(raster):
            target = {"dst_transform": grid, "dst_crs": f"EPSG:{epsg}"}
            origin = {"src_transform": raster.transform, "src_crs": raster.crs}
            bands = _resample(bands, height, width, Resampling.bilinear, origin, target)
            mask = _resample(mask[None], height, width, Resampling.nearest, origin, target)[0]
    gsd = grid.a * unit
    rgb: RgbImage = np.ascontiguousarray(bands.transpose(1, 2, 0))
    valid: NDArray[np.bool_] = (mask > 0) & (rgb.max(axis=2) > 0)
    heights = None
    if source.surface is not None:
        heights, known = _read_surface(source.surface, epsg, grid, width, height)
        valid &= known
    ground = ground_from_raster(rgb, heights, valid, gsd)
    return World(source.name, [ground], (grid.c, grid.f), epsg, unit, None if valid.all() else valid)


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


def _metric_grid(raster: rasterio.DatasetReader) -> tuple[int, Affine, int, int]:
    """EPSG code, affine grid, width and height of the raster, in UTM when its own grid is not metric."""
    if _is_metric(raster):
        return int(raster.crs.to_epsg()), raster.transform, raster.width, raster.height
    middle = raster.transform @ (raster.width / 2, raster.height / 2)
    lons, lats = transform(raster.crs, "EPSG:4326", [middle[0]], [middle[1]])
    epsg = (32600 if lats[0] >= 0 else 32700) + math.floor((lons[0] + 180) / 6) + 1
    grid, width, height = calculate_default_transform(
        raster.crs, f"EPSG:{epsg}", raster.width, raster.height, *raster.bounds
    )
    return epsg, grid, width, height


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


def _read_surface(path: Path, epsg: int, grid: Affine, width: int, height: int) -> tuple[FloatMap, NDArray[np.bool_]]:
    """(h, w) heights on the orthophoto's grid, and where they are known."""
    heights = np.full((height, width), np.nan, dtype=np.float32)
    with rasterio.open(path) as raster:
        reproject(
            rasterio.band(raster, 1),
            heights,
            dst_transform=grid,
            dst_crs=f"EPSG:{epsg}",
            dst_nodata=np.nan,
            resampling=Resampling.bilinear,
        )
    heights[heights < _DEEPEST] = np.nan  # -9999 and similar, in files that do not declare nodata
    known = np.isfinite(heights)
    if not known.any():
        raise SkyPartError(f"{path}: does not overlap its orthophoto; check the georeference of both")
    return cv2.patchNaNs(heights, 0.0) if not known.all() else heights, known
