from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from skypart.images.augment import NO_AUGMENTATION, Augmentation
from skypart.images.decode import RgbImage
from skypart.images.preprocess import Preprocessing, normalise

STRONG = Augmentation(crop=0.3, aspect=1.5, rotation=180.0, grey=0.5, blur=0.5)


def noise(height: int = 40, width: int = 60, seed: int = 0) -> RgbImage:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def augment(augmentation: Augmentation, image: RgbImage, seed: int = 0, size: int = 28) -> RgbImage:
    return augmentation(image, Preprocessing(size=size), np.random.default_rng(seed))


@pytest.mark.parametrize("shape", [(40, 60), (28, 28), (1, 7), (301, 5)])
def test_no_augmentation_is_exactly_what_evaluation_sees(shape: tuple[int, int], tmp_path: Path) -> None:
    image = noise(*shape)
    file = tmp_path / "photo.png"
    Image.fromarray(image).save(file)
    for seed in range(5):
        np.testing.assert_array_equal(normalise(augment(NO_AUGMENTATION, image, seed)), Preprocessing(size=28)(file))


def test_the_result_depends_only_on_the_generator() -> None:
    image = noise()
    np.testing.assert_array_equal(augment(STRONG, image, 5), augment(STRONG, image, 5))
    assert np.any(augment(STRONG, image, 5) != augment(STRONG, image, 6))


def test_the_input_is_not_modified() -> None:
    image = noise(28, 28)
    before = image.copy()
    for seed in range(10):
        augment(STRONG, image, seed)
    np.testing.assert_array_equal(image, before)


@settings(max_examples=40, deadline=None)
@given(height=st.integers(1, 90), width=st.integers(1, 90), size=st.sampled_from([14, 28, 70]), seed=st.integers(0, 99))
def test_any_size_and_aspect_give_a_square(height: int, width: int, size: int, seed: int) -> None:
    out = augment(STRONG, noise(height, width), seed, size)
    assert out.shape == (size, size, 3) and out.dtype == np.uint8


def test_crops_keep_area_and_aspect_in_range() -> None:
    image = noise(400, 400)
    only = replace(NO_AUGMENTATION, crop=0.5, aspect=1.3)
    shares, ratios = [], []
    for seed in range(300):
        rows, columns = only._crop(image, np.random.default_rng(seed)).shape[:2]
        shares.append(rows * columns / 400**2)
        ratios.append(columns / rows)
    assert 0.49 < min(shares) < 0.55 and 0.93 < max(shares) <= 1.0
    assert 1 / 1.31 < min(ratios) < 0.85 and 1.2 < max(ratios) < 1.31


@pytest.mark.parametrize("name", ["brightness", "contrast"])
def test_brightness_and_contrast_stay_in_range(name: str) -> None:
    flat = np.full((28, 28, 3), 100, dtype=np.uint8)
    image = flat.copy()
    image[:14] = 140
    only = Augmentation(**(vars(NO_AUGMENTATION) | {name: 0.3}))
    factors = []
    for seed in range(200):
        out = augment(only, image, seed).astype(float)
        measured = out.mean() / 120 if name == "brightness" else (out[0, 0, 0] - out[27, 0, 0]) / 40
        factors.append(measured)
    assert 0.67 < min(factors) < 0.75 and 1.25 < max(factors) < 1.33


def test_saturation_and_hue_leave_grey_alone() -> None:
    grey = np.repeat(noise(28, 28)[:, :, :1], 3, axis=2)
    only = replace(NO_AUGMENTATION, saturation=0.9, hue=0.5, grey=0.5)
    for seed in range(10):
        np.testing.assert_allclose(augment(only, grey, seed).astype(int), grey.astype(int), atol=1)


def test_a_hue_shift_by_a_third_permutes_the_channels() -> None:
    image = np.zeros((28, 28, 3), dtype=np.uint8)
    image[:] = (200, 120, 70)

    class Third(np.random.Generator):
        def uniform(self, low: float = 0.0, high: float = 1.0, size: int = 1) -> np.ndarray:  # type: ignore[override]
            return np.full(size, high)

    out = replace(NO_AUGMENTATION, hue=1 / 3)._colour(image, Third(np.random.PCG64()))
    assert sorted(out[0, 0].tolist()) == [70, 120, 200] and out[0, 0].tolist() != [200, 120, 70]


def test_grey_and_blur_occur_with_their_probabilities() -> None:
    image = noise(28, 28)
    greys = [np.ptp(augment(replace(NO_AUGMENTATION, grey=0.3), image, s), axis=2).max() <= 1 for s in range(300)]
    assert 0.22 < np.mean(greys) < 0.38
    only = replace(NO_AUGMENTATION, blur=0.3)
    blurred = [bool(np.any(augment(only, image, s) != image)) for s in range(300)]
    assert 0.22 < np.mean(blurred) < 0.38


