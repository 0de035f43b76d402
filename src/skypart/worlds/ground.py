"""Ground (an orthophoto with heights) and World (the same ground at several dates, georeferenced)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage

FloatMap = NDArray[np.float32]
ByteMap = NDArray[np.uint8]
NO_ANGLE = 255
"""Value of `wall_angle` where no wall direction is known."""


@dataclass(eq=False)
class Ground:
    """The ground at one date. All maps share one grid of `gsd` metres per pixel, row 0 in the north.

    rgb: (h, w, 3) uint8; the surface colour, or a photo that contains its lighting if `baked`.
    heights: (h, w) float32, top of everything, metres above the datum.
    terrain: (h, w) float32, the bare earth, metres above the datum.
    vegetation: (h, w) uint8, 255 = full vegetation, whose colour depends on the season.
    facades: (h, w, 3) uint8, colour of a wall whose top is at this pixel.
    wall_angle: (h, w) uint8, direction of a building's walls in degrees (0 to 179), NO_ANGLE = no windows.
    """

    rgb: RgbImage
    heights: FloatMap
    terrain: FloatMap
    vegetation: ByteMap
    facades: RgbImage
    wall_angle: ByteMap
    gsd: float
    baked: bool = False

    @cached_property
    def height_range(self) -> tuple[float, float]:
        """Lowest and highest point in metres."""
        return float(self.heights.min()), float(self.heights.max())

    @cached_property
    def colour_levels(self) -> list[ByteMap]:
        """Colour and vegetation as (h, w, 4) uint8, then the same at a half and a quarter of the size."""
        levels = [np.dstack([self.rgb, self.vegetation])]
        for _ in range(2):
            levels.append(cv2.resize(levels[-1], None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA))
        return levels

    @cached_property
    def slopes(self) -> ByteMap:
        """(h, w, 2) uint8: rise to the east and to the north, 128 = level, 127 steps to a rise of 2."""
        smooth = cv2.GaussianBlur(self.heights, (3, 3), 0)
        east = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, ksize=3, scale=1 / (8 * self.gsd))
        north = -cv2.Sobel(smooth, cv2.CV_32F, 0, 1, ksize=3, scale=1 / (8 * self.gsd))
        steep = np.maximum(np.hypot(east, north) / 2.0, 1.0)
        packed = np.dstack([east / steep, north / steep]) * 63.5 + 128.0
        return np.clip(np.round(packed), 0, 255).astype(np.uint8)


@dataclass(eq=False)
class World:
    """Ground at one or more dates with its georeference; local metres are x east, y north of the upper left corner.

    dates: the satellite's date, then the drone's, then an older satellite's; missing ones repeat the nearest.
    origin: (x, y) of the upper left corner in the CRS `epsg`; metres_per_unit: of that CRS.
    valid: (h, w) bool, False in holes (water, no data), or None; no location is put in a hole.
    margin_m: metres on either side, in x and y, that only surround the map: no tile of a location reaches there.
    """

    name: str
    dates: Sequence[Ground]
    origin: tuple[float, float]
    epsg: int
    metres_per_unit: float = 1.0
    valid: NDArray[np.bool_] | None = None
    margin_m: tuple[float, float] = (0.0, 0.0)
    _transformers: dict[str, Transformer] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raise if the dates do not share one grid."""
        if not self.dates or len({ground.rgb.shape for ground in self.dates}) != 1:
            raise SkyPartError(f"world {self.name}: it needs at least one date, and all dates on one grid")

    @property
    def satellite(self) -> Ground:
        """The ground as the satellite saw it."""
        return self.dates[0]

    @property
    def drone(self) -> Ground:
        """The ground as the drone sees it."""
        return self.dates[min(1, len(self.dates) - 1)]

    @property
    def old_satellite(self) -> Ground:
        """The ground as an older satellite pass saw it."""
        return self.dates[2] if len(self.dates) > 2 else self.dates[0]

    @property
    def gsd(self) -> float:
        """Metres per pixel."""
        return self.dates[0].gsd

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.dates[0].heights.shape
        return rows, columns

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height in metres."""
        return self.shape[1] * self.gsd, self.shape[0] * self.gsd

    def lonlat(self, x: float, y: float) -> tuple[float, float]:
        """Longitude and latitude (WGS 84, degrees) of a point in local metres."""
        east = self.origin[0] + x / self.metres_per_unit
        north = self.origin[1] + y / self.metres_per_unit
        lon, lat = self._transformer("out").transform(east, north)
        return float(lon), float(lat)

    def local(self, lon: float, lat: float) -> tuple[float, float]:
        """Local metres (x east, y north of the upper left corner) of a longitude and latitude."""
        east, north = self._transformer("in").transform(lon, lat)
        return (east - self.origin[0]) * self.metres_per_unit, (north - self.origin[1]) * self.metres_per_unit

    def height_at(self, x: float, y: float, terrain: bool = True) -> float:
        """Height of the bare earth (or of the top surface) at a point in local metres."""
        row = int(np.clip(-y / self.gsd, 0, self.shape[0] - 1))
        column = int(np.clip(x / self.gsd, 0, self.shape[1] - 1))
        source = self.drone.terrain if terrain else self.drone.heights
        return float(source[row, column])

    def _transformer(self, direction: str) -> Transformer:
        if direction not in self._transformers:
            ends = (f"EPSG:{self.epsg}", "EPSG:4326")
            self._transformers[direction] = Transformer.from_crs(
                *(ends if direction == "out" else ends[::-1]), always_xy=True
            )
        return self._transformers[direction]


def sample(
    layer: NDArray[np.generic], gsd: float, x: FloatMap, y: FloatMap, nearest: bool = False
) -> NDArray[np.generic]:
    """Read `layer` (h, w[, channels]) of `gsd` metres per pixel at local metres; it is mirrored beyond its edge."""
    columns = x * np.float32(1.0 / gsd) - np.float32(0.5)
    rows = y * np.float32(-1.0 / gsd) - np.float32(0.5)
    method = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    read: NDArray[np.generic] = cv2.remap(layer, columns, rows, method, borderMode=cv2.BORDER_REFLECT_101)
    return read


def sample_points(
    layer: NDArray[np.generic], gsd: float, x: FloatMap, y: FloatMap, nearest: bool = False
) -> NDArray[np.generic]:
    """Like `sample`, for (n,) lists of points; returns (n[, channels])."""
    # remap accepts at most 32767 columns, so a long list is folded into rows.
    width = 4096
    padded = -(-len(x) // width) * width
    folded = [np.resize(part, (padded // width, width)).astype(np.float32) for part in (x, y)]
    read = sample(layer, gsd, folded[0], folded[1], nearest)
    return read.reshape(padded, *layer.shape[2:])[: len(x)]
