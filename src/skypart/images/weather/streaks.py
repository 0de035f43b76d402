"""Streaks of doubled drops and flakes: a plane blurred along a line, by recursively doubling sums of shifted copies.

A streak changes little from row to row, and a large flake little from pixel to pixel. Planes of long streaks or large
flakes are therefore coarser than the image; `enlarge_plane` brings them to full size.
"""

import math
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

BytePlane: TypeAlias = NDArray[np.uint8]
"""(height, width) uint8."""

Pitch: TypeAlias = tuple[int, int]
"""Image rows and columns per row and column of a plane."""

Sums: TypeAlias = NDArray[np.unsignedinteger]
"""Integers of a padded plane, flattened: a shift by rows and columns is then one offset."""

_MAX_ROWS = 6
_MAX_DRIFT = 0.8


def rows_per_plane_row(length: int, angle: float) -> int:
    """How many image rows, 1 to 6, one row of a plane of small grains may represent.

    length, angle: of the streak, as in `draw_streaks`. Over these rows it must move sideways by less than a pixel.
    Measured: image statistics stay those of single rows.
    """
    drift = _MAX_DRIFT / max(abs(math.tan(math.radians(angle))), 1e-6)
    return max(1, int(min(_MAX_ROWS, 2.6 + length / 49.0, length / 6.5, drift)))


def plane_size(height: int, width: int, pitch: Pitch) -> tuple[int, int]:
    """Height and width of a plane for an image of (height, width)."""
    return -(-height // pitch[0]), -(-width // pitch[1])


def enlarge_plane(plane: BytePlane, height: int, width: int, pitch: Pitch) -> BytePlane:
    """The plane at the size of the image, (height, width)."""
    if pitch == (1, 1):
        return plane
    size = (plane.shape[1] * pitch[1], plane.shape[0] * pitch[0])
    return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_CUBIC)[:height, :width], dtype=np.uint8)


def sideways_variance(length: int, angle: float, pitch: Pitch) -> float:
    """Variance, in columns squared, of the blur that equals a streak's bilinear weights on its two nearest columns.

    Second differences of weights s and 1 - s have the energy 6 - 20 s (1 - s), those of `smooth` 6 - 20 v + 17.5 v^2.
    """
    count, slope = _line_steps(length, angle, pitch)
    total = 0.0
    for row in range(1, count):
        share = row * slope % 1.0
        total += (count - row) * share * (1.0 - share)
    mean = 2.0 * total / (count * (count + 1))
    return (20.0 - math.sqrt(400.0 - 1400.0 * mean)) / 35.0


def max_length(rows: int, columns: int, pitch: Pitch) -> int:
    """Longest streak, in pixels, that is drawn on a plane: four times the shorter side of the image, odd.

    `draw_streaks` needs a border as wide as the streak is long: for an image of 8 x 200,000 pixels that would take
    gigabytes. The limit never applies to images at most four times as long as wide.
    """
    return 4 * min(rows * pitch[0], columns * pitch[1]) + 1


def draw_streaks(
    plane: BytePlane | NDArray[np.int16], length: int, angle: float, pitch: Pitch = (1, 1), gain: float = 1.0
) -> BytePlane:
    """Blur a plane along a line that is brightest at its upper end, with mirrored borders, and multiply by `gain`.

    plane: (rows, columns) of 0..255. length: of the line in image pixels, odd; at most `max_length`.
    angle: degrees clockwise from the vertical, between -60 and 60.
    The line is one pixel wide in every row; `smooth` with `sideways_variance`, before or after, antialiases it.
    Returns (rows, columns) uint8.
    """
    rows, columns = plane.shape
    count, slope = _line_steps(min(length, max_length(rows, columns, pitch)), angle, pitch)
    weight = count * (count + 1) // 2
    dtype = np.uint16 if 255 * weight < 1 << 16 else np.uint32
    above, beside = count // 2, int(abs(slope) * count) + 2
    padded = cv2.copyMakeBorder(plane, above, count - above + 1, beside, beside, cv2.BORDER_REFLECT_101)
    start, stride = beside - round(above * slope), columns + 2 * beside
    sums = _ramp_sum(padded.astype(dtype).reshape(-1), count, stride, slope)[start : start + rows * stride]
    streaks = sums.reshape(rows, stride)[:, :columns]
    if dtype is np.uint32:
        streaks = streaks.view(np.int32)
    return np.asarray(cv2.convertScaleAbs(streaks, alpha=gain / weight), dtype=np.uint8)


def smooth(plane: BytePlane, across: float, down: float, depth: int = cv2.CV_8U) -> NDArray[np.generic]:
    """Blur with a 3 x 3 kernel of these variances along rows and columns, at most 0.5; negative ones sharpen.

    depth: OpenCV type of the result.
    """
    row, column = (np.array([v / 2.0, 1.0 - v, v / 2.0], dtype=np.float32) for v in (across, down))
    return np.asarray(cv2.sepFilter2D(plane, depth, row, column, borderType=cv2.BORDER_REFLECT_101))


def _line_steps(length: int, angle: float, pitch: Pitch) -> tuple[int, float]:
    """Number of plane rows that a line covers, and columns that it shifts per row."""
    radians = math.radians(angle)
    return max(round((length - 1) * math.cos(radians) / pitch[0]), 1), -math.tan(radians) * pitch[0] / pitch[1]


def _ramp_sum(plane: Sums, count: int, stride: int, slope: float) -> Sums:
    """Sum `count` copies of a flat plane, each one row down and `slope` columns aside, with weights from `count` to 1.

    The uniform and the ramp sum of n copies give those of 2 n and n + 1. Shifts are rounded to whole pixels.
    """
    uniform = ramp = plane
    rows = 1
    for digit in bin(count)[3:]:
        shift = rows * stride + round(rows * slope)
        size = len(ramp) - shift
        lower = ramp[shift:]
        if rows == 1:
            uniform = plane[:size] + lower
            ramp = uniform + plane[:size]
        else:
            doubled = uniform[:size] * plane.dtype.type(rows)
            doubled += ramp[:size]
            doubled += lower
            ramp = doubled
            if 2 * rows < count:
                uniform = uniform[:size] + uniform[shift:]
        rows *= 2
        if digit == "1":
            shift = rows * stride + round(rows * slope)
            size = min(size, len(plane) - shift)
            ramp = ramp[:size] + uniform[:size]
            ramp += plane[shift : shift + size]
            rows += 1
            if rows < count:
                uniform = uniform[:size] + plane[shift : shift + size]
    return ramp