def test_tiles_lose_their_colour_more_often_than_photos() -> None:
    image, tiles = noise(28, 28), replace(NO_AUGMENTATION, grey=0.1, grey_tile=0.6)

    def grey_share(drone: bool) -> float:
        made = [tiles(image, Preprocessing(28), np.random.default_rng(seed), drone=drone) for seed in range(300)]
        return float(np.mean([np.ptp(each, axis=2).max() <= 1 for each in made]))

    assert 0.52 < grey_share(drone=False) < 0.68
    assert 0.05 < grey_share(drone=True) < 0.16


def test_rotation_is_off_by_default() -> None:
    image = np.zeros((56, 56, 3), dtype=np.uint8)
    image[:, 26:30] = 255
    still = replace(STRONG, rotation=0.0, crop=1.0, aspect=1.0, grey=0.0, blur=0.0, hue=0.0)
    for seed in range(20):  # a vertical bar stays one: all rows equal
        out = augment(still, image, seed, 56)
        assert np.all(out == out[:1])
    turned = [augment(replace(NO_AUGMENTATION, rotation=180.0), image, s, 56) for s in range(20)]
    assert sum(bool(np.any(out != out[:1])) for out in turned) >= 19
    slight = [augment(replace(NO_AUGMENTATION, rotation=1.0), image, s, 56) for s in range(20)]
    assert all(np.abs(out.astype(int) - image.astype(int)).mean() < 10 for out in slight)


def test_corners_of_a_rotated_image_are_filled() -> None:
    image = np.full((50, 50, 3), 200, dtype=np.uint8)
    for seed in range(10):
        assert augment(replace(NO_AUGMENTATION, rotation=180.0), image, seed).min() == 200


def test_photo_and_night_apply_to_drone_images_only() -> None:
    image = noise(60, 60)
    preprocessing = Preprocessing(size=28)
    both = replace(NO_AUGMENTATION, photo=1.0, night=1.0)
    same = preprocessing.resize(image)
    for seed in range(5):
        np.testing.assert_array_equal(both(image, preprocessing, np.random.default_rng(seed)), same)
        seen = both(image, preprocessing, np.random.default_rng(seed), drone=True)
        assert seen.shape == (28, 28, 3) and np.any(seen != same)
    one = [replace(NO_AUGMENTATION, photo=0.3), replace(NO_AUGMENTATION, night=0.3)]
    for augmentation in one:
        changed = [
            bool(np.any(augmentation(image, preprocessing, np.random.default_rng(s), drone=True) != same))
            for s in range(300)
        ]
        assert 0.22 < np.mean(changed) < 0.38


def test_disabled_augmentations_use_no_random_numbers() -> None:
    """Otherwise runs of older recipes would change."""
    image = noise(60, 60)
    for seed in range(5):
        drone, tile = (
            STRONG(image, Preprocessing(size=28), np.random.default_rng(seed), view) for view in (True, False)
        )
        np.testing.assert_array_equal(drone, tile)


def test_sharpened_drone_images_keep_their_mean_and_gain_contrast_at_edges() -> None:
    step = np.full((32, 32, 3), 90, dtype=np.uint8)
    step[:, 16:] = 150
    sharp = replace(NO_AUGMENTATION, sharp=1.0)
    made = [sharp(step, Preprocessing(32), np.random.default_rng(seed), drone=True) for seed in range(20)]
    assert all(abs(float(each.mean()) - 120) < 1.5 for each in made)
    assert all(int(each[8, 16, 0]) > 152 and int(each[8, 15, 0]) < 88 and each[8, 1, 0] == 90 for each in made)
    assert len({int(each[8, 16, 0]) for each in made}) > 5
    assert np.array_equal(sharp(step, Preprocessing(32), np.random.default_rng(0)), step), (
        "satellite tiles stay as they are"
    )


def test_a_cast_changes_grey_by_its_standard_deviation() -> None:
    grey = np.full((28, 28, 3), 100, dtype=np.uint8)
    gains = [augment(replace(NO_AUGMENTATION, cast=0.1), grey, seed)[0, 0] / 100 for seed in range(300)]
    assert 0.085 < np.log(gains).std() < 0.115 and abs(np.log(gains).mean()) < 0.02


def test_tone_keeps_black_and_white() -> None:
    ramp = np.repeat(np.array([0, 64, 128, 192, 255], np.uint8), 3).reshape(1, 5, 3).repeat(5, axis=0)
    made = [augment(replace(NO_AUGMENTATION, tone=0.4), ramp, seed, 5)[2, :, 0].astype(float) for seed in range(300)]
    assert all(row[0] == 0 and row[4] == 255 and (np.diff(row) >= 0).all() for row in made)
    curves = [np.log(np.log(row[2] / 255) / np.log(128 / 255)) for row in made]
    assert abs(np.mean(curves)) < 0.08 and np.std(curves) == pytest.approx(0.4, rel=0.15)
