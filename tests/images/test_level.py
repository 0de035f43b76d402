"""Weak contrast is lifted, strong contrast left alone."""

import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images.level import MIDDLE, WHOLE, _ground, level
from skypart.images.preprocess import Preprocessing, normalise
from skypart.images.weather import corrupt

SIZE = 112


def ground(seed: int = 0) -> NDArray[np.uint8]:
    """Fields and roofs of strong contrast, (112, 112, 3)."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(20, 236, (14, 14, 3)).repeat(8, axis=0).repeat(8, axis=1)
    noisy: NDArray[np.uint8] = np.clip(blocks + rng.normal(0, 6, blocks.shape), 0, 255).astype(np.uint8)
    return noisy


def veiled(image: NDArray[np.uint8], clear: NDArray[np.float64] | float, air: float = 235.0) -> NDArray[np.uint8]:
    """`image` through air that lets the share `clear` of its light pass."""
    seen: NDArray[np.uint8] = np.rint(image * clear + air * (1 - clear)).astype(np.uint8)
    return seen


def likeness(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Correlation of two pictures' values."""
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def test_a_clear_picture_stays_as_it_is() -> None:
    image = ground()
    assert level(image) is image


@pytest.mark.parametrize("clear", [0.5, 0.25, 0.15])
def test_an_even_veil_is_taken_off(clear: float) -> None:
    image = ground()
    lifted = level(veiled(image, clear))
    assert lifted.shape == image.shape and lifted.dtype == np.uint8
    assert likeness(lifted, image) > 0.98
    assert lifted.std(axis=(0, 1)).mean() == pytest.approx(WHOLE, rel=0.15)
    assert abs(lifted.mean() - MIDDLE) < abs(veiled(image, clear).mean() - MIDDLE)


def test_dusk_and_an_uneven_veil() -> None:
    image = ground()
    dusk = np.rint(image * 0.15).astype(np.uint8)
    assert level(dusk).mean() > 2 * dusk.mean() and likeness(level(dusk), image) > 0.98
    across = np.linspace(0.9, 0.12, SIZE)[None, :, None]
    foggy = veiled(image, across)
    assert likeness(foggy, image) < 0.8
    assert likeness(level(foggy), image) > likeness(foggy, image) + 0.1


@pytest.mark.parametrize("value", [0, 128, 255])
def test_blank_pictures_stay_blank(value: int) -> None:
    lifted = level(np.full((SIZE, SIZE, 3), value, dtype=np.uint8))
    assert (lifted == lifted[0, 0]).all()


def test_black_beyond_a_maps_edge_counts_for_nothing() -> None:
    """Ground looks the same whether or not a part of the picture is missing, and what is missing stays black."""
    whole = veiled(ground(), 0.2)
    edge = whole.copy()
    edge[:, SIZE // 2 :] = 0
    lifted = level(edge)
    assert (lifted[:, SIZE // 2 :] == 0).all()
    left = np.s_[:, : SIZE // 2]
    assert np.abs(lifted[left].astype(float) - level(whole)[left]).mean() < 12
    assert lifted[left].std() > 0.8 * level(whole)[left].std()
    assert (level(np.where(edge > 0, edge, 0)[..., ::-1].copy())[:, SIZE // 2 :] == 0).all()


def test_the_black_of_night_is_lifted_with_the_rest() -> None:
    """Shadows that a dark photo has cut off at 0 lie scattered, and none of them is a map's edge."""
    night = np.clip(ground() * 0.12 - 8, 0, 255).astype(np.uint8)
    cut = (night == 0).all(axis=2)
    assert cut.mean() > 0.02
    lifted = level(night)
    assert lifted[cut].min() > 0
    assert likeness(lifted, ground()) > 0.9


def test_a_hole_within_the_picture_is_no_edge() -> None:
    image = veiled(ground(), 0.2)
    image[40:70, 40:70] = 0
    image[0:3, 0:3] = 0
    assert _ground(image) is None
    image[:30, :30] = 0
    seen = _ground(image)
    assert seen is not None and (seen[:30, :30] == 0).all() and (seen[40:70, 40:70] == 255).all()
    assert (level(image)[:30, :30] == 0).all()


def test_any_shape_and_the_same_twice() -> None:
    rng = np.random.default_rng(1)
    for shape in ((14, 14, 3), (40, 224, 3), (15, 17, 3)):
        image = rng.integers(100, 130, shape, dtype=np.uint8)
        kept = image.copy()
        assert level(image).shape == shape
        np.testing.assert_array_equal(image, kept)
        np.testing.assert_array_equal(level(image), level(image))


def test_fog_as_it_is_drawn() -> None:
    image = ground(3)
    foggy = corrupt(image, "fog", "paper", 0, "a")
    far, near = (np.abs(each.astype(float) - image).mean() for each in (foggy, level(foggy)))
    assert near < 0.6 * far


def test_preprocessing_lifts_when_asked() -> None:
    foggy = veiled(ground(), 0.2)
    np.testing.assert_array_equal(Preprocessing(SIZE)(foggy), normalise(foggy))
    np.testing.assert_array_equal(Preprocessing(SIZE, level=True)(foggy), normalise(level(foggy)))
