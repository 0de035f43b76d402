"""A small picture of a whole map that has none of its own, so that looking at it from afar is quick."""

import math
import threading

import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.maps.patch import Box, Patch, PixelReader

EDGE = 2048
"""Pixels along the longer edge of the small picture."""
STRIP = 8 << 20
"""Map pixels read at once while it is made."""


class WithOverview:
    """Reads from `reader`; what is wanted coarser than the small picture comes from that, made once when needed."""

    def __init__(self, reader: PixelReader, width: int, height: int) -> None:
        self._reader = reader
        self._size = (width, height)
        self._step = max(2.0, max(width, height) / EDGE)
        self._small: tuple[RgbImage, NDArray[np.bool_]] | None = None
        self._lock = threading.Lock()

    def read(self, box: Box, step_x: float, step_y: float) -> Patch:
        """As the reader's own `read`."""
        if min(step_x, step_y) < self._step:
            return self._reader.read(box, step_x, step_y)
        rgb, valid = self._overview()
        scale_x, scale_y = self._size[0] / rgb.shape[1], self._size[1] / rgb.shape[0]
        left, top = int(box.left / scale_x), int(box.top / scale_y)
        part = np.s_[top : math.ceil(box.bottom / scale_y), left : math.ceil(box.right / scale_x)]
        known = None if valid[part].all() else valid[part]
        return Patch(rgb[part], known, left * scale_x, top * scale_y, scale_x, scale_y)

    def _overview(self) -> tuple[RgbImage, NDArray[np.bool_]]:
        with self._lock:
            if self._small is None:
                self._small = self._make()
            return self._small

    def _make(self) -> tuple[RgbImage, NDArray[np.bool_]]:
        """Every strip of the map, read at the small picture's step and put in its place."""
        width, height = self._size
        columns, rows = math.ceil(width / self._step), math.ceil(height / self._step)
        rgb, valid = np.zeros((rows, columns, 3), np.uint8), np.zeros((rows, columns), np.bool_)
        lines = max(1, int(STRIP / width / self._step))
        for first in range(0, rows, lines):
            last = min(rows, first + lines)
            strip = Box(0, first * height // rows, width, max(first * height // rows + 1, last * height // rows))
            patch = self._reader.read(strip, width / columns, height / rows)
            down = _under(first, last, height / rows, patch.top, patch.step_y, patch.rgb.shape[0])
            across = _under(0, columns, width / columns, patch.left, patch.step_x, patch.rgb.shape[1])
            rgb[first:last] = patch.rgb[np.ix_(down, across)]
            valid[first:last] = True if patch.valid is None else patch.valid[np.ix_(down, across)]
        return rgb, valid


def _under(first: int, last: int, step: float, start: float, patch_step: float, length: int) -> NDArray[np.intp]:
    """Lines of a patch under the middle of lines first..last - 1, which are `step` map pixels wide."""
    middle = (np.arange(first, last) + 0.5) * step
    return np.clip(((middle - start) / patch_step).astype(np.intp), 0, length - 1)
