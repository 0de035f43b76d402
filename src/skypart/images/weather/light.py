"""Darkness, over-exposure and the shake of wind."""

from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.draws import Range, uniform
from skypart.images.weather.streaks import line_kernel, motion_blur

# Conversion to a colour space, back, and the channel that holds the brightness.
_BRIGHTNESS_SPACES = (
    (cv2.COLOR_RGB2YCrCb, cv2.COLOR_YCrCb2RGB, 0),
    (cv2.COLOR_RGB2HSV, cv2.COLOR_HSV2RGB, 2),
    (cv2.COLOR_RGB2HLS, cv2.COLOR_HLS2RGB, 1),
    (cv2.COLOR_RGB2Lab, cv2.COLOR_Lab2RGB, 0),
    (cv2.COLOR_RGB2Luv, cv2.COLOR_Luv2RGB, 0),
    (cv2.COLOR_RGB2YUV, cv2.COLOR_YUV2RGB, 0),
)
Table: TypeAlias = NDArray[np.float32]
_LEVELS: Table = np.arange(256, dtype=np.float32)


@dataclass(frozen=True)
class Gain:
    """Every channel times a factor drawn from `gain`, plus `offset` grey levels; truncated, at most 255."""

    gain: Range
    offset: float = 0.0

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the picture on `canvas`."""
        table = np.clip(_LEVELS * np.float32(uniform(rng, self.gain)) + np.float32(self.offset), 0.0, 255.0)
        canvas.paint(_look_up(canvas.image(), table))


@dataclass(frozen=True)
class FlatLight:
    """Half of the picture lifted by `lift` grey levels and half of it dimmed by `dim`: low contrast."""

    lift: float = 100.0
    dim: float = 0.2

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the picture on `canvas`; draws nothing."""
        lifted = np.minimum(_LEVELS + np.float32(self.lift), 255.0)
        dimmed = np.floor(_LEVELS * np.float32(self.dim))
        canvas.paint(_look_up(canvas.image(), np.round(dimmed + np.float32(0.5) * (lifted - dimmed))))


@dataclass(frozen=True)
class Brightness:
    """Brightness times `gain` and plus `offset`, in either order, in one of six colour spaces drawn per image."""

    gain: float
    offset: Range

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the picture on `canvas`."""
        there, back, channel = _BRIGHTNESS_SPACES[int(rng.integers(len(_BRIGHTNESS_SPACES)))]
        offset = np.float32(round(uniform(rng, self.offset)))
        if rng.integers(2):
            table = np.clip(_multiplied(_LEVELS, self.gain) + offset, 0.0, 255.0)
        else:
            table = _multiplied(np.clip(_LEVELS + offset, 0.0, 255.0), self.gain)
        converted = cv2.cvtColor(canvas.image(), there)
        brightness = cv2.LUT(cv2.extractChannel(converted, channel), table.astype(np.uint8))
        canvas.paint(np.asarray(cv2.cvtColor(cv2.insertChannel(brightness, converted, channel), back), dtype=np.uint8))


@dataclass(frozen=True)
class Shake:
    """Motion blur over `length` pixels (odd), weights rising or falling along the way.

    angle: range of degrees clockwise from the vertical, or with `either` one of its two ends.
    """

    length: int = 15
    angle: Range = (0.0, 360.0)
    either: bool = False

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the picture on `canvas`."""
        angle = self.angle[int(rng.integers(2))] if self.either else uniform(rng, self.angle)
        start = uniform(rng, (0.0, 1.0))
        if self.length > 1:
            canvas.paint(motion_blur(canvas.image(), line_kernel(self.length, angle, start)))


def _multiplied(levels: Table, gain: float) -> Table:
    """Levels times `gain`, truncated and held within 0..255."""
    return np.asarray(np.floor(np.clip(levels * np.float32(gain), 0.0, 255.0)), dtype=np.float32)


def _look_up(image: RgbImage, table: Table) -> RgbImage:
    """Replace every channel value by its entry in a table of 256, truncated."""
    return np.asarray(cv2.LUT(image, table.astype(np.uint8)), dtype=np.uint8)
