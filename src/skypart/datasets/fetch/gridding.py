"""Rasterise coloured points to an orthophoto and a surface model on the same grid."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.datasets.fetch.clouds import Points
from skypart.errors import SkyPartError

TOP_M = 1.0
"""Metres: points at most this far below the highest of their cell contribute to its colour."""
FILL_CELLS = 3.0
"""Cells without points copy the nearest cell up to this distance; larger holes stay empty."""
STEP_M = 0.1
JPEG_QUALITY = 93


@dataclass(frozen=True)
class Grid:
    """A north-up grid. low: lower left corner; unit_m: metres per unit of the points; base: height of zero metres.

    base and low are in units of the points; gsd: cell edge in metres; width, height: in cells; zmin: metres above base.
    """

    low: tuple[float, float]
    unit_m: float
    gsd: float
    width: int
    height: int
    zmin: float
    base: float = 0.0

    def cells(self, points: Points) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Flat cell index of each point in the grid, row 0 in the north, and a mask of those points."""
        column = np.floor((points.x - self.low[0]) * self.unit_m / self.gsd).astype(np.intp)
        row = self.height - 1 - np.floor((points.y - self.low[1]) * self.unit_m / self.gsd).astype(np.intp)
        inside = (column >= 0) & (column < self.width) & (row >= 0) & (row < self.height)
        return (row * self.width + column)[inside], inside

    def overlaps(self, low: tuple[float, float, float], edge: float) -> bool:
        """Whether a cube, in units of the points, overlaps the grid."""
        right = self.low[0] + self.width * self.gsd / self.unit_m
        top = self.low[1] + self.height * self.gsd / self.unit_m
        return low[0] <= right and low[0] + edge >= self.low[0] and low[1] <= top and low[1] + edge >= self.low[1]


@dataclass(frozen=True)
class Surface:
    """rgb (h, w, 3) uint8 and height (h, w) metres above the grid's base; valid (h, w): where there are values."""

    rgb: NDArray[np.uint8]
    height: NDArray[np.float32]
    valid: NDArray[np.bool_]


def rasterise(nodes: Callable[[], Iterable[Points]], grid: Grid) -> Surface:
    """The highest point of each cell and the mean colour of the points near it; iterates over `nodes` twice."""
    count = grid.width * grid.height
    top = np.full(count, -np.inf, dtype=np.float32)
    for points in nodes():
        cell, inside = grid.cells(points)
        np.maximum.at(top, cell, _heights_m(points, inside, grid))
    seen = np.isfinite(top)
    if not seen.any():
        raise SkyPartError("no downloaded point is inside the map; the source has changed")
    sums = np.zeros((count, 3), dtype=np.float64)
    number = np.zeros(count, dtype=np.int64)
    for points in nodes():
        cell, inside = grid.cells(points)
        near = _heights_m(points, inside, grid) >= top[cell] - TOP_M
        np.add.at(sums, cell[near], points.rgb[inside][near])
        np.add.at(number, cell[near], 1)
    rgb = np.rint(sums / np.maximum(number, 1)[:, None]).astype(np.uint8)
    shape = (grid.height, grid.width)
    return _fill_holes(rgb.reshape(*shape, 3), top.reshape(shape), seen.reshape(shape))


def _heights_m(points: Points, inside: NDArray[np.bool_], grid: Grid) -> NDArray[np.float32]:
    """Heights in metres above the base of the points inside."""
    return ((points.z[inside] - grid.base) * grid.unit_m).astype(np.float32)


def _fill_holes(rgb: NDArray[np.uint8], height: NDArray[np.float32], seen: NDArray[np.bool_]) -> Surface:
    """Fill small holes from the nearest cell."""
    distance, label = cv2.distanceTransformWithLabels(
        (~seen).astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    of_label = np.zeros(int(label.max()) + 1, dtype=np.intp)
    of_label[label[seen]] = np.flatnonzero(seen)
    nearest = of_label[label]
    valid = distance <= FILL_CELLS
    filled = rgb.reshape(-1, 3)[nearest]
    filled[~valid] = 0
    heights = np.where(valid, height.reshape(-1)[nearest], 0.0).astype(np.float32)
    return Surface(filled, heights, valid)


def write_surface(surface: Surface, grid: Grid, folder: Path, stem: str, meta_name: str, facts: dict[str, Any]) -> None:
    """Write STEM_ortho.jpg, STEM_dsm.png and, last, the meta file that makes them a complete map."""
    steps = np.rint((surface.height - grid.zmin) / STEP_M) + 1
    coded = np.where(surface.valid, np.clip(steps, 1, 65535), 0).astype(np.uint16)
    with atomic_path(folder / f"{stem}_dsm.png") as temporary:
        Image.fromarray(coded).save(temporary, optimize=True)
    with atomic_path(folder / f"{stem}_ortho.jpg") as temporary:
        Image.fromarray(surface.rgb).save(temporary, quality=JPEG_QUALITY)
    write_text(folder / meta_name, meta_text(grid, facts))


def meta_text(grid: Grid, facts: dict[str, Any]) -> str:
    """The meta file of a map, in JSON."""
    meta = {
        "gsd_m": grid.gsd,
        "width": grid.width,
        "height": grid.height,
        "dsm": "uint16 PNG on the same grid: height_m = zmin_m + (value-1)*step_m, value 0 = no data",
        "zmin_m": grid.zmin,
        "step_m": STEP_M,
        "row0": "north",
        **facts,
    }
    return json.dumps(meta, indent=1)
