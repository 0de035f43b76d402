"""The colour of each hit: ground or synthetic facade, season of vegetation, sun, cast shadows and haze."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.worlds.appearance import Appearance
from skypart.worlds.ground import NO_ANGLE, FloatMap, Ground, sample, sample_points
from skypart.worlds.ray_casting import Hits

BAKED_RELIGHT = 0.3
"""Strength of the simulated light on a photo, which already contains real light."""
FLOOR_M, WINDOW_M = 3.2, 2.6
HAZE_COLOUR = np.array([0.74, 0.79, 0.85], dtype=np.float32)


class Lighting:
    """Sunlight over one ground: its direction, and the height below which a point is in shadow."""

    def __init__(self, ground: Ground, appearance: Appearance) -> None:
        azimuth, elevation = (math.radians(angle) for angle in appearance.sun)
        self.appearance = appearance
        self.ground = ground
        self.sun = np.array(
            [math.cos(elevation) * math.sin(azimuth), math.cos(elevation) * math.cos(azimuth), math.sin(elevation)],
            dtype=np.float32,
        )
        self.shadow_gsd = ground.gsd * 2
        self.shadow_top = _shadow_heights(ground, azimuth, elevation)

    def illuminate(self, hits: Hits, slopes: FloatMap) -> FloatMap:
        """Light on each hit, 1 = level ground in the sun. slopes: (n, n, 2) rise to the east and north."""
        east, north = slopes[:, :, 0], slopes[:, :, 1]
        up = np.where(hits.wall, np.float32(0.05), np.float32(1.0))
        length = np.sqrt(east * east + north * north + up * up)
        facing = (-east * self.sun[0] - north * self.sun[1] + up * self.sun[2]) / np.maximum(length, np.float32(1e-6))
        facing = np.clip(facing / max(float(self.sun[2]), 0.35), 0.0, 1.5)
        top = sample(self.shadow_top, self.shadow_gsd, hits.x, hits.y).astype(np.float32)
        lit = np.clip((hits.z - top) * np.float32(0.8) + np.float32(1.1), 0.0, 1.0)
        direct = np.float32(self.appearance.direct)
        light: FloatMap = (1 - direct) + direct * facing * lit
        if self.ground.baked:
            mild = 1.0 + (light - 1.0) * np.float32(BAKED_RELIGHT)
            return np.where(hits.wall, 0.5 * (light + mild), mild)
        return light


def _shadow_heights(ground: Ground, azimuth: float, elevation: float) -> FloatMap:
    """At half size, for each cell, the height up to which it is in the shadow of something towards the sun.

    Doubling: what shades within 2k cells is what shades within k, here or k cells towards the sun.
    """
    top: FloatMap = cv2.resize(ground.heights, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    cell = ground.gsd * 2
    relief = min(float(top.max() - top.min()), 80.0)
    reach = relief / math.tan(elevation) / cell
    shaded, step = top.copy(), 1.0
    # The first shift excludes the cell itself, so that a roof does not shade itself.
    shaded = _towards_sun(top, azimuth, elevation, 1.0, cell)
    while step < reach:
        shaded = np.maximum(shaded, _towards_sun(shaded, azimuth, elevation, step, cell))
        step *= 2
    return shaded


def _towards_sun(top: FloatMap, azimuth: float, elevation: float, step: float, cell: float) -> FloatMap:
    """The map moved by `step` cells away from the sun and lowered by the descent of the ray over that distance."""
    matrix = np.array([[1.0, 0.0, step * math.sin(azimuth)], [0.0, 1.0, -step * math.cos(azimuth)]])
    moved: FloatMap = cv2.warpAffine(
        top, matrix, top.shape[::-1], flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REFLECT_101
    )
    return moved - np.float32(step * cell * math.tan(elevation))


def colour_hits(ground: Ground, hits: Hits, lighting: Lighting, pixel_m: float | FloatMap) -> FloatMap:
    """Scene colours (n, n, 3) float32, 1 = white. pixel_m: ground metres per pixel, for the level of detail."""
    appearance = lighting.appearance
    read = _ground_colour(ground, hits, pixel_m)
    slopes = sample(ground.slopes, ground.gsd, hits.x, hits.y).astype(np.float32)
    slopes = (slopes - np.float32(128)) * np.float32(2 / 127)
    if hits.wall.any():
        _paint_walls(ground, hits, slopes, read)
    light = lighting.illuminate(hits, slopes) * np.float32(1 / 255)
    clear = _transmittance(hits, appearance)
    # Channel by channel: numpy is several times slower on a last axis of length 3.
    planes = []
    for channel in range(3):
        plane = read[:, :, channel] * light
        if appearance.season[channel] != 1.0:
            plane *= 1 + read[:, :, 3] * np.float32((appearance.season[channel] - 1) / 255)
        if appearance.haze:
            plane = HAZE_COLOUR[channel] + (plane - HAZE_COLOUR[channel]) * clear
        planes.append(plane)
    image: FloatMap = cv2.merge(planes)
    if hits.sky.any():
        image[hits.sky] = HAZE_COLOUR
    return image


def _transmittance(hits: Hits, appearance: Appearance) -> FloatMap | np.float32:
    """Fraction of each hit's light that passes the haze; for satellites it is the same everywhere."""
    if hits.distance.any():
        clear: FloatMap = np.exp(-np.float32(appearance.haze) * np.hypot(hits.distance, np.float32(150)))
        return clear
    return np.float32(1 - appearance.haze)


def _ground_colour(ground: Ground, hits: Hits, pixel_m: float | FloatMap) -> NDArray[np.uint8]:
    """Colour and vegetation, (n, n, 4) uint8, sampled at the level of detail that fits the pixel size."""
    limits = [ground.gsd * np.sqrt(2.0), ground.gsd * np.sqrt(8.0)]
    level = np.digitize(np.asarray(pixel_m), limits)
    wanted = np.flatnonzero(np.bincount(np.atleast_1d(level).ravel(), minlength=3))
    read: NDArray[np.uint8] | None = None
    for value in wanted:
        at_level = sample(ground.colour_levels[value], ground.gsd * 2 ** int(value), hits.x, hits.y).astype(np.uint8)
        if read is None:
            read = at_level
        else:
            cv2.copyTo(at_level, (level == value).astype(np.uint8), read)
    assert read is not None
    return read


def _paint_walls(ground: Ground, hits: Hits, slopes: FloatMap, image: NDArray[np.uint8]) -> None:
    """Paint facades with floors and windows on the wall pixels of (n, n, 4) `image`, in place."""
    rows, columns = np.nonzero(hits.wall)
    inner_x, inner_y, x, y = (part[rows, columns] for part in (hits.inner_x, hits.inner_y, hits.x, hits.y))
    colour = sample_points(ground.facades, ground.gsd, inner_x, inner_y, nearest=True).astype(np.float32)
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
    image[rows, columns, :3] = (colour * shade[:, None]).astype(np.uint8)
