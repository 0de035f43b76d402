"""A pyramid of Web Mercator tiles as one map image, with the pixels of the deepest complete zoom level."""

import io
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.images.decode import open_image
from skypart.maps.grid import MapGrid, crs_plane
from skypart.maps.map_source import MapImage
from skypart.maps.pixels import PixelBox, PixelPatch, shrink, with_overview
from skypart.maps.tile_sets import TileSet

HALF_WORLD_M = math.pi * 6_378_137.0
"""Metres of Web Mercator from the centre of the world to its edge."""
COMPLETE = 0.98
"""A zoom level is complete if this share of the tiles of the level above have a child in it."""
CACHE_BYTES = 64 << 20
MAX_TILE_PIXELS = 4096 * 4096
MAX_CELLS, MAX_GAPS = 4 << 20, 64
"""Places for tiles between the outermost ones: at most so many, or so many times the number of tiles."""


def tile_image(tile_set: TileSet) -> MapImage:
    """A tile set as one image of a map."""
    tiles = tile_set.tiles()
    levels = complete_levels(tiles)
    if not levels:
        raise SkyPartError(f"{tile_set.path}: contains no tiles; check how it was created")
    zoom = max(levels)
    first_x, first_y, count_x, count_y = _extent(levels[zoom], zoom)
    if count_x * count_y > max(MAX_CELLS, MAX_GAPS * len(levels[zoom])):
        raise SkyPartError(
            f"{tile_set.path}: its {len(levels[zoom]):,} tiles of zoom {zoom} are scattered over an area of "
            f"{count_x:,} x {count_y:,} tiles; split it into one file per place"
        )
    pixels = TileReader(tile_set, sorted(levels), levels[zoom][0], (first_x, first_y))
    resolution = 2 * HALF_WORLD_M / (pixels.edge << zoom)
    west = -HALF_WORLD_M + first_x * pixels.edge * resolution
    north = HALF_WORLD_M - first_y * pixels.edge * resolution
    affine = Affine(resolution, 0.0, west, 0.0, -resolution, north)
    grid = MapGrid(crs_plane("EPSG:3857"), affine, count_x * pixels.edge, count_y * pixels.edge)
    has_overviews = zoom - min(levels) >= 3
    reader = pixels if has_overviews else with_overview(pixels, grid.width, grid.height)
    deeper = sorted(each for each, places in tiles.items() if each > zoom and len(places))
    note = (
        f"{tile_set.path}: the map has zoom level {zoom}; deeper levels ({', '.join(map(str, deeper))}) cover only a "
        "part of it and are not used, give only the tiles of these levels to use them"
    )
    return MapImage(grid, reader, note if deeper else "")


def complete_levels(tiles: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
    """The zoom levels, from the shallowest down, that cover everything the level above covers."""
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
    """First x and y, and number of columns and rows; x continues past the antimeridian if that is shorter."""
    world = 1 << zoom
    columns = np.unique(places[:, 0])
    gaps = np.diff(np.append(columns, columns[0] + world))
    widest = len(gaps) - 1 - int(np.argmax(gaps[::-1]))
    first = int(columns[(widest + 1) % len(columns)])
    count = world - int(gaps[widest]) + 1
    top, bottom = int(places[:, 1].min()), int(places[:, 1].max())
    return first, top, count, bottom - top + 1


class TileReader:
    """Reads windows of the deepest zoom level; coarse ones come from shallower levels where they exist."""

    def __init__(self, tile_set: TileSet, zooms: list[int], sample: NDArray[np.int64], origin: tuple[int, int]) -> None:
        self._tile_set = tile_set
        self._zooms = zooms
        self._origin = origin
        first = self._decode(zooms[-1], int(sample[0]), int(sample[1]))
        if first is None or first.shape[0] != first.shape[1] or first.shape[0] & (first.shape[0] - 1):
            raise SkyPartError(f"{tile_set.path}: its tiles are not squares of 256 or 512 pixels; recreate them")
        self.edge: int = first.shape[0]
        self._tile = lru_cache(maxsize=max(16, CACHE_BYTES // first.nbytes))(self._load)

    def read(self, box: PixelBox, step_x: float, step_y: float) -> PixelPatch:
        """The tiles that cover `box`, reduced by the largest power of two that is not above the steps."""
        deepest = self._zooms[-1]
        power = int(math.log2(min(step_x, step_y)))
        zoom = min(each for each in self._zooms if each >= deepest - power)
        halvings = min(power - (deepest - zoom), self.edge.bit_length() - 1)
        span = self.edge << (deepest - zoom)  # map pixels along the edge of a tile of this zoom
        start_x, start_y = (first * self.edge for first in self._origin)
        left, right = (start_x + box.left) // span, -(-(start_x + box.right) // span)
        top, bottom = (start_y + box.top) // span, -(-(start_y + box.bottom) // span)
        small = self.edge >> halvings
        canvas = np.zeros(((bottom - top) * small, (right - left) * small, 4), np.uint8)
        for y in range(top, bottom):
            for x in range(left, right):
                tile = self._tile(zoom, x % (1 << zoom), y, halvings)
                if tile is not None:
                    canvas[(y - top) * small :, (x - left) * small :][:small, :small] = tile
        valid = canvas[..., 3] > 127
        step = span / small
        rgb = np.ascontiguousarray(canvas[..., :3])
        return PixelPatch(rgb, None if valid.all() else valid, left * span - start_x, top * span - start_y, step, step)

    def _load(self, zoom: int, x: int, y: int, halvings: int) -> NDArray[np.uint8] | None:
        """A tile as RGBA, its edge halved `halvings` times; None if there is none."""
        tile = self._decode(zoom, x, y)
        if tile is None:
            return None
        if tile.shape[0] != self.edge or tile.shape[1] != self.edge:
            raise SkyPartError(
                f"{self._tile_set.path}: tile {zoom}/{x}/{y} is {tile.shape[1]} x {tile.shape[0]} pixels, others "
                f"{self.edge} x {self.edge}; recreate the tiles in one size"
            )
        return shrink(tile, self.edge >> halvings, self.edge >> halvings) if halvings else tile

    def _decode(self, zoom: int, x: int, y: int) -> NDArray[np.uint8] | None:
        try:
            data = self._tile_set.get(zoom, x, y)
        except OSError as error:
            raise SkyPartError(
                f"{self._tile_set.path}: tile {zoom}/{x}/{y} cannot be read ({error.strerror or error}); check the "
                "disk and its permissions"
            ) from error
        if data is None:
            return None
        try:
            with open_image(io.BytesIO(data), MAX_TILE_PIXELS) as image:
                return np.asarray(image.convert("RGBA"))
        except Exception as error:  # Pillow raises anything on damaged images
            raise SkyPartError(
                f"{self._tile_set.path}: tile {zoom}/{x}/{y} is not an image or is truncated; copy or recreate "
                "the tiles"
            ) from error
