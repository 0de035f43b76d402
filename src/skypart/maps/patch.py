"""A piece of a map as pixels, and what can read one."""

from typing import NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage


class Box(NamedTuple):
    """Whole pixels of a map: columns left..right - 1, rows top..bottom - 1."""

    left: int
    top: int
    right: int
    bottom: int


class Patch(NamedTuple):
    """Pixels read from a map, perhaps coarser than its own.

    rgb (h, w, 3); valid (h, w), or None where all are. Column j of the patch covers columns left + j * step_x to
    left + (j + 1) * step_x of the map; rows likewise.
    """

    rgb: RgbImage
    valid: NDArray[np.bool_] | None
    left: float
    top: float
    step_x: float
    step_y: float


class PixelReader(Protocol):
    """Reads pieces of one picture; safe to call from several threads."""

    def read(self, box: Box, step_x: float, step_y: float) -> Patch:
        """The pixels of at least `box`, each averaged over at most step_x x step_y (both >= 1) map pixels."""


def shrunk(rgba: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """A picture (h, w, 4) averaged to fewer pixels, the transparent ones without weight."""
    alpha = rgba[..., 3:].astype(np.float32) / 255.0
    weighted = np.concatenate([rgba[..., :3] * alpha, alpha], axis=2)
    fewer: NDArray[np.float32] = cv2.resize(weighted, (width, height), interpolation=cv2.INTER_AREA)
    fewer = fewer.reshape(height, width, 4)
    fewer[..., :3] /= np.maximum(fewer[..., 3:], 1e-6)
    fewer[..., 3] *= 255.0
    return np.rint(fewer).astype(np.uint8)
