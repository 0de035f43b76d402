"""Web Mercator tiles of maps, for a page that shows them."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import Degrees, FloatArray, wrapped
from skypart.maps.map_source import MapSource

TILE = 256
HALF_WORLD = math.pi * 6_378_137.0
"""Metres of Web Mercator from its middle to its edge."""


def latitude_of(y: ArrayLike) -> FloatArray:
    """Latitude in degrees at y, 0 at the top of the world's square and 1 at its bottom; any shape."""
    result: FloatArray = np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * np.asarray(y, dtype=np.float64)))))
    return result


def y_of(latitude: ArrayLike) -> FloatArray:
    """The inverse of `latitude_of`; latitudes beyond the square give its edge; any shape."""
    angle = np.radians(np.clip(np.asarray(latitude, dtype=np.float64), -85.06, 85.06))
    result: FloatArray = np.clip((1 - np.arcsinh(np.tan(angle)) / math.pi) / 2, 0.0, 1.0)
    return result


def render_tile(sources: Sequence[MapSource], z: int, x: int, y: int) -> NDArray[np.uint8]:
    """The tile z/x/y of some maps, (256, 256, 4) RGBA, transparent where there is none; the first map is on top.

    y counts from the north. x outside of 0..2**z - 1 goes round the world; y outside shows nothing.
    """
    tile = np.zeros((TILE, TILE, 4), np.uint8)
    if not (0 <= z <= 30 and 0 <= y < 1 << z):
        return tile
    for source in reversed(sources):
        for rows, columns in _windows(source.bounds, z, x % (1 << z), y):
            _paint(tile[rows, columns], source, z, x, y, rows.start, columns.start)
    return tile


def _paint(part: NDArray[np.uint8], source: MapSource, z: int, x: int, y: int, top: int, left: int) -> None:
    """Draw a map into a part of a tile that starts at pixel (top, left)."""

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        longitude = wrapped(((left + columns + 0.5) / TILE + x) / 2**z * 360.0 - 180.0)
        latitude = latitude_of(((top + rows + 0.5) / TILE + y) / 2**z)
        lat, lon = np.meshgrid(latitude, longitude, indexing="ij")
        return Degrees(lat, lon)

    rgb, valid = source.draw(locate, (part.shape[0], part.shape[1]))
    part[valid, :3] = rgb[valid]
    part[valid, 3] = 255


def _windows(bounds: Bounds, z: int, x: int, y: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of a tile that a box touches, with a pixel of margin: two windows where it goes round."""
    north, south = y_of(bounds.north), y_of(bounds.south)
    rows = _span((float(north) * 2**z - y) * TILE, (float(south) * 2**z - y) * TILE)
    width = (bounds.east - bounds.west) % 360.0 or 360.0
    west = (bounds.west + 180.0) / 360.0
    for turn in (-1, 0, 1):
        columns = _span(((west + turn) * 2**z - x) * TILE, ((west + turn + width / 360.0) * 2**z - x) * TILE)
        if rows is not None and columns is not None:
            yield rows, columns


def _span(low: float, high: float) -> slice | None:
    """Whole pixels of a tile between two positions, two or more, None if they miss it."""
    first, last = max(0, math.floor(low) - 1), min(TILE, math.ceil(high) + 1)
    if first >= last:
        return None
    first = min(first, TILE - 2)
    return slice(first, max(last, first + 2))
