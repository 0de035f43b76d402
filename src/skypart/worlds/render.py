"""Render the two views of a place: a drone's with a pinhole camera, a satellite's with parallel rays."""

import math
from dataclasses import replace

import cv2
import numpy as np

from skypart.datasets.rendering import Pose
from skypart.images.decode import RgbImage
from skypart.worlds.appearance import NEUTRAL, Appearance, expose
from skypart.worlds.camera import Camera
from skypart.worlds.ground import Ground, World
from skypart.worlds.lighting import Lighting, colour_hits
from skypart.worlds.ray_casting import cast_orthographic, cast_pinhole

SUPERSAMPLE = 1.5
"""Rays per pixel edge; the image is averaged from them."""


def render_drone(
    world: World,
    pose: Pose,
    size: int = 512,
    appearance: Appearance = NEUTRAL,
    rng: np.random.Generator | None = None,
    lighting: Lighting | None = None,
    supersample: float = SUPERSAMPLE,
) -> RgbImage:
    """Image of `world` from a drone at `pose`, (size, size, 3) uint8.

    rng: draws the sensor noise. lighting: `Lighting(world.drone, appearance)`, shared by the images of one flight.
    """
    ground = world.drone
    rng = rng or np.random.default_rng(0)
    lighting = lighting or Lighting(ground, appearance)
    fine = max(round(size * supersample), size)
    camera = Camera.at(world, pose, fine)
    hits = cast_pinhole(ground, camera)
    slant = np.hypot(hits.distance, np.float32(camera.centre[2]) - hits.z)
    light = colour_hits(ground, hits, lighting, slant * np.float32(1 / camera.focal))
    if fine != size:
        light = cv2.resize(light, (size, size), interpolation=cv2.INTER_AREA)
    return expose(light, appearance, rng)


def render_satellite(
    world: World,
    centre: tuple[float, float],
    metres: float,
    size: int = 512,
    appearance: Appearance = NEUTRAL,
    rng: np.random.Generator | None = None,
    ground: Ground | None = None,
    lighting: Lighting | None = None,
) -> RgbImage:
    """Satellite image of the square of `metres` around `centre` (local metres), north up, (size, size, 3) uint8.

    ground: another date than the satellite's, for instance `world.old_satellite`.
    """
    ground = ground or world.satellite
    rng = rng or np.random.default_rng(0)
    lighting = lighting or Lighting(ground, appearance)
    fine = math.ceil(size * SUPERSAMPLE)
    hits = cast_orthographic(ground, centre, metres, fine, appearance.lean)
    light = colour_hits(ground, hits, lighting, metres / fine)
    return expose(cv2.resize(light, (size, size), interpolation=cv2.INTER_AREA), appearance, rng)


def render_map(world: World, appearance: Appearance = NEUTRAL, ground: Ground | None = None) -> RgbImage:
    """The whole satellite map of `world` on its own grid, without lean, (h, w, 3) uint8."""
    ground = ground or world.satellite
    appearance = replace(appearance, lean=(0.0, 0.0))
    lighting = Lighting(ground, appearance)
    rng = np.random.default_rng(0)
    edge = 768
    rows, columns = world.shape
    image = np.empty((rows, columns, 3), dtype=np.uint8)
    for top in range(0, rows, edge):
        for left in range(0, columns, edge):
            centre = ((left + edge / 2) * world.gsd, -(top + edge / 2) * world.gsd)
            hits = cast_orthographic(ground, centre, edge * world.gsd, edge, (0.0, 0.0))
            tile = expose(colour_hits(ground, hits, lighting, world.gsd), appearance, rng)
            part = image[top : top + edge, left : left + edge]
            part[:] = tile[: part.shape[0], : part.shape[1]]
    return image
