"""Random numbers that depend only on names, and smooth random fields.

Nothing depends on global state, the order of calls or the worker.
"""

import hashlib
from functools import lru_cache
from typing import TypeAlias

import cv2
import numpy as np
import scipy.fft
from numpy.typing import NDArray

Plane: TypeAlias = NDArray[np.float32]
"""(height, width) float32."""

Range: TypeAlias = tuple[float, float]
"""Bounds of a uniform draw; equal bounds fix the value."""

_SINGLE_THREAD = 1 << 18
"""Multiplications above which OpenBLAS starts threads, which would only wait for each other here."""
_EXACT_FREQUENCIES = 8
_FFT_FACTOR = 32
_SMALL_FIELD = 1024
_CACHED_FIELD = 1 << 20


def generator(*names: object) -> np.random.Generator:
    """A new generator whose stream depends only on `names` (their text, in order)."""
    digest = hashlib.blake2b("\0".join(map(str, names)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))


def uniform(rng: np.random.Generator, bounds: Range) -> float:
    """One value between the bounds."""
    return bounds[0] + (bounds[1] - bounds[0]) * float(rng.random())


def enlarge(grid: Plane, height: int, width: int) -> Plane:
    """Enlarge a small (a, b) grid to (height, width) with cubic interpolation, as two thin matrix products."""
    wide: Plane = grid @ _cubic_weights(grid.shape[1], width).T
    rows = _cubic_weights(grid.shape[0], height)
    enlarged = np.empty((height, width), dtype=np.float32)
    band = max(1, _SINGLE_THREAD // wide.size)
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
    """A (height, width) field whose amplitudes fall as |f|^exponent, scaled to 0..1.

    f counts periods per image. As in imgaug, the spectrum is r cos a (1 + i sin a) with uniform r and a, and the field
    is the real part of its inverse transform. Real parts have twice the spread of imaginary ones, so the field
    correlates with its own point reflection.
    """
    if height * width <= _SMALL_FIELD:
        field = _small_field(rng, height, width, exponent)
    else:
        field = _large_field(rng, _fft_size(height), _fft_size(width), exponent)[:height, :width]
    low, high, _, _ = cv2.minMaxLoc(field)
    field -= np.float32(low)
    field *= np.float32(1.0 / max(high - low, 1e-30))
    return field


def _fft_size(size: int) -> int:
    """A size with a fast Fourier transform: the next multiple of 32, if large. Few distinct sizes also help caching."""
    return size if size < 4 * _FFT_FACTOR else -(-size // _FFT_FACTOR) * _FFT_FACTOR


def _small_field(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """A field of a few cells; every frequency is drawn as in imgaug."""
    real, imaginary = _draw_spectrum(rng, (height, width))
    columns = np.minimum(np.arange(width), width - np.arange(width))
    amplitude = np.exp(exponent * _compute_log_frequency(height, width)[:, columns])
    amplitude[0, 0] = 0.0
    return np.asarray(scipy.fft.ifft2((real + 1j * imaginary) * amplitude).real, dtype=np.float32)


def _large_field(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """A field of many cells, from half a spectrum.

    The few frequencies that carry the energy are drawn as in imgaug. Many of the others add up in every pixel, so
    uniform integers of the right spread are enough.
    """
    half = width // 2 + 1
    words = rng.bit_generator.random_raw((2 * height * half + 7) // 8)
    parts = words.view(np.int8)[: 2 * height * half].astype(np.float32).reshape(height, half, 2)
    parts[:, :, 0] *= 2.0
    # Columns that are their own mirror image are not averaged with another one.
    parts[:, [0, half - 1] if width % 2 == 0 else [0]] *= np.float32(np.sqrt(2.0))
    _draw_low_frequencies(rng, parts)
    cacheable = height * width <= _CACHED_FIELD
    log_frequency = _log_frequency(height, width) if cacheable else _compute_log_frequency(height, width)
    spectrum = parts.view(np.complex64)[:, :, 0]
    spectrum *= np.exp(log_frequency * np.float32(exponent))
    spectrum[0, 0] = 0.0
    return np.asarray(scipy.fft.irfft2(spectrum, s=(height, width), workers=1, overwrite_x=True), dtype=np.float32)


def _draw_spectrum(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Plane, Plane]:
    """Real and imaginary parts, r cos a and r cos a sin a, with standard deviations 1/sqrt(6) and 1/sqrt(24)."""
    angle = rng.random(shape, dtype=np.float32) * np.float32(2.0 * np.pi)
    real = rng.random(shape, dtype=np.float32) * np.cos(angle)
    return real, real * np.sin(angle)


def _draw_low_frequencies(rng: np.random.Generator, parts: Plane) -> None:
    """Overwrite the lowest frequencies of a (height, half, 2) spectrum with imgaug's own distribution."""
    height, half, _ = parts.shape
    ny, nx = min(_EXACT_FREQUENCIES, height // 2), min(_EXACT_FREQUENCIES + 1, half)
    real, imaginary = _draw_spectrum(rng, (2, 2 * ny, nx))
    mirrored = np.stack([real[0] + real[1], imaginary[0] - imaginary[1]], axis=-1)
    mirrored[:, 0] = 2.0 * np.stack([real[0, :, 0], imaginary[0, :, 0]], axis=-1)
    # Twice an int8 has the standard deviation 512 / sqrt(12), half the sum of two real parts 1 / sqrt(12).
    mirrored *= np.float32(0.5 * 512.0)
    parts[:ny, :nx] = mirrored[:ny]
    parts[height - ny :, :nx] = mirrored[ny:]


def _compute_log_frequency(height: int, width: int) -> Plane:
    """(height, width // 2 + 1) natural logarithm of the frequency in periods per image; 0 for the constant."""
    rows = np.minimum(np.arange(height), height - np.arange(height)).astype(np.float32)
    columns = np.arange(width // 2 + 1, dtype=np.float32)
    squared = rows[:, None] ** 2 + columns[None, :] ** 2
    squared[0, 0] = 1.0
    return np.asarray(0.5 * np.log(squared), dtype=np.float32)


@lru_cache(maxsize=32)
def _log_frequency(height: int, width: int) -> Plane:
    """The same, cached."""
    logarithm = _compute_log_frequency(height, width)
    logarithm.setflags(write=False)
    return logarithm
