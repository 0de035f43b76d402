"""Where each pixel's ray first hits the height field, for a pinhole camera or a satellite.

For the pinhole camera, the ground is sampled along one profile per azimuth. The ground point at distance r is seen at
slope (height - camera height) / r, and it is visible if that slope is larger than all before it. So a sorted search in
the running maximum of the slope gives the hit of a pixel.
"""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.worlds.camera import Camera
from skypart.worlds.ground import FloatMap, Ground, sample

WALL_RISE = 2.0
"""Rise over run from which a surface counts as a wall."""
HORIZON = -0.035
"""Slope of a ray above which the pixel is sky."""
MAX_ROWS = 8192


@dataclass(frozen=True)
class Hits:
    """First hit of each pixel, (n, n) maps in local metres.

    inner_x, inner_y: for walls, a point just behind the wall, on the roof it carries; else equal to x, y.
    distance: horizontal distance from the camera. wall, sky: bool.
    """

    x: FloatMap
    y: FloatMap
    z: FloatMap
    inner_x: FloatMap
    inner_y: FloatMap
    distance: FloatMap
    wall: NDArray[np.bool_]
    sky: NDArray[np.bool_]


def cast_pinhole(ground: Ground, camera: Camera) -> Hits:
    """First hits of all pixels of `camera` over `ground`."""
    angle, slope, run = camera.rays()
    low, high = ground.height_range
    cx, cy, cz = camera.centre
    sky = slope > HORIZON
    down = np.minimum(slope, np.float32(HORIZON))
    start = max((cz - high) / -float(down.min()), 0.25 * ground.gsd) * 0.98
    stop = (cz - low) / -float(down.max()) * 1.01 + 2 * ground.gsd
    radii = _radii(start, min(stop, 2500.0), cz - low, camera.focal, ground.gsd)

    first = float(angle.min())
    rows = min(max(math.ceil((float(angle.max()) - first) * camera.focal * float(run.max())), 2), MAX_ROWS)
    step = (float(angle.max()) - first) / (rows - 1)
    headings = math.radians(camera.azimuth) + first + step * np.arange(rows, dtype=np.float64)
    seen = _profiles(ground, (cx, cy, cz), headings, radii)
    row = np.round((angle - np.float32(first)) * np.float32(1 / step)).astype(np.int64)
    index = _first_above(seen, row, down)
    missed = index >= len(radii)
    np.clip(index, 1, len(radii) - 1, out=index)
    flat = row * len(radii) + index
    after, before = seen.ravel()[flat], seen.ravel()[flat - 1]
    share = np.clip((down - before) / np.maximum(after - before, np.float32(1e-9)), 0, 1)
    near, far = radii[index - 1], radii[index]
    distance = near + share * (far - near)
    distance = np.where(missed, np.float32(low - cz) / down, distance)
    tall = after * far - before * near
    wall = (tall > WALL_RISE * (far - near)) & ~missed & ~sky
    heading = angle + np.float32(math.radians(camera.azimuth))
    sin, cos = np.sin(heading), np.cos(heading)
    inner = np.where(wall, far + np.float32(1.2 * ground.gsd), distance)
    return Hits(
        x=np.float32(cx) + distance * sin,
        y=np.float32(cy) + distance * cos,
        z=np.float32(cz) + distance * down,
        inner_x=np.float32(cx) + inner * sin,
        inner_y=np.float32(cy) + inner * cos,
        distance=distance,
        wall=wall,
        sky=sky,
    )


def _radii(start: float, stop: float, altitude: float, focal: float, gsd: float) -> NDArray[np.float32]:
    """Distances at which the ground is sampled: one raster cell apart, or farther where a pixel covers more."""
    radii, reach = [start], start
    while reach < stop:
        reach += max(0.8 * gsd, 0.75 * (reach * reach + altitude * altitude) / (altitude * focal))
        radii.append(reach)
    if len(radii) < 2:
        radii.append(start + gsd)
    return np.asarray(radii, dtype=np.float32)


