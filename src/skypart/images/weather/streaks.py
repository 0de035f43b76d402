"""Motion blur along a line whose weights fall or rise linearly, as imgaug draws it."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.weather.canvas import BytePlane
from skypart.images.weather.noise import Plane

# From this kernel area on OpenCV's filter2D goes through Fourier transforms, which is slower than what is done here.
_DIRECT_AREA = 130
_STEPS = 64.0
_TAPS = 4
_PHASES = 64
_FINENESS = 0.3


def line_kernel(length: int, angle: float, start: float = 1.0) -> Plane:
    """(length, length) weights, sum 1, on a line through the centre, `angle` degrees clockwise from the vertical.

    The weight runs linearly from `start` at the upper end to 1 - `start` at the lower one; `length` is odd.
    Pixels beside the line get bilinear shares. All is stepped in 1/255, as imgaug turns an 8-bit picture of the line.
    """
    reach = length // 2
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    dy, dx = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    across, along = cosine * dx + sine * dy, cosine * dy - sine * dx
    ramp = np.floor(255.0 * np.linspace(start, 1.0 - start, length))
    profile = np.interp(along, np.arange(-reach - 1, reach + 2), np.concatenate([[0.0], ramp, [0.0]]), 0.0, 0.0)
    weights = np.round(np.maximum(1.0 - np.abs(across), 0.0) * profile)
    return np.asarray(weights / max(weights.sum(), 1.0), dtype=np.float32)


def motion_blur(image: NDArray[np.uint8], kernel: Plane) -> NDArray[np.uint8]:
    """Correlate a uint8 image (grey or colour) with a line kernel, borders mirrored.

    The kernel is cut into boxes around its non-zeros that stay below the size of OpenCV's Fourier filter.
    """
    boxes = _boxes(kernel, 0, 0)
    reach = kernel.shape[0] // 2
    height, width = image.shape[:2]
    padded = cv2.copyMakeBorder(image, reach, reach, reach, reach, cv2.BORDER_REFLECT_101)
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


def fall(drops: BytePlane, length: int, angle: float) -> BytePlane:
    """Blur a (h, w) uint8 plane along a line that is brightest at its upper end, borders mirrored.

    length: of the line in pixels, odd. angle: degrees clockwise from the vertical, between -60 and 60.
    Short lines are correlated directly; long ones in a sheared plane where they stand upright, at a cost that does
    not grow with their length.
    """
    rise = abs(np.tan(np.deg2rad(angle)))
    if length * (length * rise + 2.0) < _DIRECT_AREA:
        return motion_blur(drops, line_kernel(length, angle))
    return _fall_far(drops, length, angle)


def _fall_far(drops: BytePlane, length: int, angle: float) -> BytePlane:
    """Shear by whole pixels, sum down the columns with linear weights, shear back by fractions of pixels.

    A line between pixel columns shares every drop between its neighbours. Whole-pixel shears do not, so the shear back
    interpolates with just the blur that gives the same spread.
    """
    height, width = drops.shape
    taps = max(round(length * np.cos(np.deg2rad(angle))) - 1, 1)
    above = taps // 2
    drift = -np.tan(np.deg2rad(angle)) * np.arange(-above, height + taps - above)
    inner = drift[above : above + height]
    # In row y the picture's column x stands in the upright plane at x + position.
    base = int(np.ceil(inner.max())) + 1
    positions = base - inner
    starts = np.floor(positions).astype(np.intp) - 1
    upright = _shear(drops, np.round(drift).astype(np.intp) - base, above, width + int(starts.max()) + _TAPS - 1)
    sums = cv2.boxFilter(upright, cv2.CV_32F, (1, taps), anchor=(0, 0), normalize=False)
    steps = upright[:height].astype(np.float32)
    steps *= np.float32(taps)
    steps -= sums[1 : height + 1]
    weights = np.arange(taps, 0, -1, dtype=np.float32)
    weighted = weights @ upright[height:].astype(np.float32)
    fallen = np.empty((height, width + _TAPS - 1), dtype=np.float32)
    # Moving the window up a row adds taps * the new row - the box of the rows below it.
    for row, start in zip(range(height - 1, -1, -1), starts[::-1].tolist(), strict=True):
        weighted += steps[row]
        fallen[row] = weighted[start : start + width + _TAPS - 1]
    table = _interpolation(np.arange(_PHASES) / _PHASES, _line_spread(taps, angle)) / weights.sum()
    shares = table[((positions - starts - 1) * _PHASES).astype(np.intp)]
    mixed = fallen[:, :width] * shares[:, :1]
    part = np.empty_like(mixed)
    for tap in range(1, _TAPS):
        mixed += np.multiply(fallen[:, tap : tap + width], shares[:, tap : tap + 1], out=part)
    return np.asarray(cv2.convertScaleAbs(cv2.max(mixed, 0.0)), dtype=np.uint8)


def _shear(drops: BytePlane, shifts: NDArray[np.intp], above: int, span: int) -> BytePlane:
    """(rows, span): `above` mirrored rows, the plane, mirrored rows; column 0 is the picture's column `shifts[row]`."""
    height, width = drops.shape
    left, right = max(-int(shifts.min()), 0), max(span + int(shifts.max()) - width, 0)
    below = len(shifts) - height - above
    padded = cv2.copyMakeBorder(drops, above, below, left, right, cv2.BORDER_REFLECT_101)
    sheared = np.empty((len(shifts), span), dtype=np.uint8)
    for target, source, start in zip(sheared, padded, (shifts + left).tolist(), strict=True):
        target[:] = source[start : start + span]
    return sheared


