"""Smooth random fields: noise with a power-law spectrum, and cubic enlargement of small grids."""

from functools import lru_cache

import cv2
import numpy as np
import scipy.fft
from numpy.typing import NDArray

Plane = NDArray[np.float32]
"""(height, width) float32."""

# OpenBLAS starts threads above so many multiplications; here they would only wait for each other.
_ONE_THREAD = 1 << 18
_EXACT = 8
_FACTOR = 32
_SMALL_SIZE = 1024
_CACHED_SIZE = 1 << 20


def enlarge(grid: Plane, height: int, width: int) -> Plane:
    """Enlarge a small (a, b) grid to (height, width) with cubic interpolation, as two thin matrix products."""
    wide: Plane = grid @ _cubic_weights(grid.shape[1], width).T
    rows = _cubic_weights(grid.shape[0], height)
    enlarged = np.empty((height, width), dtype=np.float32)
    band = max(1, _ONE_THREAD // wide.size)
    for top in range(0, height, band):
        np.matmul(rows[top : top + band], wide, out=enlarged[top : top + band])
    return enlarged


@lru_cache(maxsize=512)
def _cubic_weights(small: int, large: int) -> Plane:
    """(large, small) weights of cubic interpolation along one axis; every row sums to 1."""
    weights: Plane = cv2.resize(np.eye(small, dtype=np.float32), (small, large), interpolation=cv2.INTER_CUBIC)
    weights.setflags(write=False)
    return weights


def frequency_noise(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """A (height, width) field whose amplitudes fall as |f|^exponent, scaled to 0..1 by its own extremes.

    f counts whole periods over the image. As in imgaug, the spectrum is r cos a (1 + i sin a) with r and a
    uniform and the field is the real part of its inverse transform: real parts have twice the spread of
    imaginary ones, which correlates the field with its own point reflection.
    """
    if height * width <= _SMALL_SIZE:
        field = _small_field(rng, height, width, exponent)
    else:
        field = _large_field(rng, _round_size(height), _round_size(width), exponent)[:height, :width]
    low, high, _, _ = cv2.minMaxLoc(field)
    field -= np.float32(low)
    field *= np.float32(1.0 / max(high - low, 1e-30))
    return field


def _round_size(size: int) -> int:
    """A size with small factors, so that transforms are fast and few sizes come: the next multiple of 32, if large."""
    return size if size < 4 * _FACTOR else -(-size // _FACTOR) * _FACTOR


def _small_field(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """The field of a few cells, every frequency drawn as imgaug draws it."""
    real, imaginary = _draw_spectrum(rng, (height, width))
    columns = np.minimum(np.arange(width), width - np.arange(width))
    amplitude = np.exp(exponent * _new_log_frequency(height, width)[:, columns])
    amplitude[0, 0] = 0.0
    return np.asarray(scipy.fft.ifft2((real + 1j * imaginary) * amplitude).real, dtype=np.float32)


def _large_field(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """The field of many cells from half a spectrum.

    The few frequencies that carry the energy are drawn as imgaug draws them. Of the others many add up in every
    pixel, so uniform integers of the right spread do.
    """
    half = width // 2 + 1
    words = rng.bit_generator.random_raw((2 * height * half + 7) // 8)
    parts = words.view(np.int8)[: 2 * height * half].astype(np.float32).reshape(height, half, 2)
    parts[:, :, 0] *= 2.0
    # A column that is its own mirror is not averaged with another one.
    parts[:, [0, half - 1] if width % 2 == 0 else [0]] *= np.float32(np.sqrt(2.0))
    _draw_low_frequencies(rng, parts)
    keep = height * width <= _CACHED_SIZE
    log_frequency = _log_frequency(height, width) if keep else _new_log_frequency(height, width)
    spectrum = parts.view(np.complex64)[:, :, 0]
    spectrum *= np.exp(log_frequency * np.float32(exponent))
    spectrum[0, 0] = 0.0
    return np.asarray(scipy.fft.irfft2(spectrum, s=(height, width), workers=1, overwrite_x=True), dtype=np.float32)


def _draw_spectrum(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Plane, Plane]:
    """Real and imaginary parts, r cos a and r cos a sin a, of deviations 1/sqrt(6) and 1/sqrt(24)."""
    angle = rng.random(shape, dtype=np.float32) * np.float32(2.0 * np.pi)
    real = rng.random(shape, dtype=np.float32) * np.cos(angle)
    return real, real * np.sin(angle)


def _draw_low_frequencies(rng: np.random.Generator, parts: Plane) -> None:
    """Overwrite the lowest frequencies of a (height, half, 2) spectrum with imgaug's own distribution."""
    height, half, _ = parts.shape
    ny, nx = min(_EXACT, height // 2), min(_EXACT + 1, half)
    real, imaginary = _draw_spectrum(rng, (2, 2 * ny, nx))
    mirrored = np.stack([real[0] + real[1], imaginary[0] - imaginary[1]], axis=-1)
    mirrored[:, 0] = 2.0 * np.stack([real[0, :, 0], imaginary[0, :, 0]], axis=-1)
    # Twice an int8 has the deviation 512 / sqrt(12), half the sum of two real parts 1 / sqrt(12).
    mirrored *= np.float32(0.5 * 512.0)
    parts[:ny, :nx] = mirrored[:ny]
    parts[height - ny :, :nx] = mirrored[ny:]


def _new_log_frequency(height: int, width: int) -> Plane:
    """(height, width // 2 + 1) natural logarithm of the frequency in periods an image; 0 at the constant."""
    rows = np.minimum(np.arange(height), height - np.arange(height)).astype(np.float32)
    columns = np.arange(width // 2 + 1, dtype=np.float32)
    squared = rows[:, None] ** 2 + columns[None, :] ** 2
    squared[0, 0] = 1.0
    return np.asarray(0.5 * np.log(squared), dtype=np.float32)


@lru_cache(maxsize=32)
def _log_frequency(height: int, width: int) -> Plane:
    """The same, kept for sizes that come again."""
    logarithm = _new_log_frequency(height, width)
    logarithm.setflags(write=False)
    return logarithm
