"""Lift weak contrast, as fog, haze, dusk and glare leave it, to what a picture in clear air has."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage

CELLS = 16
"""Cells along an edge over which the contrast of a picture's regions is taken."""
SPREAD = 2.0
"""Deviation, in cells, of the Gaussian that joins them."""
WHOLE, REGION = 0.18 * 255, 0.12 * 255
"""Deviation of colours, of 0 to 255, below which the whole picture, and then a region of it, is lifted."""
MOST = 6.0
"""Largest gain of each."""
MIDDLE = 0.45 * 255
"""Brightness to which a picture is drawn as it is lifted: a mean one of clear air."""
LEVELLING = 2
"""Rises whenever `level` gives other pixels: what was embedded before is not comparable."""
_NOISE = 0.25
"""Deviation, of 0 to 255, that every region has at least: rounding's."""
_EMPTY = 0.02
"""Share of a picture from which on one black region at its rim is taken for ground that is not there."""


def level(image: RgbImage) -> RgbImage:
    """An (h, w, 3) uint8 picture, lifted where its contrast is weak: first the whole, then regions of it.

    Fog adds white and takes contrast away, more here than there. What is weak is stretched around its own colour until
    its deviation is `WHOLE` or `REGION`, and its brightness drawn to `MIDDLE` by as much as it was stretched. A picture
    of strong contrast everywhere stays as it is, and so does the black beyond a map's edge, which counts for nothing;
    the black that night leaves between what can be seen does count.
    """
    seen = _ground(image)
    if seen is None:
        return _regions(_whole(image, None), None)
    if cv2.countNonZero(seen) < _EMPTY * seen.size:
        return image
    lifted = _regions(_whole(image, seen), seen)
    lifted[seen == 0] = 0
    return lifted


def _ground(image: RgbImage) -> NDArray[np.uint8] | None:
    """(h, w) uint8, 0 where a large region of pure black at the rim shows that there is nothing; None: all is there."""
    black = cv2.inRange(image, (0, 0, 0), (0, 0, 0))
    height, width = black.shape
    if cv2.countNonZero(black) <= _EMPTY * black.size:
        return None
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(black, connectivity=4)
    left, top, wide, high, area = boxes.T
    rim = (left == 0) | (top == 0) | (left + wide == width) | (top + high == height)
    missing = rim & (area > _EMPTY * black.size)
    missing[0] = False  # label 0: what is not black
    if not missing.any():
        return None
    return np.where(missing[labels], np.uint8(0), np.uint8(255))


def _whole(image: RgbImage, seen: NDArray[np.uint8] | None) -> RgbImage:
    """(h, w, 3), lifted as one region; seen: (h, w), 0 where there is nothing."""
    mean, deviation = (found.ravel() for found in cv2.meanStdDev(image, mask=seen))
    gain = float(np.clip(WHOLE / max(float(deviation.mean()), _NOISE), 1, MOST))
    if gain == 1:
        return image
    drawn = mean + (MIDDLE - mean.mean()) * (1 - 1 / gain)
    curve = (np.arange(256)[:, None] - mean) * gain + drawn
    lifted: RgbImage = cv2.LUT(image, _bytes(curve)[None])
    return lifted


def _regions(image: RgbImage, seen: NDArray[np.uint8] | None) -> RgbImage:
    """(h, w, 3), its weak regions lifted; seen: (h, w), 0 where there is nothing."""
    picture = image.astype(np.float32)
    there = np.ones((1, 1, 1), dtype=np.float32)
    if seen is not None:
        picture *= (seen[..., None] > 0).astype(np.float32)
        there = np.maximum(_regional((seen > 0).astype(np.float32))[..., None], 1e-3)
    mean, square = (_regional(each) / there for each in (picture, picture * picture))
    deviation = np.sqrt(np.maximum((square - mean * mean).mean(axis=2, keepdims=True), _NOISE**2))
    gain = np.clip(REGION / deviation, 1, MOST)
    if gain.max() == 1:
        return image
    drawn = mean + (MIDDLE - mean.mean(axis=2, keepdims=True)) * (1 - 1 / gain)
    cells = np.concatenate([gain, drawn - mean * gain], axis=2).astype(np.float32)
    wide = cv2.resize(cells, image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    picture *= wide[..., :1]
    picture += wide[..., 1:]
    return _bytes(picture)


def _regional(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of (h, w[, 3]) over `CELLS` x `CELLS` regions, each joined with its neighbours: (cells, cells[, 3])."""
    cells = cv2.resize(picture, (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    joined: NDArray[np.float32] = cv2.GaussianBlur(cells, (0, 0), SPREAD, borderType=cv2.BORDER_REFLECT)
    return joined


def _bytes(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Rounded, and cut off at 0 and 255."""
    rounded: NDArray[np.uint8] = np.rint(np.clip(values, 0, 255)).astype(np.uint8)
    return rounded
