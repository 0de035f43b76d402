"""Rain and snow: layers of bright grains, gated by a coarse mask, blurred into streaks along their fall."""

import math
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.weather.canvas import Canvas
from skypart.images.weather.random_fields import Range, enlarge, uniform
from skypart.images.weather.streaks import (
    BytePlane,
    Pitch,
    draw_streaks,
    plane_size,
    rows_per_plane_row,
    sideways_variance,
    smooth,
)

_MAX_LAYERS = 3
_REPEAT_PROBABILITY = 0.09
_SMALL_KERNEL_SIGMA = 0.6
# Flakes above these sizes are smooth enough for half the rows, or columns: imgaug enlarges them from few pixels.
_HALF_ROWS_SIZE = 0.52
_HALF_COLUMNS_SIZE = 0.68
_UNIT_LEVELS = np.linspace(0.0, 1.0, 256)

_RainLayer: TypeAlias = tuple[BytePlane, int, Pitch, float]
_SnowLayer: TypeAlias = tuple[BytePlane, BytePlane, Pitch]
Unsigned = TypeVar("Unsigned", np.uint8, np.uint32)

_GATE_GRID = (8, 8)
_GATE_STEP = 8
# Quantiles of the upper half of a Beta(1/2, 1/2) distribution at 256 evenly spaced probabilities.
_QUANTILES = np.sin(0.25 * np.pi * (1.0 + (np.arange(256) + 0.5) / 256.0)) ** 2
_QUANTILE_MEAN, _QUANTILE_VARIANCE = float(_QUANTILES.mean()), float(_QUANTILES.var())


@dataclass(frozen=True)
class Rain:
    """One to three layers of rain with imgaug's parameters. Ranges are drawn uniformly, once per layer.

    drop_size: 0..1. imgaug draws drops on an image of 1 - drop_size times the size, so higher is larger.
    speed: length of the streaks relative to the longer side of the image.
    density: share of reduced pixels with a drop. uniformity: 1 = the same everywhere.
    angle: of the streaks, in degrees from the vertical. layers: a fixed number instead of a random one.
    visibility: opacity of a drop relative to its brightness. opacity: factor on the opacity of the last layer.
    """

    drop_size: Range = (0.01, 0.02)
    speed: Range = (0.04, 0.2)
    density: Range = (0.03, 0.14)
    uniformity: Range = (0.8, 1.0)
    angle: Range = (-15.0, 15.0)
    layers: int | None = None
    visibility: float = 1.3
    opacity: float = 1.0

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Add the rain to `canvas`."""
        drawn: list[_RainLayer] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.add_rain(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> _RainLayer:
        """Arguments of `Canvas.add_rain` for one layer."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.drop_size, self.angle, self.speed))
        length, density = streak_length(speed, height, width), uniform(rng, self.density)
        step = min(rows_per_plane_row(length, angle), height)
        pitch = (step, 1)
        # Drops are hardly larger than a pixel: drawn at full size, reduction, brighter, and smoothed at the end.
        small = reduced_size(height, width, size)
        reduction = small[0] * small[1] / (height * width)
        drops = scatter_grains(*plane_size(height, width, pitch), density, self.uniformity, rng, step, reduction)
        gain = self.visibility * opacity * clipping_gain(density) / reduction
        opacities = draw_streaks(drops, length, angle, pitch, gain)
        # As in imgaug: 240, and darker if the first 1000 channel values are almost empty.
        total = int(3.0 * float(opacities.reshape(-1)[:333].sum(dtype=np.int64)) / max(gain, 1e-3))
        sideways = sideways_variance(length, angle, pitch) + enlargement_variance(size)
        return opacities, 110 + 130 % max(total, 1), pitch, sideways


