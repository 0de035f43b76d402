"""From photo to model input."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.preprocess import MEAN, STD, Interpolation, Preprocessing, normalise


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_normalise_pixel_by_pixel() -> None:
    image = noise(5, 7)
    found = normalise(image)
    assert found.shape == (3, 5, 7) and found.dtype == np.float32 and found.flags["C_CONTIGUOUS"]
    for channel in range(3):
        expected = (image[..., channel] / 255.0 - MEAN[channel]) / STD[channel]
        np.testing.assert_allclose(found[channel], expected, atol=2e-6)


def test_an_image_of_the_right_size_is_not_resized(tmp_path: Path) -> None:
    image = noise(56, 56)
    assert Preprocessing(size=56).resize(image) is image
    Image.fromarray(image).save(tmp_path / "a.png")
    np.testing.assert_array_equal(Preprocessing(size=56)(tmp_path / "a.png"), normalise(image))


def test_area_is_the_mean_of_whole_blocks() -> None:
    image = noise(84, 56)
    found = Preprocessing(size=28, interpolation="area").resize(image)
    blocks = image.reshape(28, 3, 28, 2, 3).mean(axis=(1, 3))
    assert np.abs(found - blocks).max() <= 1.0


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "area"])
def test_shrinking_is_antialiased(interpolation: Interpolation) -> None:
    stripes = np.zeros((448, 448, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    found = Preprocessing(size=56, interpolation=interpolation).resize(stripes)
    assert found.shape == (56, 56, 3)
    assert np.abs(found.astype(int) - 127).max() <= 8, "stripes finer than a pixel become grey"


def test_the_three_filters_differ() -> None:
    image = noise(100, 130)
    kinds: tuple[Interpolation, ...] = ("bicubic", "bilinear", "area")
    found = [Preprocessing(56, kind).resize(image) for kind in kinds]
    assert all(np.abs(found[i].astype(int) - found[j]).max() > 5 for i, j in ((0, 1), (0, 2), (1, 2)))


def test_unknown_filters_raise() -> None:
    with pytest.raises(SkyPartError, match="unknown interpolation 'lanczos'; choose one of bicubic, bilinear, area"):
        Preprocessing(interpolation="lanczos")  # type: ignore[arg-type]
