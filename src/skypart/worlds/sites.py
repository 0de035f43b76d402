"""Choose the locations on a map: at a distance from each other, inside the map, never in holes."""

import math
import zlib
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.datasets.rendering import Framing
from skypart.worlds.ground import World

MIN_VALID = 0.9
"""Fraction of a location's tile that must be valid ground."""
RASTER_CONTRAST = 12.0
"""Tiles of real rasters with less contrast are forest, open water or one bare field: not distinguishable."""


def fit_framing(
    framing: Framing, extent: tuple[float, float], highest: float, margin: tuple[float, float] = (0.0, 0.0)
) -> Framing:
    """The framing for a map of `extent` metres.

    Small maps get a narrower lens and steeper views, unless they have surroundings, `margin` metres on either side.
    """
    room = min(extent)
    own = min(edge - 2 * rim for edge, rim in zip(extent, margin, strict=True))
    if own >= 2.5 * framing.tile:
        return framing
    tile = min(framing.tile, 0.98 * own)
    if room >= 2.5 * tile:
        return replace(framing, tile=tile, surrounded=True)
    tilt = (max(framing.tilt[0], 58.0), max(framing.tilt[1], 80.0))
    slant = highest / math.sin(math.radians(tilt[0]))
    lens = math.degrees(2 * math.atan(0.6 * room / slant))
    return Framing(tile, tilt, min(framing.fov, lens))


def site_seed(seed: int, map_name: str) -> list[int]:
    """Seed of the sites of a map; it depends on the map's name, not on which other maps are used."""
    return [seed, 6, zlib.crc32(map_name.encode())]


def find_sites(
    world: World, spacing: float, tile: float, seed: list[int], adjacent: bool = False, contrast: float = 0.0
) -> NDArray[np.float64]:
    """All sites of a jittered grid of `spacing` metres on valid ground, (n, 2) local metres, in random order.

    adjacent: ordered by distance from a random one instead, so that the first n are neighbours.
    contrast: sites whose tile has less (see `tile_contrast`) are excluded, unless the map has only one site.
    """
    rng = np.random.default_rng(seed)
    width, height = world.extent_m
    rims = world.margin_m
    edges = (width - 2 * rims[0], height - 2 * rims[1])
    xs, ys = (rim + _ticks(edge, spacing, tile) for rim, edge in zip(rims, edges, strict=True))
    grid = np.stack(np.meshgrid(xs, -ys), axis=-1).reshape(-1, 2)
    slack_x, slack_y = ((edge - tile) / 2 > 0.12 * spacing for edge in edges)
    wobble = rng.uniform(-0.12, 0.12, grid.shape) * spacing * np.array([slack_x, slack_y])
    sites = grid + wobble
    kept = np.array([_valid_share(world, site, tile) >= MIN_VALID for site in sites], dtype=bool)
    if contrast and len(sites) > 1:
        kept &= tile_contrast(world, sites, tile) >= contrast
    chosen: NDArray[np.float64] = sites[kept][rng.permutation(int(kept.sum()))]
    if adjacent and len(chosen):
        return chosen[np.argsort(np.hypot(*(chosen - chosen[0]).T), kind="stable")]
    return chosen


def _ticks(edge: float, spacing: float, tile: float) -> NDArray[np.float64]:
    """Grid positions along one edge, at least half a tile from the edge, centred."""
    free = max(edge - 1.12 * tile, 0.0)
    count = int(free / spacing) + 1
    ticks: NDArray[np.float64] = edge / 2 + (np.arange(count, dtype=np.float64) - (count - 1) / 2) * spacing
    return ticks


def _valid_share(world: World, site: NDArray[np.float64], tile: float) -> float:
    """Fraction of valid ground in the tile around a site; 0 if the site itself is in a hole."""
    if world.valid is None:
        return 1.0
    row, column, half = int(-site[1] / world.gsd), int(site[0] / world.gsd), int(tile / 2 / world.gsd)
    if not world.valid[row, column]:
        return 0.0
    part = world.valid[max(row - half, 0) : row + half, max(column - half, 0) : column + half]
    return float(part.mean())


def tile_contrast(world: World, sites: NDArray[np.float64], tile: float, cell: float = 18.0) -> NDArray[np.float64]:
    """(n,) standard deviation in grey levels between cells of `cell` metres in the tile around each of (n, 2) sites."""
    width, height = (max(round(edge / cell), 1) for edge in world.extent_m)
    coarse = cv2.resize(world.satellite.rgb, (width, height), interpolation=cv2.INTER_AREA).astype(np.float64)
    half = max(int(tile / 2 / cell), 1)
    found = []
    for x, y in sites:
        row, column = int(-y / cell), int(x / cell)
        part = coarse[max(row - half, 0) : row + half, max(column - half, 0) : column + half]
        found.append(part.reshape(-1, 3).std(axis=0).mean())
    return np.asarray(found, dtype=np.float64)
