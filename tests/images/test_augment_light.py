from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images.augment import add_dusk, add_haze, add_night

Light = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]


def ground(level: float = 120.0, edge: int = 64) -> NDArray[np.float32]:
    """Grey ground with a brighter half."""
    pixels = np.full((edge, edge, 3), level, dtype=np.float32)
    pixels[:, edge // 2 :] += 60
    return pixels


def many(light: Light, pixels: NDArray[np.float32], count: int = 60) -> NDArray[np.float32]:
    return np.stack([light(pixels, np.random.default_rng(seed)) for seed in range(count)])


@pytest.mark.parametrize("light", [add_haze, add_dusk, add_night])
def test_light_depends_only_on_its_generator(light: Light) -> None:
    pixels = ground()
    before = pixels.copy()
    one, again, other = (light(pixels, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert one.shape == pixels.shape and one.dtype == np.float32 and np.any(one != other)
    np.testing.assert_array_equal(pixels, before)


def test_haze_brightens_and_reduces_contrast() -> None:
    hazy = many(add_haze, ground(60.0))
    assert hazy.mean() > 100
    halves = hazy[:, :, 32:].mean(axis=(1, 2, 3)) - hazy[:, :, :32].mean(axis=(1, 2, 3))
    assert np.median(halves) < 55


def test_dusk_and_night_are_dark_and_still_show_the_ground() -> None:
    for light, most in ((add_dusk, 80.0), (add_night, 90.0)):
        dark = many(light, ground())
        assert np.median(dark.mean(axis=(1, 2, 3))) < most
        halves = dark[:, :, 32:].mean(axis=(1, 2, 3)) - dark[:, :, :32].mean(axis=(1, 2, 3))
        assert (halves > 1).mean() > 0.8


def test_few_or_many_lamps_glow_at_night() -> None:
    dark = np.clip(many(add_night, ground(10.0)), 0, 255)
    peaks = dark.max(axis=(1, 2, 3))
    assert (peaks > 150).mean() > 0.9, "lamps glow although the ground is black"
    shining = (dark.max(axis=3) > 120).mean(axis=(1, 2))
    assert shining.min() < 0.004 and shining.max() > 0.02


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 2)])
def test_images_of_any_shape(shape: tuple[int, int]) -> None:
    for light in (add_haze, add_dusk, add_night):
        assert np.isfinite(light(np.full((*shape, 3), 90, dtype=np.float32), np.random.default_rng(0))).all()
