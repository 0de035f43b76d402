"""Fog: a light grey cloud with fine grain and slowly varying thickness."""

from dataclasses import dataclass

import cv2
import numpy as np

from skypart.images.weather.canvas import Canvas
from skypart.images.weather.random_fields import Plane, Range, enlarge, frequency_noise, uniform
from skypart.images.weather.streaks import BytePlane

_COARSE_GRID = (8, 8)
_COARSE_STD = 2.0
# Grain with this exponent, or a smaller one, has almost no detail that half the resolution would lose.
_SMOOTH_GRAIN = -1.9
_MIN_EDGE_FOR_HALF = 128


@dataclass(frozen=True)
class Fog:
    """A cloud layer with imgaug's parameters. Ranges are drawn uniformly, once per image.

    brightness: mean grey level of the cloud. grain: exponent of its fine noise over frequency.
    thickness_min, thickness_gain, sparsity, density: opacity = density * (min + gain * noise)^sparsity, at most 1.
    patch_size: the thickness noise is drawn on a grid of this many cells along the longer side (at least 4).
    patch_exponent: exponent of the thickness noise.
    """

    brightness: Range = (220.0, 255.0)
    grain: Range = (-2.0, -1.5)
    thickness_min: Range = (0.7, 0.9)
    thickness_gain: float = 0.3
    patch_size: tuple[int, int] = (2, 8)
    patch_exponent: Range = (-4.0, -2.0)
    sparsity: float = 0.9
    density: Range = (0.4, 0.9)

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Add the fog to `canvas`."""
        grain = uniform(rng, self.grain)
        step = 2 if grain <= _SMOOTH_GRAIN and min(canvas.height, canvas.width) >= _MIN_EDGE_FOR_HALF else 1
        height, width = -(-canvas.height // step), -(-canvas.width // step)
        opacity = self._opacity(height, width, rng)
        light = cv2.multiply(self._light(height, width, grain, rng), opacity, dtype=cv2.CV_32F)
        if step > 1:
            size = (canvas.width, canvas.height)
            opacity, light = (cv2.resize(plane, size, interpolation=cv2.INTER_LINEAR) for plane in (opacity, light))
        canvas.blend(np.asarray(cv2.bitwise_not(opacity), dtype=np.uint8), (light + np.float32(0.5)).astype(np.uint16))

    def _light(self, height: int, width: int, grain: float, rng: np.random.Generator) -> Plane:
        """(h, w) brightness of the cloud, 0..255: mean, coarse Gaussian offsets and fine noise."""
        mean = uniform(rng, self.brightness)
        fine = _sized_noise(rng, max(height, width), height, width, grain)
        coarse = rng.normal(0.8 * mean, _COARSE_STD, _COARSE_GRID).astype(np.float32)
        light: Plane = cv2.scaleAdd(fine, 0.4 * mean, enlarge(coarse, height, width))
        return np.clip(light, 0.0, 255.0, out=light)

    def _opacity(self, height: int, width: int, rng: np.random.Generator) -> BytePlane:
        """(h, w) opacity of the cloud, times 255."""
        minimum, density = uniform(rng, self.thickness_min), uniform(rng, self.density)
        cells = int(rng.integers(self.patch_size[0], self.patch_size[1], endpoint=True))
        noise = _sized_noise(rng, cells, height, width, uniform(rng, self.patch_exponent))
        levels = cv2.add(noise * np.float32(255.0), 0.0, dtype=cv2.CV_8U)
        steps = np.arange(256, dtype=np.float64) / 255.0
        table = density * (minimum + self.thickness_gain * steps) ** self.sparsity
        return np.asarray(cv2.LUT(levels, np.round(255.0 * np.minimum(table, 1.0)).astype(np.uint8)), dtype=np.uint8)


def _sized_noise(rng: np.random.Generator, cells: int, height: int, width: int, exponent: float) -> Plane:
    """Frequency noise on a grid of `cells` along the longer side, at least 4 x 4, enlarged to (height, width)."""
    longest = max(height, width)
    scale = min(1.0, cells / longest)
    small_height, small_width = max(int(height * scale), 4), max(int(width * scale), 4)
    noise = frequency_noise(rng, small_height, small_width, exponent)
    if (small_height, small_width) == (height, width):
        return noise
    quantized = np.floor(noise * np.float32(255.0)) * np.float32(1.0 / 255.0)
    if cells < longest:
        return np.clip(enlarge(quantized, height, width), 0.0, 1.0)
    return np.asarray(
        cv2.resize(quantized, (width, height), interpolation=cv2.INTER_CUBIC).clip(0.0, 1.0), dtype=np.float32
    )