@dataclass(frozen=True)
class Snow:
    """One to three layers of falling snow with imgaug's parameters. Ranges are drawn uniformly, once per layer.

    flake_size, speed, density, uniformity, angle, layers: as in Rain.
    flake_uniformity: 1 = flakes of equal size and brightness. blur: standard deviation relative to the longer side.
    opacity: factor on the brightness of the last layer.
    """

    flake_size: Range = (0.2, 0.7)
    speed: Range = (0.007, 0.03)
    density: Range = (0.005, 0.075)
    uniformity: Range = (0.3, 0.9)
    flake_uniformity: Range = (0.4, 0.8)
    angle: Range = (-30.0, 30.0)
    blur: Range = (0.0001, 0.001)
    layers: int | None = None
    opacity: float = 1.0

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Add the snow to `canvas`."""
        drawn: list[_SnowLayer] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.add_snow(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> _SnowLayer:
        """Arguments of `Canvas.add_snow` for one layer."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.flake_size, self.angle, self.speed))
        length = streak_length(speed, height, width)
        coarse = length > 1 and min(height, width) > 1
        pitch = (1 + (coarse and size > _HALF_ROWS_SIZE), 1 + (coarse and size > _HALF_COLUMNS_SIZE))
        flakes = scatter_grains(*reduced_size(height, width, size), uniform(rng, self.density), self.uniformity, rng)
        flakes = enlarge_grains(flakes, plane_size(height, width, pitch))
        sigma = max(height, width) * uniform(rng, self.blur)
        flakes = draw_streaks(
            _soften(flakes, sigma, pitch, sideways_variance(length, angle, pitch)), length, angle, pitch
        )
        spread = 1.0 - uniform(rng, self.flake_uniformity)
        light = np.floor(255.0 * _UNIT_LEVELS ** (1.0 + 2.0 * spread)) * (1.0 + 5.0 * spread) * opacity
        added, floor = (_look_up(flakes, (base + 20.0 * speed) * light) for base in (0.1, 1.0))
        return added, floor, pitch


def _layers(rng: np.random.Generator, fixed: int | None, last: float) -> list[tuple[float, int | None]]:
    """Opacity of every layer, and the index of the earlier layer that it repeats, if any.

    imgaug copies one layer with its random stream three times. Until their calls have drifted apart, two of them draw
    the same. The probability for a pair is 0.12 over the first 100 images, 0.06 over the first 360. A fixed number of
    layers never repeats.
    """
    if fixed is not None:
        return [(last if layer == fixed - 1 else 1.0, None) for layer in range(fixed)]
    chosen: list[tuple[float, int | None]] = []
    for layer in range(int(rng.integers(1, _MAX_LAYERS, endpoint=True))):
        earlier = int(rng.random() / _REPEAT_PROBABILITY)
        chosen.append((1.0, earlier if earlier < layer else None))
    return chosen


def _soften(flakes: BytePlane, deviation: float, pitch: Pitch, sideways: float) -> NDArray[np.int16]:
    """Gaussian blur by `deviation` pixels, clipped to 0.5..3.75. sideways: extra variance, in columns squared."""
    sigma, across, down = min(max(deviation, 0.5), 3.75), sideways, 0.0
    if sigma < _SMALL_KERNEL_SIGMA:
        side = math.exp(-0.5 / sigma**2)
        variance = 2.0 * side / (1.0 + 2.0 * side)
        across, down = across + variance / pitch[1] ** 2, variance / pitch[0] ** 2
    else:
        size = int(max((3.3 if sigma < 3.0 else 2.9) * sigma, 5.0)) | 1
        flakes = np.asarray(
            cv2.GaussianBlur(
                flakes, (size, size), sigma / pitch[1], sigmaY=sigma / pitch[0], borderType=cv2.BORDER_REFLECT_101
            ),
            dtype=np.uint8,
        )
    return np.asarray(smooth(flakes, across, down, cv2.CV_16S), dtype=np.int16)


def streak_length(speed: float, height: int, width: int) -> int:
    """Pixels that a grain falls during the exposure: odd, 1 if it does not move."""
    length = int(speed * max(height, width))
    return max(length, 3) | 1 if length > 1 else 1


def _look_up(plane: BytePlane, table: NDArray[np.float64]) -> BytePlane:
    """Apply a table of 256 entries, truncated, at most 255."""
    return np.asarray(cv2.LUT(plane, np.minimum(table, 255.0).astype(np.uint8)), dtype=np.uint8)


