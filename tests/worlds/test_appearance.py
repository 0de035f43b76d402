"""Shadows, season and the camera's response do what they say."""

import math

import numpy as np
import pytest

from skypart import worlds
from skypart.datasets.rendering import Pose
from skypart.worlds import NEUTRAL, Appearance, Lighting, Strengths, render_drone, render_satellite, sample_appearance
from skypart.worlds.appearance import expose
from skypart.worlds.ray_casting import cast_orthographic
from tests.worlds.conftest import flat_world


def test_shadows_follow_the_suns_elevation_and_azimuth() -> None:
    heights = np.zeros((400, 400), dtype=np.float32)
    heights[195:205, 195:205] = 20.0
    world = flat_world(np.full((400, 400, 3), 200, np.uint8), heights)
    world.satellite.baked = False
    appearance = Appearance(sun=(180.0, 45.0), direct=0.7)
    lighting = Lighting(world.satellite, appearance)
    hits = cast_orthographic(world.satellite, (100.0, -100.0), 100.0, 200, (0.0, 0.0))
    light = lighting.illuminate(hits, np.zeros((200, 200, 2), np.float32))
    dark = np.argwhere((light < 0.95) & (hits.z < 1.0))
    # The sun is in the south, so the shadow runs 20 m / tan 45 to the north of the tower.
    assert abs(dark[:, 1].mean() * 0.5 + 0.25 - 50) < 1.0
    length = (95 * 0.5 + 0.0) - dark[:, 0].min() * 0.5
    assert abs(length - 20.0 / math.tan(math.radians(45))) < 2.0
    assert dark[:, 0].max() * 0.5 < 54


def test_season_tints_vegetation_only() -> None:
    world = flat_world(np.full((100, 100, 3), 100, np.uint8))
    world.satellite.vegetation[:, :50] = 255
    image = render_satellite(world, (25.0, -25.0), 40.0, 64, Appearance(season=(1.5, 1.0, 0.5)))
    assert image[:, 5].mean(axis=0)[0] > 140 > 60 > image[:, 5].mean(axis=0)[2]
    assert np.abs(image[:, 60].astype(int) - 100).max() <= 1


def test_strength_zero_leaves_only_sun_and_view() -> None:
    none = Strengths(*[0.0] * 9)
    drone, satellite = (sample_appearance(np.random.default_rng(4), view, none) for view in ("drone", "satellite"))
    for appearance in (drone, satellite):
        assert (
            appearance.season == (1.0, 1.0, 1.0)
            and appearance.gains == (1.0, 1.0, 1.0)
            and appearance.lean == (0.0, 0.0)
        )
        assert (
            appearance.haze == appearance.blur == appearance.noise == appearance.vignette == 0.0
            and appearance.gamma == appearance.contrast == 1.0
        )


def test_higher_strength_varies_more() -> None:
    def spread(amount: float) -> float:
        strengths = Strengths(*[amount] * 9)
        return float(
            np.std([sample_appearance(np.random.default_rng(i), "drone", strengths).gamma for i in range(200)])
        )

    assert spread(2.0) > 1.5 * spread(1.0) > 0.05


def test_a_perfect_camera_keeps_grey_levels() -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16, 1).repeat(3, 2)
    out = expose(ramp, NEUTRAL, np.random.default_rng(0))
    assert np.abs(out[..., 0].ravel().astype(int) - np.arange(256)).max() <= 1


def test_the_same_generator_gives_the_same_image() -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (300, 300, 3)).astype(np.uint8)
    world, appearance = flat_world(rgb), sample_appearance(np.random.default_rng(1), "drone")
    pose = Pose((75.0, -75.0), 60.0, 60.0, 10.0)
    first, second = (render_drone(world, pose, 48, appearance, np.random.default_rng(2)) for _ in range(2))
    other = render_drone(world, pose, 48, appearance, np.random.default_rng(3))
    assert (first == second).all() and (first != other).any()


def test_old_names_still_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"draw_look is now skypart\.worlds\.sample_appearance"):
        assert worlds.draw_look is sample_appearance
    with pytest.warns(DeprecationWarning, match=r"is now skypart\.worlds\.[AN]"):
        assert worlds.Look is Appearance and worlds.PLAIN is NEUTRAL
    with pytest.raises(AttributeError, match="no attribute 'Shine'"):
        worlds.Shine  # noqa: B018
