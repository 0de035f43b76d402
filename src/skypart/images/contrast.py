"""Contrast stretch: restore the contrast that fog, haze, dusk and glare take away."""

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage

CONTRAST_VERSION = 2
"""Increase it whenever `stretch_contrast` returns other pixels: old embeddings are then not comparable."""

CELLS = 16
"""Cells along each edge in which local contrast is measured."""
BLUR_CELLS = 2.0
"""Standard deviation, in cells, of the Gaussian that blends neighbouring cells."""
GLOBAL_STD, LOCAL_STD = 0.18 * 255, 0.12 * 255
"""Standard deviation (of 0..255) below which the whole image, and then a region of it, is stretched."""
MAX_GAIN = 6.0
"""Largest gain of each of the two stretches."""
TARGET_BRIGHTNESS = 0.45 * 255
"""Brightness that stretched images are moved towards: the mean of images in clear air."""
_MIN_STD = 0.25
"""Smallest standard deviation (of 0..255) assumed for a region: that of rounding."""
_MIN_EMPTY = 0.02
"""Share of the image from which on a black region at the border counts as missing map."""


def stretch_contrast(image: RgbImage) -> RgbImage:
    """Stretch weak contrast in an (h, w, 3) uint8 image, first globally, then per region.

    Fog adds white and reduces contrast, by different amounts in different regions. Weak contrast is stretched around
    the mean colour until its standard deviation is `GLOBAL_STD` or `LOCAL_STD`. Brightness moves towards
    `TARGET_BRIGHTNESS` in proportion to the stretch. An image with strong contrast everywhere is returned unchanged.

    Black beyond a map's edge stays black and is ignored in the statistics; scattered black, as in night photos, is not.
    """
    mask = _map_mask(image)
    if mask is None:
        return _stretch_regions(_stretch_globally(image, None), None)
    if cv2.countNonZero(mask) < _MIN_EMPTY * mask.size:
        return image
    stretched = _stretch_regions(_stretch_globally(image, mask), mask)
    stretched[mask == 0] = 0
    return stretched


def _map_mask(image: RgbImage) -> NDArray[np.uint8] | None:
    """(h, w) uint8 mask: 0 in large black regions at the border, 255 elsewhere; None if there are no such regions."""
    black = cv2.inRange(image, (0, 0, 0), (0, 0, 0))
    height, width = black.shape
    if cv2.countNonZero(black) <= _MIN_EMPTY * black.size:
        return None
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(black, connectivity=4)
    left, top, box_width, box_height, area = boxes.T
    at_border = (left == 0) | (top == 0) | (left + box_width == width) | (top + box_height == height)
    missing = at_border & (area > _MIN_EMPTY * black.size)
    missing[0] = False  # label 0: all that is not black
    if not missing.any():
        return None
    return np.where(missing[labels], np.uint8(0), np.uint8(255))


def _stretch_globally(image: RgbImage, mask: NDArray[np.uint8] | None) -> RgbImage:
    """(h, w, 3), stretched as a whole. mask: (h, w), 0 where pixels are missing."""
    mean, deviation = (found.ravel() for found in cv2.meanStdDev(image, mask=mask))
    gain = float(np.clip(GLOBAL_STD / max(float(deviation.mean()), _MIN_STD), 1, MAX_GAIN))
    if gain == 1:
        return image
    target = mean + (TARGET_BRIGHTNESS - mean.mean()) * (1 - 1 / gain)
    curve = (np.arange(256)[:, None] - mean) * gain + target
    stretched: RgbImage = cv2.LUT(image, _to_bytes(curve)[None])
    return stretched


def _stretch_regions(image: RgbImage, mask: NDArray[np.uint8] | None) -> RgbImage:
    """(h, w, 3), with weak regions stretched. mask: (h, w), 0 where pixels are missing."""
    pixels = image.astype(np.float32)
    weight = np.ones((1, 1, 1), dtype=np.float32)
    if mask is not None:
        pixels *= (mask[..., None] > 0).astype(np.float32)
        weight = np.maximum(_regional_mean((mask > 0).astype(np.float32))[..., None], 1e-3)
    mean, square = (_regional_mean(each) / weight for each in (pixels, pixels * pixels))
    deviation = np.sqrt(np.maximum((square - mean * mean).mean(axis=2, keepdims=True), _MIN_STD**2))
    gain = np.clip(LOCAL_STD / deviation, 1, MAX_GAIN)
    if gain.max() == 1:
        return image
    target = mean + (TARGET_BRIGHTNESS - mean.mean(axis=2, keepdims=True)) * (1 - 1 / gain)
    cells = np.concatenate([gain, target - mean * gain], axis=2).astype(np.float32)
    per_pixel = cv2.resize(cells, image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    pixels *= per_pixel[..., :1]
    pixels += per_pixel[..., 1:]
    return _to_bytes(pixels)


def _regional_mean(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of (h, w[, 3]) over `CELLS` x `CELLS` regions, blended with their neighbours: (cells, cells[, 3])."""
    cells = cv2.resize(pixels, (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    blended: NDArray[np.float32] = cv2.GaussianBlur(cells, (0, 0), BLUR_CELLS, borderType=cv2.BORDER_REFLECT)
    return blended


def _to_bytes(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Round and clip to uint8."""
    rounded: NDArray[np.uint8] = np.rint(np.clip(values, 0, 255)).astype(np.uint8)
    return rounded