def _profiles(
    ground: Ground, centre: tuple[float, float, float], headings: NDArray[np.float64], radii: NDArray[np.float32]
) -> FloatMap:
    """Slope at which the ground is seen, (headings, radii): rise over run from the camera's centre."""
    scale = 1 / ground.gsd
    columns = np.outer((np.sin(headings) * scale).astype(np.float32), radii)
    rows = np.outer((np.cos(headings) * -scale).astype(np.float32), radii)
    columns += np.float32(centre[0] * scale - 0.5)
    rows += np.float32(-centre[1] * scale - 0.5)
    seen: FloatMap = cv2.remap(ground.heights, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    seen -= np.float32(centre[2])
    seen *= 1 / radii
    return seen


def _first_above(seen: FloatMap, row: NDArray[np.int64], slope: FloatMap) -> NDArray[np.int64]:
    """For each pixel, the first column of its `row` of `seen` (rows, columns) that is at least `slope`."""
    best = np.maximum.accumulate(seen, axis=1).astype(np.float64)
    floor = float(slope.min()) - 1.0
    np.clip(best, floor, 1.0, out=best)
    stride = 2.0 * (1.0 - floor)
    best += stride * np.arange(len(best))[:, None]
    # Going up an image column, the keys increase and mostly stay in one row, so the search stays in the CPU cache.
    keys = np.ascontiguousarray((slope + stride * row).T[:, ::-1])
    place = np.searchsorted(best.ravel(), keys.ravel()).reshape(keys.shape)[:, ::-1].T
    index: NDArray[np.int64] = np.clip(place - row * seen.shape[1], 0, seen.shape[1])
    return index


def cast_orthographic(
    ground: Ground, centre: tuple[float, float], metres: float, size: int, lean: tuple[float, float], turn: float = 0.0
) -> Hits:
    """Hits of parallel rays on a square of `metres` around `centre`, (size, size).

    lean: horizontal shift (east, north) in the image per metre above the bare earth at the centre, as seen by a
    satellite off the zenith. turn: compass degrees of the image's up direction.
    """
    axis = ((np.arange(size) + 0.5) / size - 0.5) * metres
    sin, cos = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    flat_x = (centre[0] + cos * axis[None, :] - sin * axis[:, None]).astype(np.float32)
    flat_y = (centre[1] - sin * axis[None, :] - cos * axis[:, None]).astype(np.float32)
    heights = sample(ground.heights, ground.gsd, flat_x, flat_y).astype(np.float32)
    base = float(ground.terrain[_cell(ground, centre)])
    amount = math.hypot(*lean)
    z = np.full_like(heights, -np.inf)
    if amount < 1e-4:
        z = heights
    else:
        low, high = _range_near(ground, centre, metres)
        step = max(0.5 * metres / size / amount, 0.25)
        for level in np.arange(low, high + step, step):
            shift_x, shift_y = np.float32(lean[0] * (level - base)), np.float32(lean[1] * (level - base))
            here = sample(ground.heights, ground.gsd, flat_x - shift_x, flat_y - shift_y)
            np.copyto(z, np.float32(level), where=here >= level)
        z = np.where(np.isfinite(z), z, np.float32(base))
    x = flat_x - np.float32(lean[0]) * (z - np.float32(base))
    y = flat_y - np.float32(lean[1]) * (z - np.float32(base))
    top = sample(ground.heights, ground.gsd, x, y).astype(np.float32)
    wall = top > z + np.float32(1.5 + (0.5 * metres / size / amount if amount >= 1e-4 else 0.0))
    away = np.zeros_like(z)
    return Hits(x, y, np.where(wall, z, top), x, y, away, wall, np.zeros(z.shape, dtype=bool))


def _cell(ground: Ground, point: tuple[float, float]) -> tuple[int, int]:
    rows, columns = ground.heights.shape
    row = min(max(int(-point[1] / ground.gsd), 0), rows - 1)
    return row, min(max(int(point[0] / ground.gsd), 0), columns - 1)


def _range_near(ground: Ground, centre: tuple[float, float], metres: float) -> tuple[float, float]:
    """Lowest and highest point of the square of `metres` around `centre`."""
    row, column = _cell(ground, centre)
    half = int(0.8 * metres / ground.gsd) + 1
    part = ground.heights[max(row - half, 0) : row + half, max(column - half, 0) : column + half]
    low, high, _, _ = cv2.minMaxLoc(np.ascontiguousarray(part))
    return float(low), float(high)
