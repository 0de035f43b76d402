"""Render maps: Web Mercator tiles for the web page, and one image of all maps to draw on."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import Degrees, FloatArray, wrap_longitude
from skypart.images.decode import RgbImage
from skypart.maps.map_source import MapSource

TILE = 256
"""Pixels along the edge of a tile."""


def mercator_latitude(y: ArrayLike) -> FloatArray:
    """Latitude in degrees at y, which is 0 at the top of the Web Mercator square and 1 at its bottom; any shape."""
    result: FloatArray = np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * np.asarray(y, dtype=np.float64)))))
    return result


def mercator_y(latitude: ArrayLike) -> FloatArray:
    """The inverse of `mercator_latitude`; latitudes outside the square give its edge; any shape."""
    angle = np.radians(np.clip(np.asarray(latitude, dtype=np.float64), -85.06, 85.06))
    result: FloatArray = np.clip((1 - np.arcsinh(np.tan(angle)) / math.pi) / 2, 0.0, 1.0)
    return result


def render_tile(sources: Sequence[MapSource], z: int, x: int, y: int) -> NDArray[np.uint8]:
    """Render the tile z/x/y, (256, 256, 4) RGBA, transparent where there is no map; the first map is on top.

    y counts from the north. x outside 0..2**z - 1 wraps around the world; y outside gives an empty tile.
    """
    tile = np.zeros((TILE, TILE, 4), np.uint8)
    if not (0 <= z <= 30 and 0 <= y < 1 << z):
        return tile
    for source in reversed(sources):
        for rows, columns in _windows(source.bounds, z, x % (1 << z), y):
            _render_into(tile[rows, columns], source, z, x, y, rows.start, columns.start)
    return tile


def _render_into(target: NDArray[np.uint8], source: MapSource, z: int, x: int, y: int, top: int, left: int) -> None:
    """Render a map into a window of a tile that starts at pixel (top, left)."""

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        longitude = wrap_longitude(((left + columns + 0.5) / TILE + x) / 2**z * 360.0 - 180.0)
        latitude = mercator_latitude(((top + rows + 0.5) / TILE + y) / 2**z)
        lat, lon = np.meshgrid(latitude, longitude, indexing="ij")
        return Degrees(lat, lon)

    rgb, valid = source.warp(locate, (target.shape[0], target.shape[1]))
    target[valid, :3] = rgb[valid]
    target[valid, 3] = 255


def _windows(bounds: Bounds, z: int, x: int, y: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of a tile that a box covers, with a margin of one pixel; two windows if the box wraps around."""
    north, south = mercator_y(bounds.north), mercator_y(bounds.south)
    rows = _span((float(north) * 2**z - y) * TILE, (float(south) * 2**z - y) * TILE)
    width = (bounds.east - bounds.west) % 360.0 or 360.0
    west = (bounds.west + 180.0) / 360.0
    for turn in (-1, 0, 1):
        columns = _span(((west + turn) * 2**z - x) * TILE, ((west + turn + width / 360.0) * 2**z - x) * TILE)
        if rows is not None and columns is not None:
            yield rows, columns


def _span(low: float, high: float) -> slice | None:
    """Whole pixels of a tile between two positions, at least two; None if they are outside the tile."""
    first, last = max(0, math.floor(low) - 1), min(TILE, math.ceil(high) + 1)
    if first >= last:
        return None
    first = min(first, TILE - 2)
    return slice(first, max(last, first + 2))


def render_image(sources: Sequence[MapSource], area: Bounds, edge: int) -> RgbImage:
    """Render the maps within a box, north up, evenly spaced in degrees, `edge` pixels on the longer side.

    Pixels without a map are white. The first map is on top.
    """
    height, width = _image_shape(area, edge)

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        latitude = area.north - (rows[:, None] + 0.5) / height * (area.north - area.south)
        longitude = area.west + (columns[None, :] + 0.5) / width * area.degrees_wide
        wide = np.broadcast_arrays(latitude, longitude)
        return Degrees(np.asarray(wide[0]), (np.asarray(wide[1]) + 180) % 360 - 180)

    image = np.full((height, width, 3), 255, dtype=np.uint8)
    missing = np.ones((height, width), dtype=bool)
    for source in sources:
        warped = source.warp(locate, (height, width))
        new = warped.valid & missing
        image[new] = warped.rgb[new]
        missing &= ~new
    return image


def _image_shape(box: Bounds, edge: int) -> tuple[int, int]:
    """(height, width) in pixels of a box in degrees."""
    tall = box.north - box.south
    wide = box.degrees_wide * np.cos(np.radians((box.north + box.south) / 2))
    scale = edge / max(tall, wide)
    return max(round(tall * scale), 1), max(round(wide * scale), 1)
