"""Reading map pixels: rectangular pieces at a chosen resolution, and overviews for maps that have none."""

import math
import threading
from typing import NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage

OVERVIEW_EDGE = 2048
"""Pixels along the longer edge of an overview."""
OVERVIEW_FROM = 16_000_000
"""Number of pixels from which a map without overviews gets one."""
STRIP_PIXELS = 8 << 20
"""Map pixels read at once while an overview is built."""


class PixelBox(NamedTuple):
    """Whole pixels of a map: columns left..right - 1, rows top..bottom - 1."""

    left: int
    top: int
    right: int
    bottom: int


class PixelPatch(NamedTuple):
    """Pixels read from a map, at its own resolution or coarser.

    rgb (h, w, 3). valid (h, w), or None where all pixels are valid. Column j of the patch covers the map columns
    left + j * step_x to left + (j + 1) * step_x; rows likewise.
    """

    rgb: RgbImage
    valid: NDArray[np.bool_] | None
    left: float
    top: float
    step_x: float
    step_y: float


class PixelReader(Protocol):
    """Reads pieces of one image of a map. Thread-safe."""

    def read(self, box: PixelBox, step_x: float, step_y: float) -> PixelPatch:
        """Pixels that cover at least `box`, each averaged over at most step_x x step_y (both >= 1) map pixels."""


def shrink(rgba: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """An image (h, w, 4) averaged to (height, width, 4); transparent pixels have no weight."""
    alpha = rgba[..., 3:].astype(np.float32) / 255.0
    weighted = np.concatenate([rgba[..., :3] * alpha, alpha], axis=2)
    fewer: NDArray[np.float32] = cv2.resize(weighted, (width, height), interpolation=cv2.INTER_AREA)
    fewer = fewer.reshape(height, width, 4)
    fewer[..., :3] /= np.maximum(fewer[..., 3:], 1e-6)
    fewer[..., 3] *= 255.0
    return np.rint(fewer).astype(np.uint8)


def with_overview(reader: PixelReader, width: int, height: int) -> PixelReader:
    """The reader of a map of width x height pixels without overviews; a large map gets one."""
    return OverviewReader(reader, width, height) if width * height >= OVERVIEW_FROM else reader


class OverviewReader:
    """Wraps `reader`; coarse requests are served from an overview, which is built when first needed."""

    def __init__(self, reader: PixelReader, width: int, height: int) -> None:
        self._reader = reader
        self._size = (width, height)
        self._step = max(2.0, max(width, height) / OVERVIEW_EDGE)
        self._overview: NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    def read(self, box: PixelBox, step_x: float, step_y: float) -> PixelPatch:
        """See `PixelReader.read`."""
        if min(step_x, step_y) < self._step:
            return self._reader.read(box, step_x, step_y)
        overview = self._get_overview()
        scale_x, scale_y = self._size[0] / overview.shape[1], self._size[1] / overview.shape[0]
        left, top = int(box.left / scale_x), int(box.top / scale_y)
        piece = overview[top : math.ceil(box.bottom / scale_y), left : math.ceil(box.right / scale_x)]
        rows = math.ceil(piece.shape[0] * scale_y / step_y)
        columns = math.ceil(piece.shape[1] * scale_x / step_x)
        fewer = piece if (rows, columns) == piece.shape[:2] else shrink(piece, rows, columns)
        valid = fewer[..., 3] > 127
        steps = scale_x * piece.shape[1] / columns, scale_y * piece.shape[0] / rows
        rgb = np.ascontiguousarray(fewer[..., :3])
        return PixelPatch(rgb, None if valid.all() else valid, left * scale_x, top * scale_y, *steps)

    def _get_overview(self) -> NDArray[np.uint8]:
        with self._lock:
            if self._overview is None:
                self._overview = self._build_overview()
            return self._overview

    def _build_overview(self) -> NDArray[np.uint8]:
        """Read the map strip by strip at the overview's resolution; (h, w, 4)."""
        width, height = self._size
        columns, rows = math.ceil(width / self._step), math.ceil(height / self._step)
        overview = np.zeros((rows, columns, 4), np.uint8)
        lines = max(1, int(STRIP_PIXELS / width / self._step))
        for first in range(0, rows, lines):
            last = min(rows, first + lines)
            top = first * height // rows
            box = PixelBox(0, top, width, max(top + 1, last * height // rows))
            patch = self._reader.read(box, self._step, self._step)
            down = _nearest_lines(first, last, height / rows, patch.top, patch.step_y, patch.rgb.shape[0])
            across = _nearest_lines(0, columns, width / columns, patch.left, patch.step_x, patch.rgb.shape[1])
            alpha = 255 if patch.valid is None else patch.valid[np.ix_(down, across)] * np.uint8(255)
            overview[first:last, :, :3] = patch.rgb[np.ix_(down, across)]
            overview[first:last, :, 3] = alpha
        return overview


def _nearest_lines(
    first: int, last: int, step: float, start: float, patch_step: float, length: int
) -> NDArray[np.intp]:
    """Indices of the patch lines at the centres of lines first..last - 1, which are `step` map pixels wide."""
    centre = (np.arange(first, last) + 0.5) * step
    return np.clip(((centre - start) / patch_step).astype(np.intp), 0, length - 1)
