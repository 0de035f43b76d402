"""The streak that a falling grain leaves: a plane blurred along a line, by doubling sums of its shifted copies.

A line changes little from row to row, and a large grain little from pixel to pixel. Planes of long lines, or of large
grains, are therefore coarser than the picture; `refine` brings them to its size.
"""

import math
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

BytePlane: TypeAlias = NDArray[np.uint8]
"""(height, width) uint8."""

Pitch: TypeAlias = tuple[int, int]
"""Rows and columns of the picture for each row and column of a plane."""

Sums: TypeAlias = NDArray[np.unsignedinteger]
"""Whole numbers, in a plane or flat: with borders, row after row, a shift by rows and columns is one offset."""

_MAX_STEP = 6
_MAX_DRIFT = 0.8


def rows_apart(length: int, angle: float) -> int:
    """How many rows of the picture, 1 to 6, one row of a plane of small grains may stand for.

    length, angle: of the line as in `fall`; over these rows it must move sideways by less than a pixel. Measured:
    statistics of pictures stay those of single rows.
    """
    drift = _MAX_DRIFT / max(abs(math.tan(math.radians(angle))), 1e-6)
    return max(1, int(min(_MAX_STEP, 2.6 + length / 49.0, length / 6.5, drift)))


def coarse_size(height: int, width: int, pitch: Pitch) -> tuple[int, int]:
    """Height and width of a plane for a picture of (height, width)."""
    return -(-height // pitch[0]), -(-width // pitch[1])


def refine(plane: BytePlane, height: int, width: int, pitch: Pitch) -> BytePlane:
    """The plane at the size of the picture, (height, width)."""
    if pitch == (1, 1):
        return plane
    size = (plane.shape[1] * pitch[1], plane.shape[0] * pitch[0])
    return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_CUBIC)[:height, :width], dtype=np.uint8)


def sideways_variance(length: int, angle: float, pitch: Pitch) -> float:
    """Variance, in columns squared, of a blur as sharp as the shares that a line gives to the two columns beside it.

    Second differences of shares s and 1 - s have the energy 6 - 20 s (1 - s), those of `smooth` 6 - 20 v + 17.5 v^2.
    """
    count, slope = _way(length, angle, pitch)
    total = 0.0
    for row in range(1, count):
        share = row * slope % 1.0
        total += (count - row) * share * (1.0 - share)
    mean = 2.0 * total / (count * (count + 1))
    return (20.0 - math.sqrt(400.0 - 1400.0 * mean)) / 35.0


def longest_line(rows: int, columns: int, pitch: Pitch) -> int:
    """Pixels of the longest line that is drawn on a plane: four times the shorter side of its picture, odd.

    `fall` needs a border as wide as the line is long: of 8 x 200,000 pixels, with lines as long as the longer side asks
    for, it would take gigabytes. In pictures at most four times as long as wide no line is so long.
    """
    return 4 * min(rows * pitch[0], columns * pitch[1]) + 1


def fall(
    plane: BytePlane | NDArray[np.int16], length: int, angle: float, pitch: Pitch = (1, 1), gain: float = 1.0
) -> BytePlane:
    """Blur a plane along a line that is brightest at its upper end, borders mirrored, and times `gain`.

    plane: (rows, columns) of 0..255. length: of the line in pixels of the picture, odd; at most `longest_line`.
    angle: degrees clockwise from the vertical, between -60 and 60.
    The line is one pixel wide in every row; `smooth` by `sideways_variance`, before or after, gives it its shares.
    Returns (rows, columns) uint8.
    """
    rows, columns = plane.shape
    count, slope = _way(min(length, longest_line(rows, columns, pitch)), angle, pitch)
    weight = count * (count + 1) // 2
    kind = np.uint16 if 255 * weight < 1 << 16 else np.uint32
    above, beside = count // 2, int(abs(slope) * count) + 2
    padded = cv2.copyMakeBorder(plane, above, count - above + 1, beside, beside, cv2.BORDER_REFLECT_101)
    start, stride = beside - round(above * slope), columns + 2 * beside
    sums = _ramp(padded.astype(kind).reshape(-1), count, stride, slope)[start : start + rows * stride]
    fallen = sums.reshape(rows, stride)[:, :columns]
    if kind is np.uint32:
        fallen = fallen.view(np.int32)
    return np.asarray(cv2.convertScaleAbs(fallen, alpha=gain / weight), dtype=np.uint8)


def smooth(plane: BytePlane, across: float, down: float, depth: int = cv2.CV_8U) -> NDArray[np.generic]:
    """Blur over 3 x 3 pixels with these variances, at most 0.5, along rows and columns; below 0 they sharpen.

    depth: type of the result.
    """
    row, column = (np.array([v / 2.0, 1.0 - v, v / 2.0], dtype=np.float32) for v in (across, down))
    return np.asarray(cv2.sepFilter2D(plane, depth, row, column, borderType=cv2.BORDER_REFLECT_101))


def _way(length: int, angle: float, pitch: Pitch) -> tuple[int, float]:
    """Number of rows of a plane that a line runs over, and columns that it moves aside from row to row."""
    radians = math.radians(angle)
    return max(round((length - 1) * math.cos(radians) / pitch[0]), 1), -math.tan(radians) * pitch[0] / pitch[1]


def _ramp(plane: Sums, count: int, stride: int, slope: float) -> Sums:
    """Sum `count` copies of a flat plane, each one row further down and `slope` columns aside, weights falling to 1.

    The even and the falling sum of n copies give those of 2 n and of n + 1; shifts are rounded to whole pixels.
    """
    even = ramp = plane
    rows = 1
    for digit in bin(count)[3:]:
        shift = rows * stride + round(rows * slope)
        size = len(ramp) - shift
        lower = ramp[shift:]
        if rows == 1:
            even = plane[:size] + lower
            ramp = even + plane[:size]
        else:
            falling = even[:size] * plane.dtype.type(rows)
            falling += ramp[:size]
            falling += lower
            ramp = falling
            if 2 * rows < count:
                even = even[:size] + even[shift:]
        rows *= 2
        if digit == "1":
            shift = rows * stride + round(rows * slope)
            size = min(size, len(plane) - shift)
            ramp = ramp[:size] + even[:size]
            ramp += plane[shift : shift + size]
            rows += 1
            if rows < count:
                even = even[:size] + plane[shift : shift + size]
    return ramp
