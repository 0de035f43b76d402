"""Small maps of synthetic ground whose colours are a smooth function of latitude and longitude."""

import sqlite3
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from PIL import Image
from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import Writer
from pyproj import CRS, Transformer
from rasterio.transform import Affine

from skypart.geo.geodesy import Degrees
from skypart.maps.map_source import MapSource
from skypart.maps.warp import WarpedImage

Rgb = NDArray[np.uint8]


def ground(latitude: Any, longitude: Any, *, around: tuple[float, float], wave_m: float = 60.0) -> NDArray[np.float64]:
    """(..., 3) colours, 0..255, at points in degrees: waves of `wave_m` metres around (latitude, longitude)."""
    lat, lon = np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64)
    east = ((lon - around[1] + 540.0) % 360.0 - 180.0) * 111_320.0 * np.cos(np.radians(around[0]))
    north = (lat - around[0]) * 111_320.0
    turn = 2 * np.pi / wave_m
    waves = [np.sin(turn * east), np.sin(turn * north + 1.0), np.sin(turn * (east + north) / 2 + 2.0)]
    return 128.0 + 90.0 * np.stack(waves, axis=-1)


@lru_cache
def to_degrees(crs: str) -> Transformer:
    """The pyproj transformer from a CRS to longitude and latitude."""
    return Transformer.from_crs(crs, "EPSG:4326", always_xy=True)


def centred_affine(
    crs: str, around: tuple[float, float], metres: float, pixels: tuple[int, int], kind: str = "north"
) -> Affine:
    """The geotransform of (width, height) pixels of `metres` centred at (latitude, longitude) in a CRS.

    kind: `north` up, `south` up, or `rotated` by 30 degrees.
    """
    system = CRS.from_user_input(crs)
    x, y = to_degrees(crs).transform(around[1], around[0], direction="INVERSE")
    if system.is_geographic:
        x = around[1]  # may lie beyond 180
        across, down = metres / 111_320.0 / np.cos(np.radians(around[0])), metres / 111_320.0
    else:
        unit = system.axis_info[0].unit_conversion_factor
        scale = 1 / np.cos(np.radians(around[0])) if "3857" in crs else 1.0
        across = down = metres / unit * scale
    turn = Affine.rotation(30.0) if kind == "rotated" else Affine.identity()
    flip = 1 if kind == "south" else -1
    scale_and_centre = Affine.scale(across, flip * down) @ Affine.translation(-pixels[0] / 2, -pixels[1] / 2)
    return Affine.translation(x, y) @ turn @ scale_and_centre


def pixel_degrees(crs: str, affine: Affine, width: int, height: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Latitude and longitude (height, width) of pixel centres, computed with pyproj alone."""
    column, row = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    x = affine.a * column + affine.b * row + affine.c
    y = affine.d * column + affine.e * row + affine.f
    longitude, latitude = to_degrees(crs).transform(x, y)
    return latitude, longitude


def ground_image(crs: str, affine: Affine, width: int, height: int, around: tuple[float, float]) -> Rgb:
    """(height, width, 3) image of the synthetic ground on a grid."""
    latitude, longitude = pixel_degrees(crs, affine, width, height)
    return np.rint(ground(latitude, longitude, around=around)).astype(np.uint8)


def write_raster(path: Path, bands: NDArray[Any], crs: str | None, affine: Affine | None, **options: Any) -> Path:
    """Write bands (count, h, w), as GeoTIFF unless `driver` says otherwise. `meaning`: colour of each band."""
    meaning = options.pop("meaning", None)
    colormap = options.pop("colormap", None)
    profile = {"driver": "GTiff", "count": bands.shape[0], "height": bands.shape[1], "width": bands.shape[2]}
    profile |= {"dtype": bands.dtype, "crs": crs, "transform": affine} | options
    with rasterio.open(path, "w", **profile) as raster:
        raster.write(bands)
        if meaning:
            raster.colorinterp = meaning
        if colormap:
            raster.write_colormap(1, colormap)
    return path


def write_ground(
    path: Path,
    crs: str = "EPSG:32643",
    around: tuple[float, float] = (33.64, 72.99),
    pixels: tuple[int, int] = (400, 300),
    metres: float = 0.5,
    kind: str = "north",
    **options: Any,
) -> Path:
    """Write a GeoTIFF of the synthetic ground."""
    affine = centred_affine(crs, around, metres, pixels, kind)
    rgb = ground_image(crs, affine, *pixels, around)
    return write_raster(path, rgb.transpose(2, 0, 1), crs, affine, **options)


def sample(source: MapSource, latitude: NDArray[Any], longitude: NDArray[Any]) -> WarpedImage:
    """Warp a map to (h, w) points in degrees, which must vary smoothly over the arrays."""

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        chosen = np.ix_(rows, columns)
        return Degrees(latitude[chosen], longitude[chosen])

    return source.warp(locate, (latitude.shape[0], latitude.shape[1]))


def tile_image(z: int, x: int, y: int, around: tuple[float, float], edge: int = 256) -> Rgb:
    """The synthetic ground as a Web Mercator tile."""
    unit = 2 * np.pi * 6_378_137.0 / 2**z
    affine = Affine(unit / edge, 0, (x - 2 ** (z - 1)) * unit, 0, -unit / edge, (2 ** (z - 1) - y) * unit)
    return ground_image("EPSG:3857", affine, edge, edge, around)


def tile_of(latitude: float, longitude: float, z: int) -> tuple[int, int]:
    """x and y of the tile that contains a point."""
    sin = np.sin(np.radians(latitude))
    y = 0.5 - np.log((1 + sin) / (1 - sin)) / (4 * np.pi)
    return int((longitude + 180) / 360 * 2**z), int(y * 2**z)


def write_tile_folder(
    folder: Path, tiles: dict[tuple[int, int, int], Rgb], suffix: str = ".png", tms: bool = False
) -> Path:
    """Write tiles as z/x/y files."""
    for (z, x, y), rgb in tiles.items():
        row = 2**z - 1 - y if tms else y
        file = folder / str(z) / str(x) / f"{row}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rgb).save(file, quality=95)
    return folder


def write_mbtiles(path: Path, tiles: dict[tuple[int, int, int], bytes], kind: str = "png") -> Path:
    """Write an MBTiles file of encoded tiles."""
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE metadata (name text, value text)")
    base.execute("INSERT INTO metadata VALUES ('format', ?)", (kind,))
    base.execute("CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)")
    for (z, x, y), data in tiles.items():
        base.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", (z, x, 2**z - 1 - y, data))
    base.commit()
    base.close()
    return path


def write_pmtiles(path: Path, tiles: dict[tuple[int, int, int], bytes], kind: TileType = TileType.PNG) -> Path:
    """Write a PMTiles file of encoded tiles."""
    with path.open("wb") as file:
        writer = Writer(file)
        for place in sorted(tiles, key=lambda each: zxy_to_tileid(*each)):
            writer.write_tile(zxy_to_tileid(*place), tiles[place])
        header = {"tile_type": kind, "tile_compression": Compression.NONE}
        writer.finalize(header, {})
    return path
