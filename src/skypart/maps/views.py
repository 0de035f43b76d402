"""Square views of a map: where to cut them, how to read one, which to leave out."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import Degrees, FloatArray, LocalFrame
from skypart.images.decode import RgbImage
from skypart.maps.addresses import told
from skypart.maps.grid import Grid, Point
from skypart.maps.map_source import MapSource

SLACK = 0.05
"""Share of its edge by which a view may be wider than the map."""
LEAST_PIXELS = 4
"""Map pixels along the edge of a view below which it shows nothing."""
LEAST_VALID = 0.5
LEAST_CONTRAST = 2.0
"""Standard deviation of grey levels, 0..255, below which a view shows nothing."""


class View(NamedTuple):
    """rgb (size, size, 3), black outside the map; valid_share: share of pixels inside it, 0..1."""

    rgb: RgbImage
    valid_share: float


class ViewPlan(Sequence[Footprint]):
    """Views to cut, in a fixed order. columns (n, 4): latitude, longitude, metres, rotation."""

    def __init__(self, columns: FloatArray) -> None:
        self.columns = columns

    def __len__(self) -> int:
        """How many views."""
        return len(self.columns)

    @overload
    def __getitem__(self, index: int) -> Footprint: ...
    @overload
    def __getitem__(self, index: slice) -> "ViewPlan": ...
    def __getitem__(self, index: int | slice) -> "Footprint | ViewPlan":
        """One footprint, or the plan of some."""
        if isinstance(index, slice):
            return ViewPlan(self.columns[index])
        latitude, longitude, metres, rotation = self.columns[index].tolist()
        return Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)

    def __iter__(self) -> Iterator[Footprint]:
        """Footprint after footprint."""
        return (self[index] for index in range(len(self)))


def ground_at(footprint: Footprint, x: ArrayLike, y: ArrayLike) -> Degrees:
    """Where points of a view lie; x to the right and y down, 0..1 across it; any shape, broadcast."""
    right = (np.asarray(x, dtype=np.float64) - 0.5) * footprint.metres
    up = (0.5 - np.asarray(y, dtype=np.float64)) * footprint.metres
    turn = math.radians(footprint.rotation)
    frame = LocalFrame(latitude=footprint.latitude, longitude=footprint.longitude)
    return frame.to_degrees(right * math.cos(turn) + up * math.sin(turn), up * math.cos(turn) - right * math.sin(turn))


def read_view(source: MapSource, footprint: Footprint, size: int) -> View:
    """The map's picture of a footprint, size x size pixels."""

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        return ground_at(footprint, (columns[None, :] + 0.5) / size, (rows[:, None] + 0.5) / size)

    rgb, valid = source.draw(locate, (size, size))
    return View(rgb, float(valid.mean()))


def is_empty(rgb: RgbImage, valid_share: float) -> bool:
    """Whether a view (h, w, 3) is not worth indexing.

    So it is when less than half of it lies inside the map, when more than half is pure black or white (a border
    without a no-data value), or when it is all one colour.
    """
    if valid_share < LEAST_VALID:
        return True
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    if max(np.mean(grey == 0), np.mean(grey == 255)) > 0.5:
        return True
    return float(rgb.reshape(-1, 3).std(axis=0).max()) < LEAST_CONTRAST


def plan_views(source: MapSource, sizes_m: Sequence[float], overlap: float, rotations: Sequence[float]) -> ViewPlan:
    """Squares of each size in metres that cover the map, inside its edges; no pixel is read.

    overlap: share, 0..1, of its edge that a view has in common with its neighbour, at least. rotations: compass
    degrees that are up, each cut at every place. Sizes that the map is too small for are left out; of one that it is
    too coarse for there would be more views than pixels, and it is refused.
    """
    if not sizes_m or min(sizes_m) <= 0 or not 0 <= overlap < 1 or not rotations:
        raise SkyPartError(
            f"views of {list(sizes_m)} m, overlap {overlap}, rotations {list(rotations)} cannot be cut; "
            "give sizes above 0, an overlap from 0 to below 1 and one rotation or more"
        )
    if min(sizes_m) < LEAST_PIXELS * source.gsd_m:
        raise SkyPartError(
            f"{told(source.paths[0])}: pixels of {_length(source.gsd_m)} are too coarse for views of "
            f"{_length(min(sizes_m))}; give larger --sizes or a finer map"
        )
    blocks = []
    for size in sizes_m:
        for grid in source.grids:
            places = _places(grid, size, overlap)
            latitude, longitude = (np.repeat(values, len(rotations)) for values in places)
            turns = np.tile(np.asarray(rotations, dtype=np.float64) % 360.0, len(places.latitude))
            blocks.append(np.stack([latitude, longitude, np.full_like(latitude, size), turns], axis=1))
    columns = np.concatenate(blocks)
    if not len(columns):
        extent = [(grid.width * m.x[0], grid.height * m.y[0]) for grid in source.grids for m in [_middle_metres(grid)]]
        width, height = max(extent, key=min)
        raise SkyPartError(
            f"{told(source.paths[0])}: the map is {width:.0f} x {height:.0f} m, smaller than one view of "
            f"{min(sizes_m):g} m; give smaller view sizes or a larger map"
        )
    return ViewPlan(columns)


def _length(metres: float) -> str:
    return f"{metres / 1000:.3g} km" if metres >= 1000 else f"{metres:.3g} m"


def _middle_metres(grid: Grid) -> Point:
    return grid.pixel_metres(grid.width / 2, grid.height / 2)


def _places(grid: Grid, size: float, overlap: float) -> Degrees:
    """(n,) centres of squares along the rows of a grid, none if it is smaller than one."""
    down = grid.pixel_metres(grid.width / 2, np.linspace(0.5, grid.height - 0.5, 5)).y
    rows = _positions(grid.height, float(down.max()), float(down.min()), size, overlap)
    spots = []
    for row, across in zip(rows, grid.pixel_metres(grid.width / 2, rows).x, strict=True) if len(rows) else ():
        columns = _positions(grid.width, float(across), float(across), size, overlap)
        spots.append(np.stack([columns, np.full_like(columns, row)]))
    column, line = np.concatenate(spots, axis=1) if spots else np.zeros((2, 0))
    return grid.to_degrees(column, line)


def _positions(length: int, widest: float, narrowest: float, size: float, overlap: float) -> FloatArray:
    """Pixels at which squares of `size` metres are centred along `length` pixels of so many metres each."""
    spare = length - size / narrowest
    if spare < 0:
        fits = length * narrowest >= size * (1 - SLACK)
        return np.array([length / 2]) if fits else np.zeros(0)
    steps = math.ceil(spare * widest / (size * (1 - overlap)) - 1e-9)
    half = size / narrowest / 2
    return np.linspace(half, length - half, steps + 1) if steps else np.array([length / 2])
