"""Guessed heights: roofs and crowns where a image shows them, nothing elsewhere; maps that have heights keep them."""

import numpy as np
import pytest

from skypart.worlds.ground import FloatMap
from skypart.worlds.height_guess import guess_heights, with_guessed_heights
from tests.worlds.conftest import flat_world

ROAD, ROOF, GRASS, TREE = (90, 90, 95), (190, 180, 170), (150, 175, 120), (50, 90, 40)


def _street(gsd: float = 0.6) -> np.ndarray:
    """150 x 150 m: a road, four roofs of 12 x 18 m, a grove of 30 x 30 m, grass; with a camera's noise."""
    edge = round(150 / gsd)
    image = np.empty((edge, edge, 3), dtype=np.float32)
    image[:] = GRASS

    def paint(left: float, top: float, wide: float, high: float, colour: tuple[int, int, int]) -> None:
        rows, columns = ((round(a / gsd), round((a + b) / gsd)) for a, b in ((top, high), (left, wide)))
        image[slice(*rows), slice(*columns)] = colour

    paint(0, 60, 150, 10, ROAD)
    for index in range(4):
        paint(10 + 35 * index, 35, 18, 12, ROOF)
    paint(20, 90, 30, 30, TREE)
    noise = np.random.default_rng(0).normal(0, 2.0, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def _at(heights: FloatMap, x: float, y: float, gsd: float) -> float:
    return float(heights[round(y / gsd), round(x / gsd)])


@pytest.mark.parametrize("gsd", [0.15, 0.6, 1.0])
def test_roofs_and_crowns_get_heights_and_roads_and_grass_do_not(gsd: float) -> None:
    roofs = []
    for seed in range(3):  # a roof may be passed over
        heights = guess_heights(_street(gsd), gsd, np.random.default_rng(seed))
        assert heights.shape == _street(gsd).shape[:2] and heights.dtype == np.float32
        roofs += [_at(heights, 19 + 35 * index, 41, gsd) for index in range(4)]
        assert _at(heights, 35, 105, gsd) > 2.5, "grove"
        assert _at(heights, 75, 65, gsd) == 0 and _at(heights, 120, 120, gsd) == 0, "road, grass"
        assert heights.max() < 45
    assert np.mean(np.array(roofs) > 2) > 0.7
    assert len(np.unique(np.round(roofs, 1))) > 5, "heights differ"


def test_the_same_seed_gives_the_same_heights() -> None:
    first, again, other = (guess_heights(_street(), 0.6, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_all_dates_of_a_flat_world_get_the_same_heights_over_level_terrain() -> None:
    world = with_guessed_heights(flat_world(_street(), gsd=0.6), np.random.default_rng(0))
    assert world.drone.heights.max() > 3 and not world.drone.terrain.any()
    assert world.height_at(19, -41) == 0 and world.height_at(35, -105, terrain=False) > 2
    assert (world.drone.wall_angle != 255).any(), "walls have windows"
    other = flat_world(_street()[::-1].copy(), gsd=0.6)
    both = with_guessed_heights(
        type(world)("two", [other.dates[0], flat_world(_street(), gsd=0.6).dates[0]], (0.0, 0.0), 32632),
        np.random.default_rng(0),
    )
    assert np.array_equal(both.satellite.heights, both.drone.heights)


def test_measured_heights_are_kept() -> None:
    heights = np.zeros(_street().shape[:2], dtype=np.float32)
    heights[10:30, 10:30] = 7.0
    world = flat_world(_street(), heights, gsd=0.6)
    assert with_guessed_heights(world, np.random.default_rng(0)) is world


@pytest.mark.parametrize("edge", [8, 9, 40])
def test_tiny_and_blank_images_stay_flat(edge: int) -> None:
    blank = np.full((edge, edge, 3), 128, dtype=np.uint8)
    assert not guess_heights(blank, 0.6, np.random.default_rng(0)).any()
