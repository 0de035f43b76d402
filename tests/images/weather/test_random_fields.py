"""Random fields: range, spectrum and the symmetry of imgaug's; cubic enlargement."""

import cv2
import numpy as np
import pytest

from skypart.images.weather.random_fields import enlarge, frequency_noise, generator


@pytest.mark.parametrize("shape", [(4, 4), (5, 9), (31, 33), (64, 64), (33, 100), (257, 130)])
def test_field_spans_zero_to_one(shape: tuple[int, int]) -> None:
    field = frequency_noise(generator(1), *shape, -2.0)
    assert field.shape == shape and field.dtype == np.float32
    assert field.min() == pytest.approx(0.0, abs=1e-5) and field.max() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("exponent", [-1.5, -2.0])
def test_amplitudes_fall_with_the_exponent(exponent: float) -> None:
    size = 128
    fields = np.stack([frequency_noise(generator(i), size, size, exponent) for i in range(20)])
    power = (np.abs(np.fft.fft2(fields)) ** 2).sum(axis=0)
    frequency = np.hypot(*np.meshgrid(*2 * [np.minimum(np.arange(size), size - np.arange(size))]))
    rings = [(2, 4), (6, 9), (12, 18), (24, 32), (45, 60)]
    centres = [np.sqrt(low * high) for low, high in rings]
    amplitudes = [np.sqrt(np.mean(power[(frequency >= low) & (frequency < high)])) for low, high in rings]
    slope = np.polyfit(np.log(centres), np.log(amplitudes), 1)[0]
    assert slope == pytest.approx(exponent, abs=0.12)


@pytest.mark.parametrize("size", [16, 128])
def test_fields_correlate_with_their_point_reflection(size: int) -> None:
    correlation = []
    for i in range(60):
        field = frequency_noise(generator(i), size, size, -1.5)
        mirrored = np.roll(field[::-1, ::-1], (1, 1), axis=(0, 1))
        correlation.append(np.corrcoef(field.ravel(), mirrored.ravel())[0, 1])
    # (1/6 - 1/24) / (1/6 + 1/24)
    assert np.mean(correlation) == pytest.approx(0.6, abs=0.12)


def test_enlarge_equals_cubic_resize() -> None:
    grid = np.random.default_rng(0).random((8, 5), dtype=np.float32)
    assert np.allclose(enlarge(grid, 61, 90), cv2.resize(grid, (90, 61), interpolation=cv2.INTER_CUBIC), atol=1e-5)
