"""Every blur in images/ has the width it should have, measured on a thin line or a point.

Each test fails if its constant changes by 20 %.
"""

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from skypart.images import contrast
from skypart.images.augment import NO_AUGMENTATION, _lamps, _sharpen
from skypart.images.weather import conditions, corrupt, fog, particles, statistics
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.streaks import sideways_variance

Floats = NDArray[np.floating[Any]]


def gaussian(sigma: float, reach: int) -> Floats:
    """(2 * reach + 1,) weights with sum 1."""
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    normalised: Floats = weights / weights.sum()
    return normalised


def line(edge: int, level: float = 255.0) -> NDArray[np.float32]:
    """(edge, edge): a vertical line, one pixel wide, in the middle."""
    plane = np.zeros((edge, edge), np.float32)
    plane[:, edge // 2] = level
    return plane


def width(profile: Floats) -> float:
    """Standard deviation, in pixels, of a profile across a line."""
    share = np.asarray(profile, dtype=np.float64) / np.sum(profile)
    position = np.arange(len(share)) - len(share) // 2
    return float(np.sqrt((share * position**2).sum() - (share * position).sum() ** 2))


class Fixed(np.random.Generator):
    """Draws the same point of every range: 0 is the lower end, 1 the upper one. Integers come from the middle."""

    def __init__(self, point: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.point = point

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        value = low + self.point * (high - low)
        return value if size is None else np.full(size, value)

    def integers(  # type: ignore[override]
        self, low: Any, high: Any = None, size: Any = None, **_: Any
    ) -> Any:
        value = (low + high) // 2 if high is not None else low // 2
        return value if size is None else np.full(size, value)


def test_contrast_regions_blend_over_two_cells() -> None:
    point = np.zeros((contrast.CELLS, contrast.CELLS), np.float32)
    point[8, 8] = 1.0
    blended = contrast._regional_mean(point)
    assert width(blended.sum(axis=0)) == pytest.approx(2.0, rel=0.06)
    assert width(blended.sum(axis=1)) == pytest.approx(2.0, rel=0.06)


def test_contrast_next_to_a_clear_half_rises_with_the_distance() -> None:
    """The same through the public function: near the clear half of an image, the other half is stretched less."""
    image = np.random.default_rng(0).integers(0, 256, (256, 256, 3)).astype(np.float32)
    image[:, 128:] = 128 + 0.06 * (image[:, 128:] - 128)
    foggy = np.rint(image).astype(np.uint8)
    stretched = contrast.stretch_contrast(foggy)
    gain = [stretched[:, c : c + 8].std() / foggy[:, c : c + 8].std() for c in (176, 192, 208)]
    assert gain == pytest.approx([1.84, 3.05, 4.76], rel=0.06)


@pytest.mark.parametrize(("point", "sigma"), [(0.25, 0.6), (0.5, 0.9), (1.0, 1.5)])
def test_augmentation_blur(point: float, sigma: float) -> None:
    image = np.repeat(line(31)[..., None], 3, axis=2).astype(np.uint8)
    always = NO_AUGMENTATION.__class__(**(vars(NO_AUGMENTATION) | {"blur": 2.0}))
    blurred = always._colour(image, Fixed(point))
    np.testing.assert_allclose(blurred[15, 9:22, 1], 255 * gaussian(sigma, 6), atol=1.5)


@pytest.mark.parametrize(("point", "sigma", "amount", "level"), [(0.0, 0.6, 0.4, 90.0), (1.0, 2.0, 2.5, 20.0)])
def test_sharpening(point: float, sigma: float, amount: float, level: float) -> None:
    plane = 100 + line(41, level)
    sharp = _sharpen(np.repeat(plane[..., None], 3, axis=2).astype(np.uint8), Fixed(point))[20, :, 0].astype(float)
    expected = 100 + line(41, level)[20] * (1 + amount)
    expected[12:29] -= amount * level * gaussian(sigma, 8)
    np.testing.assert_allclose(sharp, expected, atol=0.8)


@pytest.mark.parametrize(("point", "pool", "glow"), [(0.0, 8.0, 0.8), (1.0, 24.0, 2.0)])
def test_lamps(point: float, pool: float, glow: float) -> None:
    pools, glows = _lamps(400, 400, Fixed(point))
    distance = np.arange(200)
    for plane, sigma in ((pools, pool), (glows, glow)):
        expected = np.exp(-(distance**2) / (2 * sigma**2))
        np.testing.assert_allclose(plane[200, 200:], expected, atol=0.02)


def test_the_glow_of_lamps_in_small_images_is_half_a_pixel_wide() -> None:
    _, glow = _lamps(40, 40, Fixed(0.0))
    assert glow[20, 21] / glow[20, 20] == pytest.approx(np.exp(-2.0), rel=0.05)


def test_ssim_window() -> None:
    smoothed = statistics._smooth(line(31, 1.0))[15]
    np.testing.assert_allclose(smoothed[10:21], gaussian(1.5, 5), atol=1e-5)
    assert not smoothed[:10].any() and not smoothed[21:].any()


@pytest.mark.parametrize(
    ("deviation", "sigma", "size"),
    [(0.0, 0.5, 3), (0.58, 0.58, 3), (0.71, 0.71, 5), (1.4, 1.4, 5), (2.0, 2.0, 7), (9.0, 3.75, 11)],
)
def test_flakes_are_softened(deviation: float, sigma: float, size: int) -> None:
    """imgaug's Gaussian blur, with its clipped deviation and its kernel size."""
    soft = particles._soften(line(41).astype(np.uint8), deviation, (1, 1), 0.0)[20]
    reach = size // 2
    np.testing.assert_allclose(soft[20 - reach : 21 + reach], 255 * gaussian(sigma, reach), atol=1.6)
    assert soft.sum() == pytest.approx(255, abs=6)


def test_flakes_on_coarse_planes_are_softened_less() -> None:
    across = particles._soften(line(41).astype(np.uint8), 2.0, (2, 2), 0.0)[20]
    np.testing.assert_allclose(across[17:24], 255 * gaussian(1.0, 3), atol=1.6)


def test_the_blur_of_snow_is_a_share_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    class StopHereError(Exception):
        pass

    deviations: list[float] = []

    def record(flakes: object, deviation: float, *_: object) -> None:
        deviations.append(deviation)
        raise StopHereError

    monkeypatch.setattr(particles, "_soften", record)
    for step in (conditions.PAPER["snow"][0], conditions.WEATHERPROMPT["snow"][0]):
        deviations.clear()
        for seed in range(300):
            with pytest.raises(StopHereError):
                step._layer(20, 40, 1.0, np.random.default_rng(seed))  # type: ignore[attr-defined]
        shares = np.asarray(deviations) / 40
        assert 0.0001 <= shares.min() < 0.000115 and 0.00098 < shares.max() <= 0.001


@pytest.mark.parametrize(("size", "variance"), [(0.0, 0.135), (0.02, 0.147), (0.1, 0.197), (0.2, 0.259)])
def test_softness_of_drops(size: float, variance: float) -> None:
    """Calibrated on imgaug's drops; `test_faithful.py` compares the images."""
    assert particles.enlargement_variance(size) == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize(("length", "angle"), [(25, 8.0), (51, 12.0), (101, -14.0)])
def test_streaks_are_smoothed_as_much_as_bilinear_weights_would(length: int, angle: float) -> None:
    count = round((length - 1) * np.cos(np.radians(angle)))
    offsets = np.arange(count) * -np.tan(np.radians(angle)) % 1.0
    weights = np.arange(count, 0, -1) / (count * (count + 1) / 2)
    exact = sum(
        weight * (np.diff([0, 0, 1 - share, share, 0, 0], 2) ** 2).sum()
        for weight, share in zip(weights, offsets, strict=True)
    )
    variance = sideways_variance(length, angle, (1, 1))
    kernel = np.array([variance / 2, 1 - variance, variance / 2])
    assert (np.diff(np.pad(kernel, 2), 2) ** 2).sum() == pytest.approx(exact, rel=0.02)


def test_coarse_snow_is_sharpened_before_it_is_enlarged() -> None:
    plane = np.full((21, 21), 100, np.uint8)
    plane[10, 10] = 190
    kernel = np.array([-0.08, 1.16, -0.08])
    sharp = np.full((21, 21), 100.0)
    sharp[9:12, 9:12] += 90 * np.outer(kernel, kernel)
    expected = cv2.resize(np.rint(sharp).clip(0, 255).astype(np.uint8), (42, 42), interpolation=cv2.INTER_CUBIC)
    canvas = Canvas(np.zeros((42, 42, 3), np.uint8))
    found = canvas._refine_snow(plane, (2, 2), (1, 1))
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_coarse_brightness_of_fog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fog, "_sized_noise", lambda rng, cells, height, width, exponent: np.zeros((8, 8), np.float32))
    cloud = fog.Fog(brightness=(200.0, 200.0))
    light = np.stack([cloud._light(8, 8, -2.0, np.random.default_rng(seed)) for seed in range(100)])
    assert light.mean() == pytest.approx(160.0, abs=0.2)
    assert light.std() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("options", "span", "count"),
    [({"profile": "paper"}, 13, 35), ({"profile": "weatherprompt"}, 15, 35), ({"severity": 1.0}, 81, None)],
)
def test_motion_blur_of_wind(options: dict[str, Any], span: int, count: int | None) -> None:
    """The most rows or columns, and the most pixels, that a point is blurred over in 100 random directions."""
    image = np.zeros((121, 121, 3), np.uint8)
    image[60, 60] = 255
    pixels = [np.argwhere(corrupt(image, "wind", key=str(key), **options)[..., 0]) for key in range(100)]
    assert max(np.ptp(each, axis=0).max() + 1 for each in pixels) == span
    assert count is None or max(map(len, pixels)) == pytest.approx(count, abs=1)
