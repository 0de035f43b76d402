import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images.augment import MAX_ASPECT, MAX_ROLL_DEG, MIN_FRAME, photograph
from skypart.images.decode import RgbImage


def chart(height: int = 200, width: int = 200) -> RgbImage:
    """An image whose red is the column and whose green is the row."""
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack([columns, rows, np.zeros_like(rows)], axis=2).astype(np.uint8)


def take(seed: int, image: RgbImage | None = None) -> RgbImage:
    return photograph(chart() if image is None else image, np.random.default_rng(seed))


def where(photo: RgbImage, row: int, column: int) -> NDArray[np.float64]:
    """The chart's (column, row) that a pixel shows."""
    return photo[row, column, :2].astype(np.float64)


def test_photos_are_landscape_up_to_the_largest_aspect_ratio() -> None:
    ratios = [photo.shape[1] / photo.shape[0] for photo in map(take, range(200))]
    assert 0.99 < min(ratios) < 1.05 and MAX_ASPECT - 0.1 < max(ratios) < MAX_ASPECT + 0.03


def test_no_pixel_comes_from_outside() -> None:
    """Outside pixels would repeat the border: its columns or rows would occur three times or more in a row."""
    for seed in range(100):
        photo = take(seed)
        for channel, along in ((0, photo[..., 0]), (1, photo[..., 1].T)):
            rim = (along == 0) | (along == 199)
            assert not (rim[:, 2:] & rim[:, 1:-1] & rim[:, :-2]).any(), (seed, channel)


def test_frames_roll_within_bounds_at_any_position() -> None:
    rolls, middles, widths = [], [], []
    for seed in range(200):
        photo = take(seed)
        rows, columns = photo.shape[:2]
        left, right = where(photo, rows // 2, 0), where(photo, rows // 2, columns - 1)
        rolls.append(np.degrees(np.arctan2(right[1] - left[1], right[0] - left[0])))
        middles.append(where(photo, rows // 2, columns // 2))
        widths.append(np.linalg.norm(right - left))
    assert -MAX_ROLL_DEG - 1 < min(rolls) < -MAX_ROLL_DEG / 2 and MAX_ROLL_DEG / 2 < max(rolls) < MAX_ROLL_DEG + 1
    assert np.ptp(middles, axis=0).min() > 40 and np.allclose(np.mean(middles, axis=0), 100, atol=6)
    assert min(widths) > 0.75 * MIN_FRAME * 200 and 180 < max(widths) <= 200


def test_the_lens_has_barrel_and_pincushion_distortion() -> None:
    bends = []
    for seed in range(100):
        photo = take(seed)
        rows, columns = photo.shape[:2]
        top = [where(photo, 0, column) for column in (0, columns // 2, columns - 1)]
        down = where(photo, rows - 1, columns // 2) - top[1]
        bends.append((top[1] - (top[0] + top[2]) / 2) @ down / np.linalg.norm(down))
    assert min(bends) < -1 and max(bends) > 3, "in pixels of the chart; the barrel range is larger"


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (300, 3), (2, 2), (90, 400)])
def test_images_of_any_shape(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    for seed in range(20):
        photo = take(seed, image)
        assert min(photo.shape) > 0 and photo.dtype == np.uint8 and photo.shape[2] == 3


def test_the_same_generator_gives_the_same_photo() -> None:
    np.testing.assert_array_equal(take(3), take(3))
    assert take(3).shape != take(4).shape
