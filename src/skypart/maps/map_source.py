"""A map to cut views from: one picture on the Earth, or several as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import FloatArray, LocalFrame, wrapped
from skypart.maps.grid import Grid, Plane, Point, apply_affine
from skypart.maps.mesh import Locate
from skypart.maps.patch import PixelReader
from skypart.maps.warp import Sample, warp


@dataclass(frozen=True)
class Part:
    """One picture of a map: where its pixels lie, and what reads them. note: what who indexes it should know."""

    grid: Grid
    reader: PixelReader
    note: str = ""


class UnreadableMapError(SkyPartError):
    """A map that was opened cannot be read now. map_name: what it is called in its index."""

    def __init__(self, map_name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.map_name = map_name


@dataclass(frozen=True)
class MapSource:
    """One map.

    name: short, from the file's. paths: what `open_maps` finds it by. fingerprint: changes when its files do.
    parts: its pictures; where they overlap, the first counts.
    """

    name: str
    paths: tuple[str, ...]
    fingerprint: str
    parts: tuple[Part, ...]

    @cached_property
    def gsd_m(self) -> float:
        """Metres on the ground of a pixel's edge; of the finest picture."""
        return min(part.grid.gsd_m for part in self.parts)

    @cached_property
    def bounds(self) -> Bounds:
        """Box in degrees around the map."""
        if len(self.parts) == 1:
            return self.parts[0].grid.bounds
        south, west, north, east = self._boxes.T
        low, high = float(west.min()), float(east.max())
        low, high = (-180.0, 180.0) if high - low >= 360 else (float(wrapped(low)), float(wrapped(high)))
        return Bounds(south=float(south.min()), west=low, north=float(north.max()), east=high)

    @cached_property
    def frame(self) -> LocalFrame:
        """Metric frame around the centre of the bounds."""
        return self.bounds.frame

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The areas to cut into views: the picture itself, or a grid around each group of pictures that touch."""
        if len(self.parts) == 1:
            return (self.parts[0].grid,)
        low, high = self._boxes[:, :2], self._boxes[:, 2:]
        few = 3 * max(part.grid.gsd_m for part in self.parts) / 111_000  # pixels, in degrees of latitude
        gap = few * np.array([1.0, 1 / max(0.01, np.cos(np.radians(self.frame.latitude)))])
        left = np.ones(len(self.parts), np.bool_)
        grids = []
        while left.any():
            group: list[int] = []
            waiting = [int(np.argmax(left))]
            left[waiting] = False
            while waiting:
                group.append(waiting.pop())
                touching = left & ((low <= high[group[-1]] + gap) & (high >= low[group[-1]] - gap)).all(axis=1)
                left &= ~touching
                waiting += np.flatnonzero(touching).tolist()
            grids.append(_common_grid([self.parts[index].grid for index in sorted(group)]))
        return tuple(grids)

    @cached_property
    def _boxes(self) -> FloatArray:
        """(parts, 4) south, west, north, east of each picture, in degrees that do not jump between pictures."""
        first = float(self.parts[0].grid.centre.longitude)
        boxes = []
        for part in self.parts:
            box = part.grid.bounds
            width = (box.east - box.west) % 360.0 or (360.0 if box.east > box.west else 0.0)
            west = float(wrapped(box.west + width / 2, first)) - width / 2
            boxes.append((box.south, west, box.north, west + width))
        return np.asarray(boxes)

    def draw(self, locate: Locate, shape: tuple[int, int]) -> Sample:
        """The map's colours at (h, w) places, neighbours in the picture being so on the ground.

        locate: says where places lie; only a coarse mesh of them is asked for. Averaged where they lie further apart
        than the map's pixels, else interpolated. Only the window that is needed is read. Several threads may call this.
        """
        try:
            return self._drawn(locate, shape)
        except SkyPartError as error:
            raise UnreadableMapError(self.name, str(error)) from error

    def _drawn(self, locate: Locate, shape: tuple[int, int]) -> Sample:
        if len(self.parts) == 1:
            return warp(self.parts[0].grid, self.parts[0].reader, locate, shape)
        rgb, valid = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.bool_)
        for part in self._near(locate, shape):
            more = warp(part.grid, part.reader, locate, shape)
            new = more.valid & ~valid
            rgb[new] = more.rgb[new]
            valid |= new
            if valid.all():
                break
        return Sample(rgb, valid)

    def _near(self, locate: Locate, shape: tuple[int, int]) -> Sequence[Part]:
        """The pictures that may show some of the places."""
        rows, columns = (np.unique(np.linspace(0, length - 1, 9).astype(np.int64)) for length in shape)
        latitude, longitude = locate(rows, columns)
        middle = self._boxes[:, [1, 3]].mean(axis=1)
        around = wrapped(longitude.ravel()[:, None], middle[None, :])
        slack = 0.1 * (np.ptp(latitude) + np.ptp(around, axis=0).min()) + 1e-6
        south, west, north, east = self._boxes.T
        touched = (south <= latitude.max() + slack) & (north >= latitude.min() - slack)
        touched &= (west <= around.max(axis=0) + slack) & (east >= around.min(axis=0) - slack)
        return [self.parts[index] for index in np.flatnonzero(touched)]


def _common_grid(grids: Sequence[Grid]) -> Grid:
    """One grid, north up, around others: in their own plane if they share one, else in metres."""
    if len(grids) == 1:
        return grids[0]
    first = grids[0]
    plane: Plane = first.plane
    if all(grid.plane is first.plane for grid in grids):
        corners = [spot for grid in grids for spot in _corners_beside(grid, first)]
        pixel = min(abs(grid.affine.a) + abs(grid.affine.b) for grid in grids)
    else:
        plane = LocalFrame(latitude=float(first.centre.latitude), longitude=float(first.centre.longitude))
        places = [grid.to_degrees(*corner) for grid in grids for corner in _corners(grid)]
        spots = [plane.to_metres(latitude=place.latitude, longitude=place.longitude) for place in places]
        corners = [Point(*spot) for spot in spots]
        pixel = min(grid.gsd_m for grid in grids)
    west, south = np.min(corners, axis=0)
    east, north = np.max(corners, axis=0)
    affine = Affine(pixel, 0.0, float(west), 0.0, -pixel, float(north))
    return Grid(plane, affine, max(1, round((east - west) / pixel)), max(1, round((north - south) / pixel)))


def _corners_beside(grid: Grid, first: Grid) -> list[Point]:
    """Corners in the plane of both grids; where that goes round the Earth, on the side where `first` is nearest."""
    shift = 0.0
    if first.period is not None:
        shift = float(wrapped(grid.middle[0], first.middle[0], first.period)) - grid.middle[0]
    spots = [apply_affine(grid.affine, *corner) for corner in _corners(grid)]
    return [Point(spot.x + shift, spot.y) for spot in spots]


def _corners(grid: Grid) -> list[tuple[int, int]]:
    return [(0, 0), (grid.width, 0), (0, grid.height), (grid.width, grid.height)]