def _line_spread(taps: int, angle: float) -> float:
    """`_spread` of the bilinear shares (sum 1) across the line, the mean along it."""
    cosine = np.cos(np.deg2rad(angle))
    centre = np.tan(np.deg2rad(angle)) * (np.arange(taps) - taps // 2)
    columns = np.round(centre)[:, None] + np.arange(-2, 3)
    shares = np.maximum(1.0 - np.abs(cosine * (columns - centre[:, None])), 0.0)
    energies = (_spread(shares / shares.sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    weights = np.arange(taps, 0, -1, dtype=np.float64) ** 2
    return float((weights * energies).sum() / weights.sum())


def _spread(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, k) shares to (n, 2k + 2) whose squares sum to energy and, in part, fineness of what they filter."""
    edge = np.zeros((len(shares), 2))
    padded = np.hstack([edge, shares, edge])
    return np.hstack([shares, _FINENESS * (padded[:, :-2] - 2.0 * padded[:, 1:-1] + padded[:, 2:])])


def _interpolation(fractions: NDArray[np.float64], spread: float) -> Plane:
    """(n, 4) weights that shift by a fraction of a pixel, sum 1, with the same `spread` at every fraction.

    They lie on the straight line through the smooth cubic B-spline and the sharp cubic of Catmull and Rom.
    """
    f, g = fractions[:, None], 1.0 - fractions[:, None]
    smooth = np.hstack([g**3, 4.0 - 3.0 * f * f * (1.0 + g), 4.0 - 3.0 * g * g * (1.0 + f), f**3]) / 6.0
    sharp = np.hstack([-f * g * g, 2.0 - f * f * (5.0 - 3.0 * f), 2.0 - g * g * (5.0 - 3.0 * g), -g * f * f]) / 2.0
    start, ahead = _spread(smooth), _spread(sharp - smooth)
    square = (ahead**2).sum(axis=1, keepdims=True)
    half = (start * ahead).sum(axis=1, keepdims=True)
    rest = (start**2).sum(axis=1, keepdims=True) - spread
    step = (np.sqrt(np.maximum(half**2 - square * rest, 0.0)) - half) / square
    return np.asarray(smooth + (sharp - smooth) * step, dtype=np.float32)
