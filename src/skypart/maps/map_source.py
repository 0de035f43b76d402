"""A map to cut views from: one georeferenced image, or several that together are one map."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import FloatArray, LocalFrame, wrap_longitude
from skypart.maps.grid import MapGrid, Plane, Point, apply_affine
from skypart.maps.pixels import PixelReader
from skypart.maps.warp import Locate, WarpedImage, warp


@dataclass(frozen=True)
class MapImage:
    """One image of a map: where its pixels lie, and what reads them. note: shown to the user when indexing."""

    grid: MapGrid
    reader: PixelReader
    note: str = ""


class UnreadableMapError(SkyPartError):
    """A map that was opened cannot be read any more. map_name: its name in the index."""

    def __init__(self, map_name: str, message: str) -> None:
        super().__init__(message)
        self.map_name = map_name


@dataclass(frozen=True)
class MapSource:
    """One map.

    name: from the name of its file. paths: what `open_maps` opens it by. fingerprint: changes when its files change.
    images: where they overlap, the first one is on top.
    """

    name: str
    paths: tuple[str, ...]
    fingerprint: str
    images: tuple[MapImage, ...]

    @cached_property
    def gsd_m(self) -> float:
        """Ground sampling distance of the finest image, metres per pixel."""
        return min(image.grid.gsd_m for image in self.images)

    @cached_property
    def bounds(self) -> Bounds:
        """Bounding box of the map in degrees."""
        if len(self.images) == 1:
            return self.images[0].grid.bounds
        south, west, north, east = self._boxes.T
        low, high = float(west.min()), float(east.max())
        low, high = (-180.0, 180.0) if high - low >= 360 else (float(wrap_longitude(low)), float(wrap_longitude(high)))
        return Bounds(south=float(south.min()), west=low, north=float(north.max()), east=high)

    @cached_property
    def frame(self) -> LocalFrame:
        """Metric frame centred on the bounds."""
        return self.bounds.frame

    @cached_property
    def grids(self) -> tuple[MapGrid, ...]:
        """The areas to cut into views: the image itself, or a grid around each group of images that touch."""
        if len(self.images) == 1:
            return (self.images[0].grid,)
        low, high = self._boxes[:, :2], self._boxes[:, 2:]
        few_pixels = 3 * max(image.grid.gsd_m for image in self.images) / 111_000  # degrees of latitude
        gap = few_pixels * np.array([1.0, 1 / max(0.01, np.cos(np.radians(self.frame.latitude)))])
        remaining = np.ones(len(self.images), np.bool_)
        grids = []
        while remaining.any():
            group: list[int] = []
            waiting = [int(np.argmax(remaining))]
            remaining[waiting] = False
            while waiting:
                group.append(waiting.pop())
                touching = remaining & ((low <= high[group[-1]] + gap) & (high >= low[group[-1]] - gap)).all(axis=1)
                remaining &= ~touching
                waiting += np.flatnonzero(touching).tolist()
            grids.append(_common_grid([self.images[index].grid for index in sorted(group)]))
        return tuple(grids)

    @cached_property
    def _boxes(self) -> FloatArray:
        """(images, 4) south, west, north, east of each image; longitudes do not jump between images."""
        first = float(self.images[0].grid.centre.longitude)
        boxes = []
        for image in self.images:
            box = image.grid.bounds
            west = float(wrap_longitude(box.west + box.degrees_wide / 2, first)) - box.degrees_wide / 2
            boxes.append((box.south, west, box.north, west + box.degrees_wide))
        return np.asarray(boxes)

    def warp(self, locate: Locate, shape: tuple[int, int]) -> WarpedImage:
        """The map warped to an image of (h, w) pixels. Thread-safe.

        locate: maps pixels of that image to degrees, smoothly; it is called for a coarse mesh of them. Colours are
        averaged where pixels are coarser than the map's, interpolated elsewhere. Only the window needed is read.
        """
        try:
            return self._warp(locate, shape)
        except SkyPartError as error:
            raise UnreadableMapError(self.name, str(error)) from error

    def _warp(self, locate: Locate, shape: tuple[int, int]) -> WarpedImage:
        if len(self.images) == 1:
            return warp(self.images[0].grid, self.images[0].reader, locate, shape)
        rgb, valid = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.bool_)
        for image in self._images_near(locate, shape):
            more = warp(image.grid, image.reader, locate, shape)
            new = more.valid & ~valid
            rgb[new] = more.rgb[new]
            valid |= new
            if valid.all():
                break
        return WarpedImage(rgb, valid)

    def _images_near(self, locate: Locate, shape: tuple[int, int]) -> Sequence[MapImage]:
        """The images that may cover some of the output."""
        rows, columns = (np.unique(np.linspace(0, length - 1, 9).astype(np.int64)) for length in shape)
        latitude, longitude = locate(rows, columns)
        centre = self._boxes[:, [1, 3]].mean(axis=1)
        around = wrap_longitude(longitude.ravel()[:, None], centre[None, :])
        slack = 0.1 * (np.ptp(latitude) + np.ptp(around, axis=0).min()) + 1e-6
        south, west, north, east = self._boxes.T
        touched = (south <= latitude.max() + slack) & (north >= latitude.min() - slack)
        touched &= (west <= around.max(axis=0) + slack) & (east >= around.min(axis=0) - slack)
        return [self.images[index] for index in np.flatnonzero(touched)]


def _common_grid(grids: Sequence[MapGrid]) -> MapGrid:
    """One grid, north up, around others: in their plane if they share one, else in a metric frame."""
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
    return MapGrid(plane, affine, max(1, round((east - west) / pixel)), max(1, round((north - south) / pixel)))


def _corners_beside(grid: MapGrid, first: MapGrid) -> list[Point]:
    """Corners of `grid` in the plane it shares with `first`; a periodic plane is unrolled towards `first`."""
    shift = 0.0
    if first.period is not None:
        shift = float(wrap_longitude(grid.plane_centre[0], first.plane_centre[0], first.period)) - grid.plane_centre[0]
    spots = [apply_affine(grid.affine, *corner) for corner in _corners(grid)]
    return [Point(spot.x + shift, spot.y) for spot in spots]


def _corners(grid: MapGrid) -> list[tuple[int, int]]:
    return [(0, 0), (grid.width, 0), (0, grid.height), (grid.width, grid.height)]
