"""Single grains of rain and snow: where they lie, how bright they are, and how they come to another size."""

import math
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.weather.draws import Range, uniform
from skypart.images.weather.fall import BytePlane
from skypart.images.weather.noise import enlarge

_GATE_GRID = (8, 8)
_GATE_STEP = 4
# Upper half of a Beta(1/2, 1/2) distribution over 0..255, at 256 evenly spaced probabilities.
_GRAIN_VALUES = np.round(255.0 * np.sin(0.25 * np.pi * (1.0 + (np.arange(256) + 0.5) / 256.0)) ** 2).astype(np.uint8)

Bits = TypeVar("Bits", np.uint8, np.uint32)


def scatter(
    height: int, width: int, size: float, density: float, uniformity: Range, rng: np.random.Generator
) -> BytePlane:
    """Grains of uint8 on black, on an image of (h, w) reduced by 1 - size.

    A Poisson number of grains at uniform places fills every cell independently with the probability wanted.
    """
    scale = min(max(1.0 - size, 0.001), 1.0)
    rows, columns = max(1, int(height * scale)), max(1, int(width * scale))
    count = int(rng.poisson(-np.log1p(-density) * rows * columns))
    # Beta(1, b) by its inverse distribution.
    power = 1.0 / max(1.0 - uniform(rng, uniformity), 1e-4)
    gate = (1.0 - rng.random(_GATE_GRID) ** power).astype(np.float32)
    gate = np.clip(enlarge(gate, -(-rows // _GATE_STEP), -(-columns // _GATE_STEP)), 0.0, 1.0)
    places = (_raw(rng, count, np.uint32) * (rows * columns / 2.0**32)).astype(np.int32)
    y = places // np.int32(columns)
    cells = (y // _GATE_STEP) * np.int32(gate.shape[1]) + (places - y * np.int32(columns)) // _GATE_STEP
    values = _GRAIN_VALUES.take(_raw(rng, count, np.uint8)) * gate.take(cells)
    grains = np.zeros(rows * columns, dtype=np.uint8)
    grains[places.astype(np.intp)] = values.astype(np.uint8)
    return grains.reshape(rows, columns)


def enlarge_grains(grains: BytePlane, size: tuple[int, int]) -> BytePlane:
    """Grains at a height and width, by cubic interpolation."""
    if grains.shape == size:
        return grains
    return np.asarray(cv2.resize(grains, size[::-1], interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def join_rows(plane: BytePlane, step: int) -> BytePlane:
    """(ceil(h / step), w) means of `step` rows each, mirrored at the end."""
    if step == 1:
        return plane
    padded = cv2.copyMakeBorder(plane, 0, -len(plane) % step, 0, 0, cv2.BORDER_REFLECT_101)
    total = np.add(padded[::step], padded[1::step], dtype=np.uint16)
    for row in range(2, step):
        total += padded[row::step]
    return np.asarray(cv2.convertScaleAbs(total, alpha=1.0 / step), dtype=np.uint8)


def cut_gain(filled: float) -> float:
    """By how much cubic enlargement brightens grains: it undershoots beside them, and is cut off at black.

    filled: share of pixels that hold a grain. Measured; the size of the grains and their brightness do not matter.
    """
    return 1.0 + 0.275 * math.exp(-3.75 * filled)


def _raw(rng: np.random.Generator, count: int, kind: type[Bits]) -> NDArray[Bits]:
    """(count,) uniform whole numbers over all values of an unsigned type, straight from the random stream."""
    size = np.dtype(kind).itemsize
    words: NDArray[np.uint64] = rng.bit_generator.random_raw(-(-count * size // 8))
    return words.view(kind)[:count]
