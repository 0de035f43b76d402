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
_GATE_STEP = 8
# Upper half of a Beta(1/2, 1/2) distribution over 0..255, at 256 evenly spaced probabilities.
_GRAIN_VALUES = np.round(255.0 * np.sin(0.25 * np.pi * (1.0 + (np.arange(256) + 0.5) / 256.0)) ** 2).astype(np.uint8)

Bits = TypeVar("Bits", np.uint8, np.uint32)


def scatter(
    height: int, width: int, size: float, density: float, uniformity: Range, rng: np.random.Generator, join: int = 1
) -> BytePlane:
    """Grains of uint8 on black, on an image of (h, w) reduced by 1 - size; `join` of its rows give their mean as one.

    A Poisson number of grains at uniform places fills every cell independently with the probability wanted.
    """
    scale = min(max(1.0 - size, 0.001), 1.0)
    rows, columns = -(-max(1, int(height * scale)) // join), max(1, int(width * scale))
    cells = rows * columns
    count = int(rng.poisson(-np.log1p(-density) * join * cells))
    # Beta(1, b) by its inverse distribution.
    power = 1.0 / max(1.0 - uniform(rng, uniformity), 1e-4)
    gate = (1.0 - rng.random(_GATE_GRID) ** power).astype(np.float32)
    gate = np.clip(enlarge(gate, -(-rows // _GATE_STEP), -(-columns // _GATE_STEP)), 0.0, 1.0)
    places = (_raw(rng, count, np.uint32) * (join * cells / 2.0**32)).astype(np.int32)
    within = places if join == 1 else places % np.int32(cells)
    y = within // np.int32(columns)
    gates = (y // _GATE_STEP) * np.int32(gate.shape[1]) + (within - y * np.int32(columns)) // _GATE_STEP
    values = _GRAIN_VALUES.take(_raw(rng, count, np.uint8)) * gate.take(gates)
    grains = np.zeros(join * cells, dtype=np.uint8)
    grains[places.astype(np.intp)] = values.astype(np.uint8)
    # the rows of one cell lie a plane apart
    return _mean(grains.reshape(join, rows, columns))


def _mean(planes: NDArray[np.uint8]) -> BytePlane:
    """(h, w) mean of (n, h, w), rounded."""
    if len(planes) == 1:
        return np.asarray(planes[0], dtype=np.uint8)
    total = np.add(planes[0], planes[1], dtype=np.uint16)
    for plane in planes[2:]:
        total += plane
    return np.asarray(cv2.convertScaleAbs(total, alpha=1.0 / len(planes)), dtype=np.uint8)


def enlarge_grains(grains: BytePlane, size: tuple[int, int]) -> BytePlane:
    """Grains at a height and width, by cubic interpolation."""
    if grains.shape == size:
        return grains
    return np.asarray(cv2.resize(grains, size[::-1], interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


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
