"""Map images with an index.csv: images of places from GeoTIFFs, and mosaics of web map tiles."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.errors import SkyPartError
from skypart.images.decode import read_rgb
from skypart.images.raster_files import read_geotiff
from skypart.progress import with_progress

TILE = 256
"""Edge of a web map tile in pixels."""
EQUATOR_M = 2 * math.pi * 6378137.0
PLACE = re.compile(r"(?P<city>.+)_(?P<year>\d{4})_(?P<place>\d+)")


def make_places(files: Mapping[str, Path], out: Path, quality: int = 95) -> None:
    """Convert GeoTIFFs CITY_YEAR_PLACE.tif to images/*.jpg (first three bands) and index.csv (their corners)."""
    rows = []
    for name in with_progress(sorted(files), "images"):
        matched = PLACE.fullmatch(Path(name).stem)
        if matched is None:
            raise SkyPartError(f"{name}: not named CITY_YEAR_PLACE.tif; the source has changed")
        rgb, facts = _read_place(files[name])
        image = f"{Path(name).stem}.jpg"
        with atomic_path(out / "images" / image) as temporary:
            Image.fromarray(rgb).save(temporary, quality=quality)
        rows.append(
            {"file": image, "city": matched["city"], "place": matched["place"], "year": matched["year"]} | facts
        )
    write_index(out / "index.csv", sorted(rows, key=lambda row: str(row["file"])))


def _read_place(file: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Pixels (h, w, 3) and georeference of a GeoTIFF."""

    def read(raster: Any) -> tuple[NDArray[Any], int | None, Any]:
        if raster.count < 3:
            raise SkyPartError(f"{file}: has fewer than three bands; the source has changed")
        return raster.read((1, 2, 3)), raster.crs.to_epsg() if raster.crs else None, raster.transform

    bands, epsg, transform = read_geotiff(file, read, "delete it and fetch again")
    if epsg is None or bands.dtype != np.uint8 or transform.a <= 0 or transform.e != -transform.a or transform.b:
        raise SkyPartError(f"{file}: not a north-up 8-bit image with a known projection; the source has changed")
    return np.ascontiguousarray(bands.transpose(1, 2, 0)), {
        "epsg": epsg,
        "x_ul": f"{transform.c:.1f}",
        "y_ul": f"{transform.f:.1f}",
        "gsd_m": f"{transform.a:g}",
        "width": bands.shape[2],
        "height": bands.shape[1],
    }


@dataclass(frozen=True)
class Mosaic:
    """A rectangle of web map tiles, at half their resolution. x, y: the north-west tile; columns, rows: in tiles."""

    name: str
    x: int
    y: int
    columns: int
    rows: int
    zoom: int = 21

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """(x, y) of its tiles, row by row."""
        return [(self.x + i, self.y + j) for j in range(self.rows) for i in range(self.columns)]

    @property
    def corner(self) -> tuple[float, float]:
        """Latitude and longitude of the north-west corner, in degrees."""
        count = 2**self.zoom
        latitude = math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * self.y / count))))
        return latitude, self.x / count * 360 - 180

    def facts(self) -> dict[str, Any]:
        """Its row of index.csv."""
        latitude, longitude = self.corner
        gsd = 2 * EQUATOR_M / TILE / 2**self.zoom * math.cos(math.radians(latitude))
        width, height = self.columns * TILE // 2, self.rows * TILE // 2
        return {
            "file": f"{self.name}.jpg",
            "lat_nw": f"{latitude:.5f}",
            "lon_nw": f"{longitude:.5f}",
            "gsd_m": f"{gsd:.4f}",
            "width": width,
            "height": height,
            "w_m": round(width * gsd),
            "h_m": round(height * gsd),
        }


def make_mosaics(
    mosaics: Sequence[Mosaic], tiles: Mapping[tuple[int, int], Path], out: Path, quality: int = 93
) -> None:
    """Join the tiles of each mosaic, downsample it by 2, and write it and index.csv."""
    for mosaic in with_progress(mosaics, "mosaics"):
        joined = np.zeros((mosaic.rows * TILE, mosaic.columns * TILE, 3), dtype=np.uint8)
        for x, y in mosaic.tiles:
            pixels = read_rgb(tiles[x, y])
            if pixels.shape != (TILE, TILE, 3):
                raise SkyPartError(f"{tiles[x, y]}: the tile is not {TILE} x {TILE} pixels; the source has changed")
            row, column = (y - mosaic.y) * TILE, (x - mosaic.x) * TILE
            joined[row : row + TILE, column : column + TILE] = pixels
        half = cv2.resize(joined, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        with atomic_path(out / f"{mosaic.name}.jpg") as temporary:
            Image.fromarray(half).save(temporary, quality=quality)
    write_index(out / "index.csv", [mosaic.facts() for mosaic in mosaics])


def write_index(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write index.csv, which georeferences the images beside it."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(file, text.getvalue())
