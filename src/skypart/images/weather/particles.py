"""Falling rain and snow: layers of bright grains, gated by a coarse mask, blurred along their fall."""

from dataclasses import dataclass

import cv2
import numpy as np

from skypart.images.weather.canvas import ROUND_TO_FLOOR, BytePlane, Canvas
from skypart.images.weather.draws import Range, uniform
from skypart.images.weather.noise import enlarge
from skypart.images.weather.streaks import fall

_GATE_GRID = (8, 8)
_GATE_STEP = 4
_MAX_LAYERS = 3
_REPEAT = 0.09
# Upper half of a Beta(1/2, 1/2) distribution over 0..255, at 256 evenly spaced probabilities.
_GRAIN_VALUES = np.round(255.0 * np.sin(0.25 * np.pi * (1.0 + (np.arange(256) + 0.5) / 256.0)) ** 2).astype(np.uint8)


@dataclass(frozen=True)
class Rain:
    """One to three layers of rain with imgaug's parameters; ranges are drawn uniformly, once a layer.

    drop_size: 0..1, drops are drawn on an image reduced by 1 - drop_size, so higher is larger.
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
        drawn: list[tuple[BytePlane, int]] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.veil(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> tuple[BytePlane, int]:
        """Opacity over 255, (h, w), and grey level of one layer."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.drop_size, self.angle, self.speed))
        drops = _streak(_scatter(height, width, size, self.density, self.uniformity, rng), speed, angle)
        # imgaug: 240, and darker where the first 1000 channel values are almost empty.
        total = int(np.repeat(drops.reshape(-1)[:334], 3)[:1000].sum(dtype=np.int64))
        shares = cv2.convertScaleAbs(drops, alpha=self.visibility * opacity)
        return np.asarray(shares, dtype=np.uint8), 110 + 130 % max(total, 1)


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
        drawn: list[tuple[BytePlane, BytePlane]] = []
        for opacity, earlier in _layers(rng, self.layers, self.opacity):
            drawn.append(self._layer(canvas.height, canvas.width, opacity, rng) if earlier is None else drawn[earlier])
            canvas.cover(*drawn[-1])

    def _layer(self, height: int, width: int, opacity: float, rng: np.random.Generator) -> tuple[BytePlane, BytePlane]:
        """What one layer adds and the least that it leaves, in grey levels, (h, w) each."""
        size, angle, speed = (uniform(rng, bounds) for bounds in (self.flake_size, self.angle, self.speed))
        flakes = _scatter(height, width, size, self.density, self.uniformity, rng)
        flakes = _streak(_soften(flakes, max(height, width) * uniform(rng, self.blur)), speed, angle)
        spread = 1.0 - uniform(rng, self.flake_uniformity)
        curve = np.floor(255.0 * np.linspace(0.0, 1.0, 256) ** (1.0 + 2.0 * spread)).astype(np.uint8)
        light = np.asarray(cv2.LUT(flakes, curve), dtype=np.uint8)
        gain = (1.0 + 5.0 * spread) * opacity
        return _truncated(light, (0.1 + 20.0 * speed) * gain), _truncated(light, (1.0 + 20.0 * speed) * gain)


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


def _scatter(
    height: int, width: int, size: float, density: Range, uniformity: Range, rng: np.random.Generator
) -> BytePlane:
    """(h, w) uint8 grains on black, drawn on a plane reduced by 1 - size and enlarged.

    A Poisson number of grains at uniform places fills every cell independently with the probability wanted.
    """
    scale = min(max(1.0 - size, 0.001), 1.0)
    rows, columns = max(1, int(height * scale)), max(1, int(width * scale))
    count = int(rng.poisson(-np.log1p(-uniform(rng, density)) * rows * columns))
    places = rng.integers(0, rows * columns, count)
    values = _GRAIN_VALUES[np.frombuffer(rng.bytes(count), dtype=np.uint8)]
    # Beta(1, b) by its inverse distribution.
    power = 1.0 / max(1.0 - uniform(rng, uniformity), 1e-4)
    gate = (1.0 - rng.random(_GATE_GRID) ** power).astype(np.float32)
    gate = np.clip(enlarge(gate, -(-rows // _GATE_STEP), -(-columns // _GATE_STEP)), 0.0, 1.0)
    y = places // columns
    cells = (y // _GATE_STEP) * gate.shape[1] + (places - y * columns) // _GATE_STEP
    grains = np.zeros(rows * columns, dtype=np.uint8)
    grains[places] = values * gate.ravel()[cells]
    plane = grains.reshape(rows, columns)
    if (rows, columns) == (height, width):
        return plane
    return np.asarray(cv2.resize(plane, (width, height), interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def _soften(flakes: BytePlane, deviation: float) -> BytePlane:
    """Gaussian blur by `deviation` pixels, held between 0.5 and 3.75."""
    sigma = min(max(deviation, 0.5), 3.75)
    size = int(max((3.3 if sigma < 3.0 else 2.9) * sigma, 5.0)) | 1
    return np.asarray(cv2.GaussianBlur(flakes, (size, size), sigma, borderType=cv2.BORDER_REFLECT_101), dtype=np.uint8)


def _streak(grains: BytePlane, speed: float, angle: float) -> BytePlane:
    """Blur over the way that a grain falls during the exposure."""
    length = int(speed * max(grains.shape))
    return grains if length <= 1 else fall(grains, max(length, 3) | 1, angle)


def _truncated(plane: BytePlane, factor: float) -> BytePlane:
    """The plane times a factor, truncated, at most 255."""
    return np.asarray(cv2.convertScaleAbs(plane, alpha=factor, beta=ROUND_TO_FLOOR), dtype=np.uint8)
