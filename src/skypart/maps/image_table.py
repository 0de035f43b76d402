"""Maps made of north-up images whose positions are listed in a CSV table."""

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import listed_file
from skypart.images.raster_files import detect_driver
from skypart.maps.files import absolute_path, combine_digests, file_digest, is_remote
from skypart.maps.grid import MapGrid, Plane, check_grid, crs_plane, parse_crs
from skypart.maps.map_source import MapImage, MapSource
from skypart.maps.rasters import RasterReader, check_complete, read_raster

COLUMNS = (
    "file and one of: latitude, longitude of the centre + metres across or gsd; north, west, south, east; "
    "lat_nw, lon_nw + gsd; epsg, x_ul, y_ul + gsd"
)
MAX_TABLE_BYTES = 64 << 20
MAX_LINES = 50_000
"""Lines of a table. Each is checked against its coordinate system, and all are compared to find which ones touch."""
_ALIASES = {
    "lat": "latitude",
    "lon": "longitude",
    "lng": "longitude",
    "gsd_m": "gsd",
    "meters": "metres",
    "lat_nw": "north",
    "lon_nw": "west",
    "lat_se": "south",
    "lon_se": "east",
    "image": "file",
    "path": "file",
}


@dataclass(frozen=True)
class _Listed:
    """An image that a table lists. width, height: in pixels. digest: of its file."""

    reader: RasterReader
    width: int
    height: int
    digest: str


def open_image_table(path: Path) -> MapSource:
    """One map of all images in a table; where they overlap, the one listed first is on top.

    Each image is opened once, however many lines name it. Lines that repeat the place of an image add nothing.
    """
    images: dict[tuple[str, MapGrid], MapImage] = {}
    digests = [file_digest(path)]
    opened: dict[str, _Listed] = {}
    for number, line in _lines(path):
        where, name = f"{path}, line {number}", line["file"]
        image = opened.get(name)
        if image is None:
            image = opened[name] = _open_image(path.parent, name, where)
        grid = _grid(line, image.width, image.height, where)
        digests.append(image.digest)
        if (name, grid) not in images:
            check_grid(grid, where)
            images[name, grid] = MapImage(grid, image.reader)
    if not images:
        raise SkyPartError(f"{path}: lists no images; a line needs {COLUMNS}")
    return MapSource(path.stem, (str(path),), combine_digests(digests), tuple(images.values()))


def _open_image(folder: Path, name: str, where: str) -> _Listed:
    """Open and check the image `name` in the folder of a table. where: the table and its line, for messages."""
    if is_remote(name):
        raise SkyPartError(f"{where}: the image {name[:120]!r} is not in the table's folder; copy it there")
    file = Path(absolute_path(listed_file(folder, name, where)))
    if not file.is_file():
        raise SkyPartError(f"{where}: the image {file} does not exist; give its path relative to the table's folder")
    driver = detect_driver(file)
    if driver is None:
        raise SkyPartError(f"{file}: is not a JPEG, PNG, WebP, TIFF or JPEG 2000 image; convert it")
    check_complete(file, driver)
    width, height = read_raster(str(file), driver, lambda raster: (int(raster.width), int(raster.height)))
    return _Listed(RasterReader(str(file), driver), width, height, file_digest(file))


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line numbers, and values by column name without empty ones."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            if os.fstat(file.fileno()).st_size > MAX_TABLE_BYTES:
                raise SkyPartError(f"{path}: more than {MAX_TABLE_BYTES >> 20} MB; split the table")
            table = csv.DictReader(file)
            names = {name: _ALIASES.get(name.strip().lower(), name.strip().lower()) for name in table.fieldnames or ()}
            lines = [
                (
                    table.line_num,
                    {
                        names[key]: str(value).strip()
                        for key, value in line.items()
                        if names.get(key) in _USED and value
                    },
                )
                for line in islice(table, MAX_LINES + 1)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{path}: cannot be read as a table ({error}); save it as CSV in UTF-8") from error
    if len(lines) > MAX_LINES:
        raise SkyPartError(f"{path}: has more than {MAX_LINES:,} lines; split the table")
    for number, line in lines:
        if "file" not in line:
            raise SkyPartError(f"{path}, line {number}: has no file; a line needs {COLUMNS}")
    return lines


def _grid(line: Mapping[str, str], width: int, height: int, where: str) -> MapGrid:
    """The grid of an image of width x height pixels, from whichever columns its line has."""
    values = {key: _number(text, key, where) for key, text in line.items() if key in _NUMBERS}
    pixel = values.get("gsd", values["metres"] / width if "metres" in values else None)
    plane: Plane
    if {"north", "west", "south", "east"} <= values.keys():
        east = values["east"] + (360.0 if values["east"] < values["west"] else 0.0)
        across, down = (east - values["west"]) / width, (values["north"] - values["south"]) / height
        if across <= 0 or down <= 0:
            raise SkyPartError(f"{where}: its corners span no area; north must be greater than south")
        return MapGrid(crs_plane("EPSG:4326"), _north_up(values["west"], values["north"], across, down), width, height)
    if pixel is None or pixel <= 0:
        raise SkyPartError(f"{where}: does not give the size of the image; a line needs {COLUMNS}")
    if {"latitude", "longitude"} <= values.keys():
        plane = _frame(values["latitude"], values["longitude"], where)
        return MapGrid(plane, _north_up(-pixel * width / 2, pixel * height / 2, pixel, pixel), width, height)
    if {"north", "west"} <= values.keys():
        return MapGrid(_frame(values["north"], values["west"], where), _north_up(0.0, 0.0, pixel, pixel), width, height)
    if {"epsg", "x_ul", "y_ul"} <= values.keys():
        plane = parse_crs(f"EPSG:{values['epsg']:.0f}", where)
        if not plane.crs.is_projected:
            raise SkyPartError(
                f"{where}: EPSG:{values['epsg']:.0f} is in degrees and the image size in metres; give lat_nw and "
                "lon_nw instead of x_ul and y_ul, or a projected epsg"
            )
        unit = plane.crs.axis_info[0].unit_conversion_factor
        affine = _north_up(values["x_ul"], values["y_ul"], pixel / unit, pixel / unit)
        return MapGrid(plane, affine, width, height)
    raise SkyPartError(f"{where}: does not give the position of the image; a line needs {COLUMNS}")


_NUMBERS = frozenset(
    ("latitude", "longitude", "metres", "gsd", "north", "west", "south", "east", "epsg", "x_ul", "y_ul")
)


_USED = _NUMBERS | {"file"}
"""Columns that are kept: a table may have very many others."""


def _north_up(left: float, top: float, across: float, down: float) -> Affine:
    return Affine(across, 0.0, left, 0.0, -down, top)


def _frame(latitude: float, longitude: float, where: str) -> LocalFrame:
    if abs(latitude) > 90 or abs(longitude) > 360:
        raise SkyPartError(
            f"{where}: latitude {latitude:g}, longitude {longitude:g} is not a point on the Earth; give degrees"
        )
    return LocalFrame(latitude=latitude, longitude=longitude)


def _number(text: str, key: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise SkyPartError(f"{where}: {key} is {text!r}, not a number; correct it")
    return value
