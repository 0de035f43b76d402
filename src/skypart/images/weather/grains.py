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
# Upper half of a Beta(1/2, 1/2) distribution at 256 evenly spaced probabilities.
_QUANTILES = np.sin(0.25 * np.pi * (1.0 + (np.arange(256) + 0.5) / 256.0)) ** 2
_MEAN, _VARIANCE = float(_QUANTILES.mean()), float(_QUANTILES.var())

Bits = TypeVar("Bits", np.uint8, np.uint32)


def scatter(
    rows: int,
    columns: int,
    density: float,
    uniformity: Range,
    rng: np.random.Generator,
    join: int = 1,
    fewer: float = 1.0,
) -> BytePlane:
    """(rows, columns) grains of uint8 on black; every row is the mean of `join` rows.

    density: share of the pixels that hold a grain. uniformity: 1 = as many and bright everywhere.
    fewer: share of the pixels that imgaug's reduced image has. So many grains are drawn, at any pixel: more of them lie
        close to each other than on larger pixels, and their brightness varies less to make up for it.
    A Poisson number of grains at uniform places fills every pixel independently with the probability wanted.
    """
    cells = rows * columns
    count = int(rng.poisson(-math.log1p(-density * fewer) * join * cells))
    # Beta(1, b) by its inverse distribution.
    power = 1.0 / max(1.0 - uniform(rng, uniformity), 1e-4)
    gate = (256.0 * (1.0 - rng.random(_GATE_GRID) ** power)).astype(np.float32)
    gate = enlarge(gate, -(-rows // _GATE_STEP), -(-columns // _GATE_STEP))
    gate = np.minimum(np.maximum(gate, 0.0, out=gate), 255.0, out=gate).astype(np.uint8)
    places = (_raw(rng, count, np.uint32) * (cells / 2.0**32)).astype(np.intp)
    spread = math.sqrt(max(1.0 - density * (1.0 - fewer) * _MEAN**2 / _VARIANCE, 0.0))
    levels = np.round(255.0 / join * (_MEAN + spread * (_QUANTILES - _MEAN)))
    table = np.minimum(levels, 255 // join).astype(np.uint8)  # so that `join` of them on one pixel stay within a byte
    values = cv2.LUT(_raw(rng, count, np.uint8), table).reshape(-1) if count else np.zeros(0, dtype=np.uint8)
    grains = np.zeros(cells, dtype=np.uint8)
    each = -(-count // join)
    grains[places[:each]] = values[:each]
    for start in range(each, count, max(each, 1)):
        grains[places[start : start + each]] += values[start : start + each]
    gates = gate.repeat(_GATE_STEP, axis=1).repeat(_GATE_STEP, axis=0)[:rows, :columns]
    return np.asarray(cv2.multiply(grains.reshape(rows, columns), gates, scale=1.0 / 255.0), dtype=np.uint8)


def enlarge_grains(grains: BytePlane, size: tuple[int, int]) -> BytePlane:
    """Grains at a height and width, by cubic interpolation."""
    if grains.shape == size:
        return grains
    return np.asarray(cv2.resize(grains, size[::-1], interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def reduced(height: int, width: int, size: float) -> tuple[int, int]:
    """Height and width of the image that imgaug draws grains of a size on, and enlarges."""
    scale = min(max(1.0 - size, 0.001), 1.0)
    return max(1, int(height * scale)), max(1, int(width * scale))


def cut_gain(filled: float) -> float:
    """By how much cubic enlargement brightens grains: it undershoots beside them, and is cut off at black.

    filled: share of pixels that hold a grain. Measured; the size of the grains and their brightness do not matter.
    """
    return 1.0 + 0.275 * math.exp(-3.75 * filled)


def enlarged_variance(size: float) -> float:
    """Variance, in columns squared, of a blur that makes single pixels as sharp as grains of a size that imgaug drew on
    a smaller image and enlarged. Measured by second differences, for sizes up to 0.3."""
    return 0.135 + 0.62 * size


def _raw(rng: np.random.Generator, count: int, kind: type[Bits]) -> NDArray[Bits]:
    """(count,) uniform whole numbers over all values of an unsigned type, straight from the random stream."""
    size = np.dtype(kind).itemsize
    words: NDArray[np.uint64] = rng.bit_generator.random_raw(-(-count * size // 8))
    return words.view(kind)[:count]
