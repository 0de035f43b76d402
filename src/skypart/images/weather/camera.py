"""Camera effects: darkness, over-exposure, and motion blur from wind."""

from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.weather.canvas import Canvas
from skypart.images.weather.random_fields import Plane, Range, uniform

# Conversion to a colour space, conversion back, and the brightness channel.
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

# From this kernel area on, OpenCV's filter2D uses Fourier transforms, which only pays off with many non-zeros.
_MAX_DIRECT_AREA = 130
_MIN_FOURIER_TAPS = 80
_FIXED_POINT = 64.0


@dataclass(frozen=True)
class Gain:
    """Multiply every channel by a factor drawn from `gain` and add `offset` grey levels; truncated, at most 255."""

    gain: Range
    offset: float = 0.0

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the image on `canvas`."""
        table = np.clip(_LEVELS * np.float32(uniform(rng, self.gain)) + np.float32(self.offset), 0.0, 255.0)
        canvas.replace(_look_up(canvas.image(), table))


@dataclass(frozen=True)
class FlatLight:
    """Low contrast: the mean of the image raised by `lift` grey levels and the image multiplied by `dim`."""

    lift: float = 100.0
    dim: float = 0.2

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the image on `canvas`; uses no random numbers."""
        lifted = np.minimum(_LEVELS + np.float32(self.lift), 255.0)
        dimmed = np.floor(_LEVELS * np.float32(self.dim))
        canvas.replace(_look_up(canvas.image(), np.round(dimmed + np.float32(0.5) * (lifted - dimmed))))


@dataclass(frozen=True)
class Brightness:
    """Multiply brightness by `gain` and add `offset`, in random order, in one of six colour spaces drawn per image."""

    gain: float
    offset: Range

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the image on `canvas`."""
        to_space, to_rgb, channel = _BRIGHTNESS_SPACES[int(rng.integers(len(_BRIGHTNESS_SPACES)))]
        offset = np.float32(round(uniform(rng, self.offset)))
        if rng.integers(2):
            table = np.clip(_multiply(_LEVELS, self.gain) + offset, 0.0, 255.0)
        else:
            table = _multiply(np.clip(_LEVELS + offset, 0.0, 255.0), self.gain)
        converted = cv2.cvtColor(canvas.image(), to_space)
        brightness = cv2.LUT(cv2.extractChannel(converted, channel), table.astype(np.uint8))
        canvas.replace(
            np.asarray(cv2.cvtColor(cv2.insertChannel(brightness, converted, channel), to_rgb), dtype=np.uint8)
        )


@dataclass(frozen=True)
class MotionBlur:
    """Motion blur over `length` pixels (odd), as wind causes it, with a linear ramp of weights.

    angle: range of degrees clockwise from the vertical; with `either`, one of its two ends.
    """

    length: int = 15
    angle: Range = (0.0, 360.0)
    either: bool = False

    def apply(self, canvas: Canvas, rng: np.random.Generator) -> None:
        """Change the image on `canvas`."""
        angle = self.angle[int(rng.integers(2))] if self.either else uniform(rng, self.angle)
        start = uniform(rng, (0.0, 1.0))
        if self.length > 1:
            canvas.replace(motion_blur(canvas.image(), line_kernel(self.length, angle, start)))


def _multiply(levels: Table, gain: float) -> Table:
    """Levels times `gain`, truncated and clipped to 0..255."""
    return np.asarray(np.floor(np.clip(levels * np.float32(gain), 0.0, 255.0)), dtype=np.float32)


def _look_up(image: RgbImage, table: Table) -> RgbImage:
    """Apply a table of 256 entries to every channel, truncated."""
    return np.asarray(cv2.LUT(image, table.astype(np.uint8)), dtype=np.uint8)


def line_kernel(length: int, angle: float, start: float = 1.0) -> Plane:
    """(length, length) weights, sum 1, along a line through the centre, `angle` degrees clockwise from the vertical.

    Weights change linearly from `start` at the upper end to 1 - `start` at the lower one. `length` is odd.
    Pixels beside the line get bilinear weights, in steps of 1/255, because imgaug rotates an 8-bit image of the line.
    """
    reach = length // 2
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    offsets = np.arange(-reach, reach + 1)
    across = cosine * offsets + sine * offsets[:, None]
    along = cosine * offsets[:, None] - sine * offsets
    ramp = np.floor(255.0 * np.linspace(start, 1.0 - start, length))
    profile = np.interp(along, np.arange(-reach - 1, reach + 2), np.concatenate([[0.0], ramp, [0.0]]), 0.0, 0.0)
    weights = np.round(np.maximum(1.0 - np.abs(across), 0.0) * profile)
    return np.asarray(weights / max(weights.sum(), 1.0), dtype=np.float32)


def motion_blur(image: NDArray[np.uint8], kernel: Plane) -> NDArray[np.uint8]:
    """Correlate a uint8 image (grey or colour) with a line kernel, with mirrored borders.

    kernel: odd height and width. Unless it has very many non-zeros, it is split into boxes around them that are too
    small for OpenCV to use Fourier transforms.
    """
    if np.count_nonzero(kernel) > _MIN_FOURIER_TAPS:
        return np.asarray(cv2.filter2D(image, -1, kernel), dtype=np.uint8)
    boxes = _split_kernel(kernel, 0, 0)
    reach_y, reach_x = kernel.shape[0] // 2, kernel.shape[1] // 2
    height, width = image.shape[:2]
    padded = cv2.copyMakeBorder(image, reach_y, reach_y, reach_x, reach_x, cv2.BORDER_REFLECT_101)
    total: NDArray[np.int16] | None = None
    for top, left, box in boxes:
        window = padded[top : top + height + box.shape[0] - 1, left : left + width + box.shape[1] - 1]
        if len(boxes) == 1:
            return np.asarray(cv2.filter2D(window, -1, box, anchor=(0, 0))[:height, :width], dtype=np.uint8)
        part = cv2.filter2D(window, cv2.CV_16S, box * np.float32(_FIXED_POINT), anchor=(0, 0))[:height, :width]
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        return image
    return np.asarray(cv2.convertScaleAbs(total, alpha=1.0 / _FIXED_POINT), dtype=np.uint8)


def _split_kernel(kernel: Plane, top: int, left: int) -> list[tuple[int, int, Plane]]:
    """(top, left, weights) of boxes that cover all non-zeros of a kernel whose corner is at (top, left)."""
    rows, columns = np.nonzero(kernel.any(axis=1))[0], np.nonzero(kernel.any(axis=0))[0]
    if rows.size == 0:
        return []
    box = kernel[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    top, left = top + int(rows[0]), left + int(columns[0])
    if box.size < _MAX_DIRECT_AREA:
        return [(top, left, np.ascontiguousarray(box))]
    if box.shape[0] >= box.shape[1]:
        middle = box.shape[0] // 2
        return _split_kernel(box[:middle], top, left) + _split_kernel(box[middle:], top + middle, left)
    middle = box.shape[1] // 2
    return _split_kernel(box[:, :middle], top, left) + _split_kernel(box[:, middle:], top, left + middle)