# --- single grains ---------------------------------------------------------------------------------------------------


def scatter_grains(
    rows: int,
    columns: int,
    density: float,
    uniformity: Range,
    rng: np.random.Generator,
    join: int = 1,
    reduction: float = 1.0,
) -> BytePlane:
    """(rows, columns) uint8 grains on black. Every row is the mean of `join` rows.

    density: share of pixels with a grain. uniformity: 1 = equally many and bright everywhere.
    reduction: pixels of imgaug's reduced image over pixels of this one. Only that share of grains is drawn, at any
        pixel. More of them are then close together than on larger pixels; less varied brightness compensates for it.
    A Poisson number of grains at uniform positions fills every pixel independently with the right probability.
    """
    cells = rows * columns
    count = int(rng.poisson(-math.log1p(-density * reduction) * join * cells))
    # Beta(1, b) by its inverse distribution function.
    power = 1.0 / max(1.0 - uniform(rng, uniformity), 1e-4)
    gate = (256.0 * (1.0 - rng.random(_GATE_GRID) ** power)).astype(np.float32)
    gate = enlarge(gate, -(-rows // _GATE_STEP), -(-columns // _GATE_STEP))
    gate = np.minimum(np.maximum(gate, 0.0, out=gate), 255.0, out=gate).astype(np.uint8)
    positions = (_random_integers(rng, count, np.uint32) * (cells / 2.0**32)).astype(np.intp)
    spread = math.sqrt(max(1.0 - density * (1.0 - reduction) * _QUANTILE_MEAN**2 / _QUANTILE_VARIANCE, 0.0))
    levels = np.round(255.0 / join * (_QUANTILE_MEAN + spread * (_QUANTILES - _QUANTILE_MEAN)))
    table = np.minimum(levels, 255 // join).astype(np.uint8)  # so that the sum of `join` of them fits in a byte
    values = (
        cv2.LUT(_random_integers(rng, count, np.uint8), table).reshape(-1) if count else np.zeros(0, dtype=np.uint8)
    )
    grains = np.zeros(cells, dtype=np.uint8)
    per_row = -(-count // join)
    grains[positions[:per_row]] = values[:per_row]
    for start in range(per_row, count, max(per_row, 1)):
        grains[positions[start : start + per_row]] += values[start : start + per_row]
    gates = gate.repeat(_GATE_STEP, axis=1).repeat(_GATE_STEP, axis=0)[:rows, :columns]
    return np.asarray(cv2.multiply(grains.reshape(rows, columns), gates, scale=1.0 / 255.0), dtype=np.uint8)


def enlarge_grains(grains: BytePlane, size: tuple[int, int]) -> BytePlane:
    """Grains enlarged to (height, width) by cubic interpolation."""
    if grains.shape == size:
        return grains
    return np.asarray(cv2.resize(grains, size[::-1], interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def reduced_size(height: int, width: int, size: float) -> tuple[int, int]:
    """Height and width of the image on which imgaug draws grains of `size` before it enlarges them."""
    scale = min(max(1.0 - size, 0.001), 1.0)
    return max(1, int(height * scale)), max(1, int(width * scale))


def clipping_gain(density: float) -> float:
    """Factor by which cubic enlargement brightens grains: it undershoots beside them and is clipped at black.

    density: share of pixels with a grain. Measured; size and brightness of the grains do not matter.
    """
    return 1.0 + 0.275 * math.exp(-3.75 * density)


def enlargement_variance(size: float) -> float:
    """Variance, in columns squared, of the blur that makes single pixels as soft as imgaug's enlarged grains.

    Measured by second differences, for sizes up to 0.3.
    """
    return 0.135 + 0.62 * size


def _random_integers(rng: np.random.Generator, count: int, dtype: type[Unsigned]) -> NDArray[Unsigned]:
    """(count,) uniform integers over all values of an unsigned type, straight from the bit generator."""
    size = np.dtype(dtype).itemsize
    words: NDArray[np.uint64] = rng.bit_generator.random_raw(-(-count * size // 8))
    return words.view(dtype)[:count]
