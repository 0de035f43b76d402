"""The two cameras against the pinhole equation and plain geometry."""

import math

import cv2
import numpy as np
import pytest

from skypart.worlds import Camera, Pose, render_drone, render_satellite
from skypart.worlds.ray_casting import cast_orthographic, cast_pinhole
from tests.worlds.conftest import flat_world

TOWER_M = 40.0


def _tower(cells_a_metre: int) -> np.ndarray:
    """A tower of 4 x 4 m in the middle of a square of 400 m."""
    heights = np.zeros((400 * cells_a_metre, 400 * cells_a_metre), dtype=np.float32)
    heights[198 * cells_a_metre : 202 * cells_a_metre, 198 * cells_a_metre : 202 * cells_a_metre] = TOWER_M
    return heights


@pytest.mark.parametrize(("tilt", "azimuth"), [(35.0, 0.0), (50.0, 120.0), (75.0, 300.0), (90.0, 45.0)])
def test_hits_project_back_to_their_own_pixel(tilt: float, azimuth: float) -> None:
    rng = np.random.default_rng(1)
    heights = rng.uniform(0, 12, (80, 80)).repeat(10, 0).repeat(10, 1).astype(np.float32)
    world = flat_world(np.zeros((800, 800, 3), np.uint8), heights)
    camera = Camera.at(world, Pose((200.0, -200.0), 120.0, tilt, azimuth, 45.0), 96)
    hits = cast_pinhole(world.drone, camera)
    points = np.stack([hits.x, hits.y, hits.z], axis=-1).reshape(-1, 3).astype(np.float64)
    pixels = camera.project(points).reshape(96, 96, 2)
    rows, columns = np.mgrid[0:96, 0:96] + 0.5
    assert np.abs(pixels[..., 0] - columns).max() < 0.02
    assert np.abs(pixels[..., 1] - rows).max() < 0.02


@pytest.mark.parametrize("azimuth", [0.0, 77.0, 200.0])
def test_top_and_base_of_a_tower_project_to_the_right_pixels(azimuth: float) -> None:
    world = flat_world(np.zeros((1600, 1600, 3), np.uint8), _tower(4), gsd=0.25)
    camera = Camera.at(world, Pose((200.0, -200.0), 150.0, 45.0, azimuth, 45.0), 400)
    hits = cast_pinhole(world.drone, camera)
    # All eight corners of the box; the seen tower fills their hull, to within a pixel.
    corners = np.array([[x, y, z] for x in (198.0, 202.0) for y in (-202.0, -198.0) for z in (0.0, TOWER_M)])
    hull = cv2.convexHull(camera.project(corners).astype(np.float32))
    for row in range(100, 230):
        for column in range(170, 230):
            inside = cv2.pointPolygonTest(hull, (column + 0.5, row + 0.5), True)
            assert inside < 1.0 or hits.z[row, column] > 0.0
            assert inside > -1.0 or hits.z[row, column] < 0.05


def test_a_wall_hides_the_ground_behind_it() -> None:
    heights = np.zeros((800, 800), dtype=np.float32)
    heights[400:404, :] = 20.0
    rgb = np.zeros((800, 800, 3), np.uint8)
    rgb[:400, :, 0] = 255  # red north of the wall
    world = flat_world(rgb, heights)
    # Looking north at 45 degrees, a 20 m wall hides the 20 m of ground behind it.
    camera = Camera.at(world, Pose((200.0, -200.0), 100.0, 45.0, 0.0, 40.0), 300)
    hits = cast_pinhole(world.drone, camera)
    middle = hits.y[:, 150]
    ground = middle[hits.z[:, 150] < 0.3]
    behind = ground[ground > -200.0]
    assert behind.min() > -200.0 + 0.8 * 20.0
    assert hits.wall[:, 150].any() and (hits.z[:, 150][hits.wall[:, 150]] < 20.3).all()


def test_a_nadir_view_of_flat_ground_equals_the_orthographic_crop() -> None:
    rng = np.random.default_rng(3)
    coarse = rng.integers(0, 255, (40, 40, 3)).astype(np.uint8)
    world = flat_world(coarse.repeat(20, 0).repeat(20, 1))
    altitude, fov = 120.0, 50.0
    metres = 2 * altitude * math.tan(math.radians(fov / 2))
    drone = render_drone(world, Pose((200.0, -200.0), altitude, 90.0, 0.0, fov), 128).astype(int)
    satellite = render_satellite(world, (200.0, -200.0), metres, 128).astype(int)
    assert np.abs(drone - satellite).mean() < 1.0


def test_a_rotated_camera_rotates_the_image() -> None:
    rgb = np.zeros((400, 400, 3), np.uint8)
    rgb[:, 200:] = 255  # white in the east
    world = flat_world(rgb)
    north_up = render_drone(world, Pose((100.0, -100.0), 80.0, 90.0, 0.0), 64)
    east_up = render_drone(world, Pose((100.0, -100.0), 80.0, 90.0, 90.0), 64)
    assert north_up[:, 40:].mean() > 200 > 50 > north_up[:, :24].mean()
    assert east_up[:24].mean() > 200 > 50 > east_up[40:].mean()


def test_a_leaning_satellite_shifts_roofs_and_not_the_ground() -> None:
    heights = _tower(2)
    world = flat_world(np.zeros((800, 800, 3), np.uint8), heights)
    hits = cast_orthographic(world.satellite, (200.0, -200.0), 100.0, 200, (0.2, 0.0))
    rows, columns = np.nonzero(hits.z > TOWER_M - 0.5)
    assert abs(columns.mean() * 0.5 + 0.25 - (50 + 0.2 * TOWER_M)) < 0.6
    assert abs(rows.mean() * 0.5 + 0.25 - 50) < 0.6
    assert np.abs(hits.x[:, 0] - 150.25).max() < 0.01
