"""Photos of known position, listed in a CSV."""

import csv
import glob
import math
import re
from dataclasses import dataclass
from pathlib import Path

from pyproj import Transformer

from skypart.errors import SkyPartError
from skypart.geo.geodesy import distance_m
from skypart.images.decode import check_own_file, check_own_name

CSV_NAMES = ("positions.csv", "frames.csv", "labels.csv", "poses.csv")
FILE_COLUMNS = ("file", "path", "photo", "image", "name")
LATITUDE_COLUMNS = ("target_lat", "latitude", "lat", "y")
LONGITUDE_COLUMNS = ("target_lon", "longitude", "lon", "lng", "x")


@dataclass(frozen=True, kw_only=True)
class LabelledPhoto:
    """A photo and the position of the ground at its centre, WGS 84 degrees; None if it is from outside the map."""

    path: Path
    latitude: float | None
    longitude: float | None

    def error_m(self, *, latitude: float, longitude: float) -> float:
        """Metres from the truth to a position in degrees; infinite for a photo from outside the map."""
        if self.latitude is None or self.longitude is None:
            return math.inf
        metres = distance_m(
            latitude=self.latitude, longitude=self.longitude, to_latitude=latitude, to_longitude=longitude
        )
        return float(metres)


def read_labelled(where: Path) -> list[LabelledPhoto]:
    """Read a CSV with columns file, latitude, longitude (empty for photos from outside the map).

    where: the CSV, or a folder that contains one of CSV_NAMES.
    """
    file = where
    if where.is_dir():
        found = [where / name for name in CSV_NAMES if (where / name).is_file()]
        if not found:
            raise SkyPartError(
                f"{where}: contains none of {', '.join(CSV_NAMES)}; add one with columns file, latitude, longitude"
            )
        file = found[0]
    if not file.is_file():
        raise SkyPartError(f"{file}: no such file; give a CSV with columns file, latitude, longitude")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            photos = _parse_rows(file, csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{file}: cannot be read as a table ({error}); save it as CSV in UTF-8") from error
    if not photos:
        raise SkyPartError(f"{file}: lists no photo; add one line per photo")
    return photos


def _parse_rows(file: Path, rows: "csv.DictReader[str]") -> list[LabelledPhoto]:
    """The rows of a table with a header."""
    names = [(name or "").strip().lower() for name in rows.fieldnames or ()]
    keys = [
        next((k for k in options if k in names), None)
        for options in (FILE_COLUMNS, LATITUDE_COLUMNS, LONGITUDE_COLUMNS)
    ]
    grid = _utm_zone(names) if None in keys[1:] else None
    if grid is not None:
        keys[1:] = [f"utm{grid[0]}_n", f"utm{grid[0]}_e"]
    if None in keys:
        raise SkyPartError(f"{file}: its first line must name the columns file, latitude and longitude")
    photos = []
    for number, raw in enumerate(rows, start=2):
        row = {(key or "").strip().lower(): (value or "").strip() for key, value in raw.items() if key}
        name, north, east = (row.get(str(key), "") for key in keys)
        if grid is not None:
            north, east = _to_degrees(grid[1], north, east)
        photos.append(_parse_photo(file, number, name, north, east))
    return photos


def _utm_zone(names: list[str]) -> tuple[str, Transformer] | None:
    """The UTM zone of columns like utm43n_e and utm43n_n, and the transformation from it to degrees."""
    for name in names:
        zone = re.fullmatch(r"utm(\d{1,2})([ns])_e", name)
        if zone and 1 <= int(zone[1]) <= 60:
            epsg = (32600 if zone[2] == "n" else 32700) + int(zone[1])
            return zone[1] + zone[2], Transformer.from_crs(f"EPSG:{epsg}", "EPSG:4326", always_xy=True)
    return None


def _to_degrees(transformer: Transformer, north: str, east: str) -> tuple[str, str]:
    """Convert UTM metres to degrees, all as text; text that is not a number is returned for the error message."""
    try:
        longitude, latitude = transformer.transform(float(east), float(north))
    except ValueError:
        return north, east
    return f"{latitude:.9f}", f"{longitude:.9f}"


def _parse_photo(file: Path, number: int, name: str, latitude: str, longitude: str) -> LabelledPhoto:
    """One row of the CSV. Its photo is in the same folder, or in a folder beside the CSV; nothing else is opened."""
    where = f"{file}, line {number}"
    if name:
        check_own_name(name, where)
    path = file.parent / name
    try:
        if name and not path.is_file():
            path = next((p for p in file.parent.glob(f"*/{glob.escape(name)}") if p.is_file()), path)
        found = path.is_file()
    except OSError as error:
        raise SkyPartError(f"{where}: no photo {name[:60]!r} can be opened ({error.strerror}); correct it") from error
    if not found:
        raise SkyPartError(f"{where}: no photo {name[:200]!r} beside the file; correct the name")
    check_own_file(path, file.parent, where)
    if not latitude and not longitude:
        return LabelledPhoto(path=path, latitude=None, longitude=None)
    try:
        north, east = float(latitude), float(longitude)
    except ValueError as error:
        raise SkyPartError(f"{file}, line {number}: latitude and longitude must be degrees ({error})") from error
    if not (abs(north) <= 90 and abs(east) <= 180):
        raise SkyPartError(f"{file}, line {number}: {north}, {east} is not on the earth; are they swapped?")
    return LabelledPhoto(path=path, latitude=north, longitude=east)
