"""Motion blur along a line whose weights fall or rise linearly, as imgaug draws it."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.weather.noise import Plane

# From this kernel area on OpenCV's filter2D goes through Fourier transforms, which pays only with many non-zeros.
_DIRECT_AREA = 130
_FOURIER_TAPS = 80
_STEPS = 64.0


def line_kernel(length: int, angle: float, start: float = 1.0) -> Plane:
    """(length, length) weights, sum 1, on a line through the centre, `angle` degrees clockwise from the vertical.

    The weight runs linearly from `start` at the upper end to 1 - `start` at the lower one; `length` is odd.
    Pixels beside the line get bilinear shares. All is stepped in 1/255, as imgaug turns an 8-bit picture of the line.
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
    """Correlate a uint8 image (grey or colour) with a line kernel, borders mirrored.

    kernel: odd height and width. Unless it has very many non-zeros, it is cut into boxes around them that stay below
    the size from which OpenCV's filter goes through Fourier transforms.
    """
    if np.count_nonzero(kernel) > _FOURIER_TAPS:
        return np.asarray(cv2.filter2D(image, -1, kernel), dtype=np.uint8)
    boxes = _boxes(kernel, 0, 0)
    reach_y, reach_x = kernel.shape[0] // 2, kernel.shape[1] // 2
    height, width = image.shape[:2]
    padded = cv2.copyMakeBorder(image, reach_y, reach_y, reach_x, reach_x, cv2.BORDER_REFLECT_101)
    total: NDArray[np.int16] | None = None
    for top, left, box in boxes:
        window = padded[top : top + height + box.shape[0] - 1, left : left + width + box.shape[1] - 1]
        if len(boxes) == 1:
            return np.asarray(cv2.filter2D(window, -1, box, anchor=(0, 0))[:height, :width], dtype=np.uint8)
        part = cv2.filter2D(window, cv2.CV_16S, box * np.float32(_STEPS), anchor=(0, 0))[:height, :width]
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        return image
    return np.asarray(cv2.convertScaleAbs(total, alpha=1.0 / _STEPS), dtype=np.uint8)


def _boxes(kernel: Plane, top: int, left: int) -> list[tuple[int, int, Plane]]:
    """(top, left, weights) of boxes that together hold all non-zeros of a kernel whose corner is at (top, left)."""
    rows, columns = np.nonzero(kernel.any(axis=1))[0], np.nonzero(kernel.any(axis=0))[0]
    if rows.size == 0:
        return []
    box = kernel[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    top, left = top + int(rows[0]), left + int(columns[0])
    if box.size < _DIRECT_AREA:
        return [(top, left, np.ascontiguousarray(box))]
    if box.shape[0] >= box.shape[1]:
        middle = box.shape[0] // 2
        return _boxes(box[:middle], top, left) + _boxes(box[middle:], top + middle, left)
    middle = box.shape[1] // 2
    return _boxes(box[:, :middle], top, left) + _boxes(box[:, middle:], top, left + middle)
