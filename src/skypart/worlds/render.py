"""The two pictures of a place: a drone's through a pinhole, a satellite's by parallel rays."""

import math
from dataclasses import replace

import cv2
import numpy as np

from skypart.datasets.rendering import Pose
from skypart.images.decode import RgbImage
from skypart.worlds.camera import Camera
from skypart.worlds.cast import cast_orthographic, cast_pinhole
from skypart.worlds.ground import Ground, World
from skypart.worlds.look import PLAIN, Look, expose
from skypart.worlds.shade import Lighting, colour_hits

SUPERSAMPLE = 1.5
"""Rays a pixel edge; the picture is averaged down from them."""


def render_drone(
    world: World,
    pose: Pose,
    size: int = 512,
    look: Look = PLAIN,
    rng: np.random.Generator | None = None,
    lighting: Lighting | None = None,
    supersample: float = SUPERSAMPLE,
) -> RgbImage:
    """What a drone at `pose` sees of `world`, (size, size, 3) uint8.

    rng: draws the sensor's noise. lighting: `Lighting(world.drone, look)`, to be shared by pictures of one flight.
    """
    ground = world.drone
    rng = rng or np.random.default_rng(0)
    lighting = lighting or Lighting(ground, look)
    fine = max(round(size * supersample), size)
    camera = Camera.at(world, pose, fine)
    hits = cast_pinhole(ground, camera)
    slant = np.hypot(hits.distance, np.float32(camera.centre[2]) - hits.z)
    light = colour_hits(ground, hits, lighting, slant * np.float32(1 / camera.focal))
    if fine != size:
        light = cv2.resize(light, (size, size), interpolation=cv2.INTER_AREA)
    return expose(light, look, rng)


def render_satellite(
    world: World,
    centre: tuple[float, float],
    metres: float,
    size: int = 512,
    look: Look = PLAIN,
    rng: np.random.Generator | None = None,
    ground: Ground | None = None,
    lighting: Lighting | None = None,
) -> RgbImage:
    """The satellite's picture of the square of `metres` around `centre` (local metres), north up, (size, size, 3).

    ground: another date than the satellite's own, for instance `world.old_satellite`.
    """
    ground = ground or world.satellite
    rng = rng or np.random.default_rng(0)
    lighting = lighting or Lighting(ground, look)
    fine = math.ceil(size * SUPERSAMPLE)
    hits = cast_orthographic(ground, centre, metres, fine, look.lean)
    light = colour_hits(ground, hits, lighting, metres / fine)
    return expose(cv2.resize(light, (size, size), interpolation=cv2.INTER_AREA), look, rng)


def render_map(world: World, look: Look = PLAIN, ground: Ground | None = None) -> RgbImage:
    """The whole satellite map of `world` without lean, at its own grid, (h, w, 3) uint8."""
    ground = ground or world.satellite
    look = replace(look, lean=(0.0, 0.0))
    lighting = Lighting(ground, look)
    rng = np.random.default_rng(0)
    edge = 768
    rows, columns = world.shape
    picture = np.empty((rows, columns, 3), dtype=np.uint8)
    for top in range(0, rows, edge):
        for left in range(0, columns, edge):
            centre = ((left + edge / 2) * world.gsd, -(top + edge / 2) * world.gsd)
            hits = cast_orthographic(ground, centre, edge * world.gsd, edge, (0.0, 0.0))
            tile = expose(colour_hits(ground, hits, lighting, world.gsd), look, rng)
            part = picture[top : top + edge, left : left + edge]
            part[:] = tile[: part.shape[0], : part.shape[1]]
    return picture
