"""Weak contrast is stretched, strong contrast is left alone."""

import importlib
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images.contrast import CONTRAST_VERSION, GLOBAL_STD, TARGET_BRIGHTNESS, _map_mask, stretch_contrast
from skypart.images.preprocess import Preprocessing, normalise
from skypart.images.weather import corrupt

SIZE = 112


def ground(seed: int = 0) -> NDArray[np.uint8]:
    """An image with strong contrast, (112, 112, 3)."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(20, 236, (14, 14, 3)).repeat(8, axis=0).repeat(8, axis=1)
    noisy: NDArray[np.uint8] = np.clip(blocks + rng.normal(0, 6, blocks.shape), 0, 255).astype(np.uint8)
    return noisy


def hazy(image: NDArray[np.uint8], clear: NDArray[np.float64] | float, air: float = 235.0) -> NDArray[np.uint8]:
    """`image` through haze that lets the share `clear` of its light pass."""
    through: NDArray[np.uint8] = np.rint(image * clear + air * (1 - clear)).astype(np.uint8)
    return through


def correlation(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Correlation of the pixel values of two images."""
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def test_a_clear_image_is_returned_unchanged() -> None:
    image = ground()
    assert stretch_contrast(image) is image


@pytest.mark.parametrize("clear", [0.5, 0.25, 0.15])
def test_uniform_haze_is_removed(clear: float) -> None:
    image = ground()
    lifted = stretch_contrast(hazy(image, clear))
    assert lifted.shape == image.shape and lifted.dtype == np.uint8
    assert correlation(lifted, image) > 0.98
    assert lifted.std(axis=(0, 1)).mean() == pytest.approx(GLOBAL_STD, rel=0.15)
    assert abs(lifted.mean() - TARGET_BRIGHTNESS) < abs(hazy(image, clear).mean() - TARGET_BRIGHTNESS)


def test_dusk_and_uneven_haze_are_reduced() -> None:
    image = ground()
    dusk = np.rint(image * 0.15).astype(np.uint8)
    assert stretch_contrast(dusk).mean() > 2 * dusk.mean() and correlation(stretch_contrast(dusk), image) > 0.98
    across = np.linspace(0.9, 0.12, SIZE)[None, :, None]
    foggy = hazy(image, across)
    assert correlation(foggy, image) < 0.8
    assert correlation(stretch_contrast(foggy), image) > correlation(foggy, image) + 0.1


@pytest.mark.parametrize("value", [0, 128, 255])
def test_blank_images_stay_blank(value: int) -> None:
    lifted = stretch_contrast(np.full((SIZE, SIZE, 3), value, dtype=np.uint8))
    assert (lifted == lifted[0, 0]).all()


def test_black_beyond_a_maps_edge_is_ignored() -> None:
    """The rest looks the same whether or not a part of the image is missing; the missing part stays black."""
    whole = hazy(ground(), 0.2)
    edge = whole.copy()
    edge[:, SIZE // 2 :] = 0
    lifted = stretch_contrast(edge)
    assert (lifted[:, SIZE // 2 :] == 0).all()
    left = np.s_[:, : SIZE // 2]
    assert np.abs(lifted[left].astype(float) - stretch_contrast(whole)[left]).mean() < 12
    assert lifted[left].std() > 0.8 * stretch_contrast(whole)[left].std()
    assert (stretch_contrast(np.where(edge > 0, edge, 0)[..., ::-1].copy())[:, SIZE // 2 :] == 0).all()


def test_black_shadows_of_night_are_stretched_with_the_rest() -> None:
    """Shadows clipped to 0 in a dark photo are scattered, so they are not mistaken for a map's edge."""
    night = np.clip(ground() * 0.12 - 8, 0, 255).astype(np.uint8)
    cut = (night == 0).all(axis=2)
    assert cut.mean() > 0.02
    lifted = stretch_contrast(night)
    assert lifted[cut].min() > 0
    assert correlation(lifted, ground()) > 0.9


def test_a_black_hole_inside_the_image_is_not_a_map_edge() -> None:
    image = hazy(ground(), 0.2)
    image[40:70, 40:70] = 0
    image[0:3, 0:3] = 0
    assert _map_mask(image) is None
    image[:30, :30] = 0
    mask = _map_mask(image)
    assert mask is not None and (mask[:30, :30] == 0).all() and (mask[40:70, 40:70] == 255).all()
    assert (stretch_contrast(image)[:30, :30] == 0).all()


def test_any_shape_deterministic_and_without_side_effects() -> None:
    rng = np.random.default_rng(1)
    for shape in ((14, 14, 3), (40, 224, 3), (15, 17, 3)):
        image = rng.integers(100, 130, shape, dtype=np.uint8)
        kept = image.copy()
        assert stretch_contrast(image).shape == shape
        np.testing.assert_array_equal(image, kept)
        np.testing.assert_array_equal(stretch_contrast(image), stretch_contrast(image))


def test_simulated_fog_is_reduced() -> None:
    image = ground(3)
    foggy = corrupt(image, "fog", "paper", 0, "a")
    far, near = (np.abs(each.astype(float) - image).mean() for each in (foggy, stretch_contrast(foggy)))
    assert near < 0.6 * far


def test_preprocessing_stretches_contrast_on_request() -> None:
    foggy = hazy(ground(), 0.2)
    np.testing.assert_array_equal(Preprocessing(SIZE)(foggy), normalise(foggy))
    np.testing.assert_array_equal(Preprocessing(SIZE, level=True)(foggy), normalise(stretch_contrast(foggy)))


def test_the_old_module_still_works_with_a_warning() -> None:
    sys.modules.pop("skypart.images.level", None)
    with pytest.warns(DeprecationWarning, match="use skypart.images.contrast"):
        old = importlib.import_module("skypart.images.level")
    assert old.level is stretch_contrast and old.LEVELLING == CONTRAST_VERSION
