"""One picture of all maps of an index, to draw on."""

import numpy as np
from numpy.typing import NDArray

from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import Degrees
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex


def map_picture(index: MapIndex, edge: int = 1200, box: Bounds | None = None) -> RgbImage:
    """The maps within a box, north up, rows and columns even in degrees, `edge` pixels on the longer side.

    box: of all maps if None. Pixels without a map are white; all of them where no map can be read any more.
    """
    area = index.bounds if box is None else box
    height, width = _shape(area, edge)

    def locate(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Degrees:
        latitude = area.north - (rows[:, None] + 0.5) / height * (area.north - area.south)
        longitude = area.west + (columns[None, :] + 0.5) / width * area.degrees_wide
        wide = np.broadcast_arrays(latitude, longitude)
        return Degrees(np.asarray(wide[0]), (np.asarray(wide[1]) + 180) % 360 - 180)

    picture = np.full((height, width, 3), 255, dtype=np.uint8)
    missing = np.ones((height, width), dtype=bool)
    for source in index.sources.values():
        drawn = source.draw(locate, (height, width))
        new = drawn.valid & missing
        picture[new] = drawn.rgb[new]
        missing &= ~new
    return picture


def _shape(box: Bounds, edge: int) -> tuple[int, int]:
    """(height, width) in pixels of a box in degrees."""
    tall = box.north - box.south
    wide = box.degrees_wide * np.cos(np.radians((box.north + box.south) / 2))
    scale = edge / max(tall, wide)
    return max(round(tall * scale), 1), max(round(wide * scale), 1)
