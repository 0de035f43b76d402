"""A small picture of a whole map that has none of its own, so that looking at it from afar is quick."""

import math
import threading

import numpy as np
from numpy.typing import NDArray

from skypart.maps.patch import Box, Patch, PixelReader, shrunk

EDGE = 2048
"""Pixels along the longer edge of the small picture."""
LARGE = 16_000_000
"""Pixels from which on a map gets a small picture."""
STRIP = 8 << 20
"""Map pixels read at once while it is made."""


def with_overview(reader: PixelReader, width: int, height: int) -> PixelReader:
    """The reader of a map without overviews, with one if it is large."""
    return WithOverview(reader, width, height) if width * height >= LARGE else reader


class WithOverview:
    """Reads from `reader`; what is wanted coarser than the small picture comes from that, made once when needed."""

    def __init__(self, reader: PixelReader, width: int, height: int) -> None:
        self._reader = reader
        self._size = (width, height)
        self._step = max(2.0, max(width, height) / EDGE)
        self._small: NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    def read(self, box: Box, step_x: float, step_y: float) -> Patch:
        """As the reader's own `read`."""
        if min(step_x, step_y) < self._step:
            return self._reader.read(box, step_x, step_y)
        small = self._overview()
        scale_x, scale_y = self._size[0] / small.shape[1], self._size[1] / small.shape[0]
        left, top = int(box.left / scale_x), int(box.top / scale_y)
        part = small[top : math.ceil(box.bottom / scale_y), left : math.ceil(box.right / scale_x)]
        rows = math.ceil(part.shape[0] * scale_y / step_y)
        columns = math.ceil(part.shape[1] * scale_x / step_x)
        fewer = part if (rows, columns) == part.shape[:2] else shrunk(part, rows, columns)
        valid = fewer[..., 3] > 127
        steps = scale_x * part.shape[1] / columns, scale_y * part.shape[0] / rows
        rgb = np.ascontiguousarray(fewer[..., :3])
        return Patch(rgb, None if valid.all() else valid, left * scale_x, top * scale_y, *steps)

    def _overview(self) -> NDArray[np.uint8]:
        with self._lock:
            if self._small is None:
                self._small = self._make()
            return self._small

    def _make(self) -> NDArray[np.uint8]:
        """Every strip of the map, read at the small picture's step and put in its place; (h, w, 4)."""
        width, height = self._size
        columns, rows = math.ceil(width / self._step), math.ceil(height / self._step)
        small = np.zeros((rows, columns, 4), np.uint8)
        lines = max(1, int(STRIP / width / self._step))
        for first in range(0, rows, lines):
            last = min(rows, first + lines)
            top = first * height // rows
            patch = self._reader.read(Box(0, top, width, max(top + 1, last * height // rows)), self._step, self._step)
            down = _under(first, last, height / rows, patch.top, patch.step_y, patch.rgb.shape[0])
            across = _under(0, columns, width / columns, patch.left, patch.step_x, patch.rgb.shape[1])
            small[first:last, :, :3] = patch.rgb[np.ix_(down, across)]
            small[first:last, :, 3] = 255 if patch.valid is None else patch.valid[np.ix_(down, across)] * np.uint8(255)
        return small


def _under(first: int, last: int, step: float, start: float, patch_step: float, length: int) -> NDArray[np.intp]:
    """Lines of a patch under the middle of lines first..last - 1, which are `step` map pixels wide."""
    middle = (np.arange(first, last) + 0.5) * step
    return np.clip(((middle - start) / patch_step).astype(np.intp), 0, length - 1)
