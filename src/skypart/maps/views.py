"""Square views of a map: where to cut them, how to read one, and which to skip."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import Degrees, FloatArray, LocalFrame
from skypart.images.decode import RgbImage
from skypart.maps.files import redact_address
from skypart.maps.grid import MapGrid, Point
from skypart.maps.map_source import MapSource

MAX_OVERHANG = 0.05
"""Share of its edge by which a view may be wider than the map."""
MIN_PIXELS = 4
"""Minimum number of map pixels along the edge of a view."""
MAX_VIEWS = 50_000_000
"""Of one map; more mean that its size or its coordinate system is wrong."""
MIN_VALID = 0.5
MIN_CONTRAST = 2.0
"""Standard deviation of colour values, 0..255, below which a view counts as empty."""


@dataclass(frozen=True)
class ViewOptions:
    """How maps are cut into views.

    sizes_m: edges of the square views in metres; several, because the altitude of a photo may be unknown. overlap:
    share of its edge that a view has in common with its neighbour. rotations: number of directions, evenly spaced, in
    which each view is embedded.
    """

    sizes_m: tuple[float, ...] = (100.0, 160.0, 250.0)
    overlap: float = 0.5
    rotations: int = 1

    def __post_init__(self) -> None:
        """Raise if the options are invalid."""
        if not self.sizes_m or not all(0 < size < math.inf for size in self.sizes_m):
            raise SkyPartError("--sizes must be metres greater than 0, for instance --sizes 100,160,250")
        if not 0 <= self.overlap <= 0.9:
            raise SkyPartError("--overlap must be between 0 and 0.9")
        if not 1 <= self.rotations <= 36:
            raise SkyPartError("--rotations must be between 1 and 36")

    @property
    def angles(self) -> tuple[float, ...]:
        """Rotations of the views: compass degrees that are up."""
        return tuple(360.0 * turn / self.rotations for turn in range(self.rotations))


def view_options(sizes: str, overlap: float | None, rotations: int | None) -> ViewOptions | None:
    """Parse the command-line options; None if none was given."""
    if not sizes and overlap is None and rotations is None:
        return None
    default = ViewOptions()
    try:
        metres = tuple(float(part) for part in sizes.split(",")) if sizes else default.sizes_m
    except ValueError as error:
        raise SkyPartError(f"--sizes {sizes}: give metres separated by commas, for instance 100,160,250") from error
    return ViewOptions(
        metres,
        default.overlap if overlap is None else overlap,
        default.rotations if rotations is None else rotations,
    )


class View(NamedTuple):
    """rgb (size, size, 3), black outside the map. valid_share: share of pixels inside the map, 0..1."""

    rgb: RgbImage
    valid_share: float


class ViewPlan(Sequence[Footprint]):
    """Views to cut, in a fixed order. columns (n, 4): latitude, longitude, metres, rotation."""

    def __init__(self, columns: FloatArray) -> None:
        self.columns = columns

    def __len__(self) -> int:
        """Number of views."""
        return len(self.columns)

    @overload
    def __getitem__(self, index: int) -> Footprint: ...
    @overload
    def __getitem__(self, index: slice) -> "ViewPlan": ...
    def __getitem__(self, index: int | slice) -> "Footprint | ViewPlan":
        """One footprint, or a plan of some of them."""
        if isinstance(index, slice):
            return ViewPlan(self.columns[index])
        latitude, longitude, metres, rotation = self.columns[index].tolist()
        return Footprint(latitude=latitude, longitude=longitude, metres=metres, rotation=rotation)

    def __iter__(self) -> Iterator[Footprint]:
        """Iterate over the footprints."""
        return (self[index] for index in range(len(self)))


def ground_at(footprint: Footprint, x: ArrayLike, y: ArrayLike) -> Degrees:
    """Positions of points of a view; x to the right and y down, 0..1 across it; any shape, broadcast."""
    right = (np.asarray(x, dtype=np.float64) - 0.5) * footprint.metres
    up = (0.5 - np.asarray(y, dtype=np.float64)) * footprint.metres
    turn = math.radians(footprint.rotation)
    frame = LocalFrame(latitude=footprint.latitude, longitude=footprint.longitude)
    return frame.to_degrees(right * math.cos(turn) + up * math.sin(turn), up * math.cos(turn) - right * math.sin(turn))


def read_view(source: MapSource, footprint: Footprint, size: int) -> View:
    """Read a footprint from the map, as size x size pixels."""

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        return ground_at(footprint, (columns[None, :] + 0.5) / size, (rows[:, None] + 0.5) / size)

    rgb, valid = source.warp(locate, (size, size))
    return View(rgb, float(valid.mean()))


def is_empty(rgb: RgbImage, valid_share: float) -> bool:
    """Whether a view (h, w, 3) is not worth indexing.

    That is the case if less than half of it lies inside the map, if more than half is pure black or white (a border
    without a no-data value), or if all of it has one colour.
    """
    if valid_share < MIN_VALID:
        return True
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    if max(np.mean(grey == 0), np.mean(grey == 255)) > 0.5:
        return True
    return float(rgb.reshape(-1, 3).std(axis=0).max()) < MIN_CONTRAST


def plan_views(source: MapSource, sizes_m: Sequence[float], overlap: float, rotations: Sequence[float]) -> ViewPlan:
    """Squares of each size in metres that cover the map, within its edges; no pixels are read.

    overlap: minimum share, 0..1, of its edge that a view has in common with its neighbour. rotations: compass degrees
    that are up; every position is cut in each. Sizes larger than the map are skipped. A size below MIN_PIXELS map
    pixels is an error: there would be more views than pixels.
    """
    if not sizes_m or min(sizes_m) <= 0 or not 0 <= overlap < 1 or not rotations:
        raise SkyPartError(
            f"views of {list(sizes_m)} m, overlap {overlap}, rotations {list(rotations)} cannot be cut; "
            "give sizes above 0, an overlap of at least 0 and below 1, and at least one rotation"
        )
    if min(sizes_m) < MIN_PIXELS * source.gsd_m:
        raise SkyPartError(
            f"{redact_address(source.paths[0])}: pixels of {_format_length(source.gsd_m)} are too coarse for views of "
            f"{_format_length(min(sizes_m))}; give larger --sizes or a finer map"
        )
    blocks = []
    for size in sizes_m:
        for grid in source.grids:
            metres = _centre_pixel_metres(grid)
            step = size * (1 - overlap)
            count = (grid.width * metres.x[0] / step) * (grid.height * metres.y[0] / step) * len(rotations)
            if not count <= MAX_VIEWS:
                raise SkyPartError(
                    f"{redact_address(source.paths[0])}: would be cut into {count:.3g} views of {size:g} m; give "
                    "larger --sizes, or a part of the map"
                )
            centres = _view_centres(grid, size, overlap)
            latitude, longitude = (np.repeat(values, len(rotations)) for values in centres)
            turns = np.tile(np.asarray(rotations, dtype=np.float64) % 360.0, len(centres.latitude))
            blocks.append(np.stack([latitude, longitude, np.full_like(latitude, size), turns], axis=1))
    columns = np.concatenate(blocks)
    if not len(columns):
        extent = [
            (grid.width * m.x[0], grid.height * m.y[0]) for grid in source.grids for m in [_centre_pixel_metres(grid)]
        ]
        width, height = max(extent, key=min)
        raise SkyPartError(
            f"{redact_address(source.paths[0])}: the map is {width:.0f} x {height:.0f} m, smaller than one view of "
            f"{min(sizes_m):g} m; give smaller view sizes or a larger map"
        )
    return ViewPlan(columns)


def _format_length(metres: float) -> str:
    return f"{metres / 1000:.3g} km" if metres >= 1000 else f"{metres:.3g} m"


def _centre_pixel_metres(grid: MapGrid) -> Point:
    return grid.pixel_metres(grid.width / 2, grid.height / 2)


def _view_centres(grid: MapGrid, size: float, overlap: float) -> Degrees:
    """(n,) centres of squares along the rows of a grid; none if the grid is smaller than one square."""
    down = grid.pixel_metres(grid.width / 2, np.linspace(0.5, grid.height - 0.5, 5)).y
    rows = _centres_along(grid.height, float(down.max()), float(down.min()), size, overlap)
    spots = []
    for row, across in zip(rows, grid.pixel_metres(grid.width / 2, rows).x, strict=True) if len(rows) else ():
        columns = _centres_along(grid.width, float(across), float(across), size, overlap)
        spots.append(np.stack([columns, np.full_like(columns, row)]))
    column, line = np.concatenate(spots, axis=1) if spots else np.zeros((2, 0))
    return grid.to_degrees(column, line)


def _centres_along(length: int, widest: float, narrowest: float, size: float, overlap: float) -> FloatArray:
    """Pixel positions of the centres of squares of `size` metres along `length` pixels.

    widest, narrowest: metres per pixel.
    """
    spare = length - size / narrowest
    if spare < 0:
        fits = length * narrowest >= size * (1 - MAX_OVERHANG)
        return np.array([length / 2]) if fits else np.zeros(0)
    steps = math.ceil(spare * widest / (size * (1 - overlap)) - 1e-9)
    half = size / narrowest / 2
    return np.linspace(half, length - half, steps + 1) if steps else np.array([length / 2])
