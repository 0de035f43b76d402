"""Pyramids of Web Mercator tiles as one picture: its pixels are those of the deepest complete zoom."""

import io
import math
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.images.decode import open_image
from skypart.maps.grid import Grid, crs_plane
from skypart.maps.map_source import Part
from skypart.maps.mercator import HALF_WORLD
from skypart.maps.overview import with_overview
from skypart.maps.patch import Box, Patch, shrunk

COMPLETE = 0.98
"""A zoom is complete if so many of the tiles of the zoom above it have a part of theirs in it."""
CACHE_BYTES = 64 << 20
MAX_TILE_PIXELS = 4096 * 4096


class TileStore(Protocol):
    """Where tiles come from; y counts from the north. Safe to call from several threads."""

    path: str

    def tiles(self) -> dict[int, NDArray[np.int64]]:
        """(n, 2) x and y of the tiles of each zoom that has any."""

    def get(self, z: int, x: int, y: int) -> bytes | None:
        """The picture file of a tile, None if there is none."""


def tile_part(store: TileStore) -> Part:
    """The tiles of a store as one picture of a map."""
    tiles = store.tiles()
    levels = complete_levels(tiles)
    if not levels:
        raise SkyPartError(f"{store.path}: holds no tiles; check how it was made")
    zoom = max(levels)
    first_x, first_y, count_x, count_y = _extent(levels[zoom], zoom)
    pixels = TilePixels(store, sorted(levels), levels[zoom][0], (first_x, first_y))
    resolution = 2 * HALF_WORLD / (pixels.edge << zoom)
    west = -HALF_WORLD + first_x * pixels.edge * resolution
    north = HALF_WORLD - first_y * pixels.edge * resolution
    affine = Affine(resolution, 0.0, west, 0.0, -resolution, north)
    grid = Grid(crs_plane("EPSG:3857"), affine, count_x * pixels.edge, count_y * pixels.edge)
    has_overviews = zoom - min(levels) >= 3
    reader = pixels if has_overviews else with_overview(pixels, grid.width, grid.height)
    deeper = sorted(each for each, places in tiles.items() if each > zoom and len(places))
    note = (
        f"{store.path}: the map is that of zoom {zoom}; deeper ones ({', '.join(map(str, deeper))}) cover only a part "
        "of it and are not used, give tiles of these zooms alone to use them"
    )
    return Part(grid, reader, note if deeper else "")


def complete_levels(tiles: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
    """The zooms, from the shallowest down, that show all that the zoom above them shows."""
    found: dict[int, NDArray[np.int64]] = {}
    for zoom in sorted(zoom for zoom, places in tiles.items() if len(places)):
        if found:
            above = max(found)
            parents = np.unique(tiles[zoom] >> (zoom - above), axis=0)
            key = np.array([1 << 32, 1])
            if np.isin(found[above] @ key, parents @ key).mean() < COMPLETE:
                break
        found[zoom] = tiles[zoom]
    return found


def _extent(places: NDArray[np.int64], zoom: int) -> tuple[int, int, int, int]:
    """First x and y, and how many of each, around tiles; x runs on past the antimeridian if that is shorter."""
    world = 1 << zoom
    columns = np.unique(places[:, 0])
    gaps = np.diff(np.append(columns, columns[0] + world))
    widest = len(gaps) - 1 - int(np.argmax(gaps[::-1]))
    first = int(columns[(widest + 1) % len(columns)])
    count = world - int(gaps[widest]) + 1
    top, bottom = int(places[:, 1].min()), int(places[:, 1].max())
    return first, top, count, bottom - top + 1


class TilePixels:
    """Reads windows of the deepest zoom; coarser ones from shallower zooms where they exist."""

    def __init__(self, store: TileStore, zooms: list[int], sample: NDArray[np.int64], origin: tuple[int, int]) -> None:
        self._store = store
        self._zooms = zooms
        self._origin = origin
        first = self._decode(zooms[-1], int(sample[0]), int(sample[1]))
        if first is None or first.shape[0] != first.shape[1] or first.shape[0] & (first.shape[0] - 1):
            raise SkyPartError(f"{store.path}: its tiles are not squares of 256 or 512 pixels; make them again")
        self.edge: int = first.shape[0]
        self._tile = lru_cache(maxsize=max(16, CACHE_BYTES // first.nbytes))(self._load)

    def read(self, box: Box, step_x: float, step_y: float) -> Patch:
        """The tiles around `box`, reduced by the largest power of two that is not above the steps."""
        deepest = self._zooms[-1]
        power = int(math.log2(min(step_x, step_y)))
        zoom = min(each for each in self._zooms if each >= deepest - power)
        shrink = min(power - (deepest - zoom), self.edge.bit_length() - 1)
        span = self.edge << (deepest - zoom)  # map pixels along the edge of a tile of this zoom
        start_x, start_y = (first * self.edge for first in self._origin)
        left, right = (start_x + box.left) // span, -(-(start_x + box.right) // span)
        top, bottom = (start_y + box.top) // span, -(-(start_y + box.bottom) // span)
        small = self.edge >> shrink
        canvas = np.zeros(((bottom - top) * small, (right - left) * small, 4), np.uint8)
        for y in range(top, bottom):
            for x in range(left, right):
                tile = self._tile(zoom, x % (1 << zoom), y, shrink)
                if tile is not None:
                    canvas[(y - top) * small :, (x - left) * small :][:small, :small] = tile
        valid = canvas[..., 3] > 127
        step = span / small
        rgb = np.ascontiguousarray(canvas[..., :3])
        return Patch(rgb, None if valid.all() else valid, left * span - start_x, top * span - start_y, step, step)

    def _load(self, zoom: int, x: int, y: int, shrink: int) -> NDArray[np.uint8] | None:
        """A tile as RGBA, its edge halved `shrink` times; None if there is none."""
        tile = self._decode(zoom, x, y)
        if tile is None:
            return None
        if tile.shape[0] != self.edge or tile.shape[1] != self.edge:
            raise SkyPartError(
                f"{self._store.path}: tile {zoom}/{x}/{y} is {tile.shape[1]} x {tile.shape[0]} pixels, others "
                f"{self.edge} x {self.edge}; make the tiles again in one size"
            )
        return shrunk(tile, self.edge >> shrink, self.edge >> shrink) if shrink else tile

    def _decode(self, zoom: int, x: int, y: int) -> NDArray[np.uint8] | None:
        try:
            data = self._store.get(zoom, x, y)
        except OSError as error:
            raise SkyPartError(
                f"{self._store.path}: tile {zoom}/{x}/{y} cannot be read ({error.strerror or error}); check the disk "
                "and its rights"
            ) from error
        if data is None:
            return None
        try:
            with open_image(io.BytesIO(data), MAX_TILE_PIXELS) as image:
                return np.asarray(image.convert("RGBA"))
        except (SkyPartError, OSError, ValueError, SyntaxError) as error:
            raise SkyPartError(
                f"{self._store.path}: tile {zoom}/{x}/{y} is no picture or is cut short; copy or make the tiles again"
            ) from error
