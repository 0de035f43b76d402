"""Colour of each hit: the ground or a synthetic facade, the season on vegetation, sun, cast shadows and haze."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.worlds.cast import Hits
from skypart.worlds.ground import NO_ANGLE, FloatMap, Ground, sample, sample_points
from skypart.worlds.look import Look

BAKED_RELIGHT = 0.3
"""Share of our own light on a photo that has its light in it already."""
FLOOR_M, WINDOW_M = 3.2, 2.6
HAZE_COLOUR = np.array([0.74, 0.79, 0.85], dtype=np.float32)


class Lighting:
    """Sunlight over one ground: direction, and the height below which a point lies in shadow."""

    def __init__(self, ground: Ground, look: Look) -> None:
        azimuth, elevation = (math.radians(angle) for angle in look.sun)
        self.look = look
        self.ground = ground
        self.sun = np.array(
            [math.cos(elevation) * math.sin(azimuth), math.cos(elevation) * math.cos(azimuth), math.sin(elevation)],
            dtype=np.float32,
        )
        self.shadow_gsd = ground.gsd * 2
        self.shadow_top = _shadow_heights(ground, azimuth, elevation)

    def shine(self, hits: Hits, slopes: FloatMap) -> FloatMap:
        """Light on each hit, 1 = level ground in the sun. slopes: (n, n, 2) rise to the east and north."""
        east, north = slopes[:, :, 0], slopes[:, :, 1]
        up = np.where(hits.wall, np.float32(0.05), np.float32(1.0))
        length = np.sqrt(east * east + north * north + up * up)
        facing = (-east * self.sun[0] - north * self.sun[1] + up * self.sun[2]) / np.maximum(length, np.float32(1e-6))
        facing = np.clip(facing / max(float(self.sun[2]), 0.35), 0.0, 1.5)
        top = sample(self.shadow_top, self.shadow_gsd, hits.x, hits.y).astype(np.float32)
        lit = np.clip((hits.z - top) * np.float32(0.8) + np.float32(1.1), 0.0, 1.0)
        direct = np.float32(self.look.direct)
        light: FloatMap = (1 - direct) + direct * facing * lit
        if self.ground.baked:
            mild = 1.0 + (light - 1.0) * np.float32(BAKED_RELIGHT)
            return np.where(hits.wall, 0.5 * (light + mild), mild)
        return light


def _shadow_heights(ground: Ground, azimuth: float, elevation: float) -> FloatMap:
    """At half size, for each cell the height up to which something towards the sun throws its shadow.

    Doubling: what shades within 2k cells is what shades within k, here or k cells towards the sun.
    """
    top: FloatMap = cv2.resize(ground.heights, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    cell = ground.gsd * 2
    relief = min(float(top.max() - top.min()), 80.0)
    reach = relief / math.tan(elevation) / cell
    shaded, step = top.copy(), 1.0
    # The first shift leaves the cell itself out, so that a roof does not shade itself.
    shaded = _towards_sun(top, azimuth, elevation, 1.0, cell)
    while step < reach:
        shaded = np.maximum(shaded, _towards_sun(shaded, azimuth, elevation, step, cell))
        step *= 2
    return shaded


def _towards_sun(top: FloatMap, azimuth: float, elevation: float, step: float, cell: float) -> FloatMap:
    """The map moved by `step` cells away from the sun and lowered by the ray's fall over that way."""
    matrix = np.array([[1.0, 0.0, step * math.sin(azimuth)], [0.0, 1.0, -step * math.cos(azimuth)]])
    moved: FloatMap = cv2.warpAffine(
        top, matrix, top.shape[::-1], flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REFLECT_101
    )
    return moved - np.float32(step * cell * math.tan(elevation))


def colour_hits(ground: Ground, hits: Hits, lighting: Lighting, pixel_m: float | FloatMap) -> FloatMap:
    """Scene colours (n, n, 3) float32, 1 = white. pixel_m: ground metres a pixel covers, to choose the level."""
    look = lighting.look
    picture, vegetation = _ground_colour(ground, hits, pixel_m)
    slopes = sample(ground.slopes, ground.gsd, hits.x, hits.y).astype(np.float32)
    slopes = (slopes - np.float32(128)) * np.float32(2 / 127)
    if hits.wall.any():
        _paint_walls(ground, hits, slopes, picture)
    gain = np.asarray(look.season, dtype=np.float32) - 1.0
    picture *= 1.0 + vegetation[:, :, None] * gain
    picture *= lighting.shine(hits, slopes)[:, :, None]
    if look.haze:
        if hits.distance.any():
            clear = np.exp(-np.float32(look.haze) * np.hypot(hits.distance, np.float32(150)))
        else:
            clear = np.full(hits.z.shape, 1 - look.haze, dtype=np.float32)
        picture = HAZE_COLOUR + (picture - HAZE_COLOUR) * clear[:, :, None]
    if hits.sky.any():
        picture[hits.sky] = HAZE_COLOUR
    return picture


def _ground_colour(ground: Ground, hits: Hits, pixel_m: float | FloatMap) -> tuple[FloatMap, FloatMap]:
    """Colour (n, n, 3) and vegetation (n, n), 0 to 1, read at the level of detail that fits the pixel."""
    level = np.clip(np.round(np.log2(np.maximum(np.asarray(pixel_m), 1e-6) / ground.gsd)), 0, 2)
    wanted = sorted({int(value) for value in np.unique(level)})
    read: NDArray[np.generic] | None = None
    for value in wanted:
        at_level = sample(ground.colour_levels[value], ground.gsd * 2**value, hits.x, hits.y)
        read = at_level if read is None else np.where((level == value)[:, :, None], at_level, read)
    assert read is not None
    colour = read.astype(np.float32) * np.float32(1 / 255)
    return colour[:, :, :3], colour[:, :, 3]


def _paint_walls(ground: Ground, hits: Hits, slopes: FloatMap, picture: FloatMap) -> None:
    """Put facade colours with floors and windows on the wall pixels of `picture`, in place."""
    rows, columns = np.nonzero(hits.wall)
    inner_x, inner_y, x, y = (part[rows, columns] for part in (hits.inner_x, hits.inner_y, hits.x, hits.y))
    colour = sample_points(ground.facades, ground.gsd, inner_x, inner_y, nearest=True).astype(np.float32) / 255
    angle = sample_points(ground.wall_angle, ground.gsd, inner_x, inner_y, nearest=True)
    earth = sample_points(ground.terrain, ground.gsd, x, y).astype(np.float32)
    above = hits.z[rows, columns] - earth
    turn = np.radians(angle.astype(np.float32))
    cos, sin = np.cos(turn), np.sin(turn)
    slope = slopes[rows, columns]
    across = np.abs(slope[:, 0] * cos + slope[:, 1] * sin) > np.abs(slope[:, 1] * cos - slope[:, 0] * sin)
    along = np.where(across, y * cos - x * sin, x * cos + y * sin)
    floor, bay = np.mod(above / FLOOR_M, 1.0), np.mod(along / WINDOW_M, 1.0)
    window = (floor > 0.3) & (floor < 0.75) & (bay > 0.22) & (bay < 0.7) & (angle != NO_ANGLE)
    shade = np.where(window, np.float32(0.55), np.float32(1.0))
    shade *= np.clip(0.75 + 0.03 * above, 0.75, 1.0).astype(np.float32)
    picture[rows, columns] = colour * shade[:, None]
