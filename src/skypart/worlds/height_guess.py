"""Guess heights from an orthophoto alone: roofs and tree crowns for a map without a surface model.

The guesses are often in the wrong place and never exact. Their purpose is to render images in which tall objects lean,
hide what is behind them and show their walls, as in oblique photos of a town.
"""

import math
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.worlds.ground import ByteMap, FloatMap, World
from skypart.worlds.relief import ground_from_raster, vegetation_of

CELL_M = 0.6
"""The orthophoto is analysed in cells of this many metres, or its own if they are larger."""
ROOF_M2 = (30.0, 9000.0)
MIN_WIDTH_M = 4.0
MAX_ASPECT = 5.0
"""Largest ratio of a roof's sides."""
MIN_FILL = 0.66
"""Smallest fraction of its rectangle that a roof fills."""
EDGE_LEVELS = (44, 30, 20, 13)
"""Grey level steps that separate surfaces, tried in turn: whole roofs first, then their sides."""
SHADOW_LEVEL = 62.0
"""Grey level below which a surface is in shadow or water."""
BRIGHT_LEVEL, PAVED_M2 = 150.0, 350.0
"""A surface that is larger and darker than this is probably asphalt or bare soil, not a roof."""
CROWN_LEVEL = 118.0
"""Grey level up to which vegetation is tree crowns, not grass."""


def with_guessed_heights(world: World, rng: np.random.Generator) -> World:
    """Add heights guessed from the drone's date to all dates of a flat world; other worlds are returned unchanged."""
    if any(date.heights.any() for date in world.dates):
        return world
    heights = guess_heights(world.drone.rgb, world.gsd, rng)
    earth = np.zeros_like(heights)
    dates = [ground_from_raster(date.rgb, heights, None, world.gsd, earth) for date in world.dates]
    return replace(world, dates=dates)


def guess_heights(rgb: RgbImage, gsd: float, rng: np.random.Generator) -> FloatMap:
    """(h, w) metres above the bare earth of what looks like roofs and crowns in (h, w, 3) uint8."""
    height, width = rgb.shape[:2]
    scale = min(gsd / CELL_M, 1.0)
    small = (max(round(width * scale), 8), max(round(height * scale), 8))
    coarse = cv2.resize(rgb, small, interpolation=cv2.INTER_AREA)
    cell = gsd * width / small[0]
    green = vegetation_of(coarse)
    found = np.maximum(_guess_crowns(coarse, green, cell, rng), _guess_roofs(coarse, green, cell, rng))
    tall: FloatMap = cv2.resize(found, (width, height), interpolation=cv2.INTER_LINEAR)
    return tall


def _guess_roofs(rgb: RgbImage, green: ByteMap, cell: float, rng: np.random.Generator) -> FloatMap:
    """(h, w) flat or gabled roofs over surfaces of one colour that fill a rectangle of a building's size."""
    heights = np.zeros(rgb.shape[:2], dtype=np.float32)
    even = cv2.pyrMeanShiftFiltering(np.ascontiguousarray(rgb), 4, 14)
    edge = np.zeros(rgb.shape[:2], dtype=np.float32)
    for channel in cv2.split(even):
        edge = np.maximum(edge, cv2.morphologyEx(channel, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)))
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    for contrast in EDGE_LEVELS:
        inside = ((edge < contrast) & (green < 130)).astype(np.uint8)
        inside = cv2.morphologyEx(inside, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        count, labels, stats, _ = cv2.connectedComponentsWithStats(inside, connectivity=4)
        for label in range(1, count):
            left, top, wide, high, size = stats[label]
            if not ROOF_M2[0] * 0.4 < size * cell * cell < ROOF_M2[1] or size > 0.8 * labels.size:
                continue
            window = (slice(top, top + high), slice(left, left + wide))
            mask = labels[window] == label
            bright = float(grey[window][mask].mean())
            if bright < SHADOW_LEVEL or float((heights[window][mask] > 0).mean()) > 0.3:
                continue
            if bright < BRIGHT_LEVEL and size * cell * cell > PAVED_M2 and rng.uniform() < 0.85:
                continue
            _raise_roof(heights, mask.astype(np.uint8), (left, top), cell, rng)
    return heights


def _raise_roof(
    heights: FloatMap, mask: ByteMap, corner: tuple[int, int], cell: float, rng: np.random.Generator
) -> None:
    """Add a roof over the rectangle around `mask`, which starts at (column, row) `corner`, if it can be a roof."""
    (x, y), sides, turn = cv2.minAreaRect(cv2.findNonZero(mask))
    sides = (sides[0] + 3.0, sides[1] + 3.0)  # the edge detector removed the border of the surface
    short, long = min(sides) * cell, max(sides) * cell
    filled = float(mask.sum() + 1.5 * (sides[0] + sides[1])) / (sides[0] * sides[1])
    if short < MIN_WIDTH_M or long > MAX_ASPECT * short or filled < MIN_FILL or short * long < ROOF_M2[0]:
        return
    if rng.uniform() < 0.12:
        return
    storeys = rng.geometric(0.6 if short * long < 400 else 0.3)
    eaves = min(float(storeys), 9.0) * 2.9 * rng.uniform(0.8, 1.2)
    rise = 0.0 if short > 18 or rng.uniform() < 0.35 else short / 2 * rng.uniform(0.25, 0.7)
    x, y = x + corner[0], y + corner[1]
    reach = math.hypot(*sides) / 2 + 1
    rows, columns = heights.shape
    left, right = max(int(x - reach), 0), min(int(x + reach) + 2, columns)
    top, bottom = max(int(y - reach), 0), min(int(y + reach) + 2, rows)
    across, down = np.meshgrid(np.arange(left, right) - x, np.arange(top, bottom) - y)
    sine, cosine = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    along = np.abs(cosine * across + sine * down) / (sides[0] / 2)
    aside = np.abs(cosine * down - sine * across) / (sides[1] / 2)
    slope = 1 - (aside if sides[0] >= sides[1] else along)
    part = heights[top:bottom, left:right]
    roof = np.where((along <= 1) & (aside <= 1), eaves + rise * slope, 0.0)
    np.maximum(part, roof.astype(np.float32), out=part)


def _guess_crowns(rgb: RgbImage, green: ByteMap, cell: float, rng: np.random.Generator) -> FloatMap:
    """(h, w) domes over dark green."""
    grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (3, 3), 0)
    dark = ((green > 60) & (grey < CROWN_LEVEL)).astype(np.uint8)
    dark = cv2.morphologyEx(dark, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3)))
    rim = cv2.distanceTransform(dark, cv2.DIST_L2, 3) * np.float32(cell)
    noise = cv2.resize(
        rng.uniform(0.6, 1.3, (rgb.shape[0] // 12 + 2, rgb.shape[1] // 12 + 2)).astype(np.float32),
        rgb.shape[1::-1],
        interpolation=cv2.INTER_LINEAR,
    )
    tallest = rng.uniform(5.0, 12.0)
    crown: NDArray[np.float32] = np.where(
        dark > 0, np.minimum(1.5 + 2.2 * np.sqrt(rim * 2.0), tallest) * noise, np.float32(0.0)
    ).astype(np.float32)
    return crown
