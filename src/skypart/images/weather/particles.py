"""Falling rain and snow: layers of bright grains, gated by a coarse mask, blurred along their fall."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.weather.canvas import Canvas
from skypart.images.weather.draws import Range, uniform
from skypart.images.weather.fall import (
    BytePlane,
    Pitch,
    coarse_size,
    fall,
    rows_apart,
    sideways_variance,
    smooth,
)
from skypart.images.weather.grains import cut_gain, enlarge_grains, enlarged_variance, reduced, scatter

_MAX_LAYERS = 3
_REPEAT = 0.09
_SLIGHT = 0.6
# Flakes so large are smooth enough for every second row, or pixel, of a plane: imgaug enlarges them from few pixels.
_SMOOTH_ROWS = 0.52
_SMOOTH_COLUMNS = 0.68
_SHARES = np.linspace(0.0, 1.0, 256)

_Veil: TypeAlias = tuple[BytePlane, int, Pitch, float]
_Cover: TypeAlias = tuple[BytePlane, BytePlane, Pitch]


@dataclass(frozen=True)
class Rain:
    """One to three layers of rain with imgaug's parameters; ranges are drawn uniformly, once a layer.

    drop_size: 0..1; imgaug draws drops on an image of 1 - drop_size times the size, so higher is larger.
    speed: length of the streaks over the longer side of the image.
    density: share of reduced pixels that hold a drop; uniformity: 1 = the same everywhere.
    angle: of the fall in degrees from the vertical. layers: fixed number instead of a drawn one.
    visibility: opacity of a drop over its brightness. opacity: factor on the opacity of the last layer.
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
        """Lay the rain over `canvas`."""
        drawn: list[_Veil] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.veil(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> _Veil:
        """Arguments of `Canvas.veil` for one layer."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.drop_size, self.angle, self.speed))
        length, density = _length(speed, height, width), uniform(rng, self.density)
        step = min(rows_apart(length, angle), height)
        pitch = (step, 1)
        # Drops are hardly larger than a pixel: drawn on the picture itself, fewer, brighter, and smoothed in the end.
        small = reduced(height, width, size)
        fewer = small[0] * small[1] / (height * width)
        drops = scatter(*coarse_size(height, width, pitch), density, self.uniformity, rng, step, fewer)
        gain = self.visibility * opacity * cut_gain(density) / fewer
        shares = fall(drops, length, angle, pitch, gain)
        # imgaug: 240, and darker where the first 1000 channel values are almost empty.
        total = int(3.0 * float(shares.reshape(-1)[:333].sum(dtype=np.int64)) / max(gain, 1e-3))
        sideways = sideways_variance(length, angle, pitch) + enlarged_variance(size)
        return shares, 110 + 130 % max(total, 1), pitch, sideways


@dataclass(frozen=True)
class Snow:
    """One to three layers of falling snow with imgaug's parameters; ranges are drawn uniformly, once a layer.

    flake_size, speed, density, uniformity, angle, layers: as in Rain.
    flake_uniformity: 1 = flakes of like size and brightness. blur: deviation over the longer side of the image.
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
        """Lay the snow over `canvas`."""
        drawn: list[_Cover] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.cover(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> _Cover:
        """Arguments of `Canvas.cover` for one layer."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.flake_size, self.angle, self.speed))
        length = _length(speed, height, width)
        coarse = length > 1 and min(height, width) > 1
        pitch = (1 + (coarse and size > _SMOOTH_ROWS), 1 + (coarse and size > _SMOOTH_COLUMNS))
        flakes = scatter(*reduced(height, width, size), uniform(rng, self.density), self.uniformity, rng)
        flakes = enlarge_grains(flakes, coarse_size(height, width, pitch))
        sigma = max(height, width) * uniform(rng, self.blur)
        flakes = fall(_soften(flakes, sigma, pitch, sideways_variance(length, angle, pitch)), length, angle, pitch)
        spread = 1.0 - uniform(rng, self.flake_uniformity)
        light = np.floor(255.0 * _SHARES ** (1.0 + 2.0 * spread)) * (1.0 + 5.0 * spread) * opacity
        added, floor = (_look_up(flakes, (least + 20.0 * speed) * light) for least in (0.1, 1.0))
        return added, floor, pitch


def _layers(rng: np.random.Generator, fixed: int | None, last: float) -> list[tuple[float, int | None]]:
    """Opacity of every layer, and the number of an earlier one if it repeats that; a fixed number of them never does.

    imgaug copies one layer with its random stream three times: until their calls have drifted apart, two of them draw
    the same. The chance for a pair is 0.12 over the first 100 images, 0.06 over the first 360.
    """
    if fixed is not None:
        return [(last if layer == fixed - 1 else 1.0, None) for layer in range(fixed)]
    chosen: list[tuple[float, int | None]] = []
    for layer in range(int(rng.integers(1, _MAX_LAYERS, endpoint=True))):
        earlier = int(rng.random() / _REPEAT)
        chosen.append((1.0, earlier if earlier < layer else None))
    return chosen


def _soften(flakes: BytePlane, deviation: float, pitch: Pitch, sideways: float) -> NDArray[np.int16]:
    """Gaussian blur by `deviation` pixels, held between 0.5 and 3.75; `sideways`: more variance, in square columns."""
    sigma, across, down = min(max(deviation, 0.5), 3.75), sideways, 0.0
    if sigma < _SLIGHT:
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


def _length(speed: float, height: int, width: int) -> int:
    """Pixels that a grain falls during the exposure: odd, 1 if it stands still."""
    length = int(speed * max(height, width))
    return max(length, 3) | 1 if length > 1 else 1


def _look_up(plane: BytePlane, table: NDArray[np.float64]) -> BytePlane:
    """Replace every grey level by its entry in a table of 256, truncated, at most 255."""
    return np.asarray(cv2.LUT(plane, np.minimum(table, 255.0).astype(np.uint8)), dtype=np.uint8)
