"""Any two folders: `drone/` and `satellite/`, matched by sub-folder or file stem, with optional positions.

`drone/<location>/*.jpg` or `drone/<location>.jpg`, and the same under `satellite/`. Beside them may stand
- `positions.csv` with columns `longitude`, `latitude`, and `location` or `path`, optionally `altitude`;
- `train_ids.txt` with the locations to train on; the others are tested. Without it everything is both.
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from skypart.datasets.records import Dataset, Position, Record, TestSplit, View
from skypart.datasets.scan import folders_in, images_in
from skypart.errors import SkyPartError
from skypart.images.decode import is_hidden

KIND = "folders"
POSITIONS = "positions.csv"
_COLUMNS = {"lon": "longitude", "lng": "longitude", "x": "longitude", "lat": "latitude", "y": "latitude"}


@dataclass(frozen=True)
class Place:
    """A row of the CSV: position in degrees, altitude in metres or None."""

    position: Position
    altitude: float | None


def view_folder(root: Path, view: View) -> Path | None:
    """The sub-folder of `root` for `view`: named so, or the only one whose name contains it."""
    exact = root / view
    if exact.is_dir():
        return exact
    named = [folder for folder in folders_in(root) if view in folder.name.lower()]
    return named[0] if len(named) == 1 else None


def matches(root: Path) -> bool:
    """Whether `root` holds a drone and a satellite folder with images."""
    folders = [view_folder(root, view) for view in ("drone", "satellite")]
    return all(folder is not None and _has_images(folder) for folder in folders)


def _has_images(folder: Path) -> bool:
    return bool(images_in(folder)) or any(images_in(sub) for sub in folders_in(folder))


def read(root: Path) -> Dataset:
    """Read `root/drone`, `root/satellite` and, where they stand, `positions.csv` and `train_ids.txt`."""
    drone, satellite = view_folder(root, "drone"), view_folder(root, "satellite")
    if drone is None or satellite is None:
        raise SkyPartError(f"{root}: needs a `drone` and a `satellite` folder")
    positions = root / POSITIONS
    train_ids = root / "train_ids.txt"
    try:
        trained = set(train_ids.read_text(encoding="utf-8-sig").split()) if train_ids.is_file() else None
    except UnicodeDecodeError as error:
        raise SkyPartError(f"{train_ids}: is no UTF-8 text ({error}); save it as UTF-8") from error
    return read_pair(drone, satellite, positions if positions.is_file() else None, trained, root)


def read_pair(
    drone: Path,
    satellite: Path,
    positions: Path | None = None,
    trained: set[str] | None = None,
    root: Path | None = None,
) -> Dataset:
    """Read any two folders; `trained` are the locations to train on (None: train and test on everything)."""
    places = {} if positions is None else read_places(positions)
    root = drone.parent if root is None else root
    drones = [_place(record, places, root) for record in _records(drone, "drone")]
    tiles = [_place(record, places, root) for record in _records(satellite, "satellite")]
    if not {r.location for r in drones} & {r.location for r in tiles}:
        raise SkyPartError(
            f"{drone} and {satellite} share no location: give sub-folders or files the same name in both "
            f"(drone has {_example(drones)}, satellite {_example(tiles)})"
        )
    names = {record.location for record in (*drones, *tiles)}
    trained_now = names if trained is None else trained
    tested = names if trained is None else names - trained
    notes = ["no train_ids.txt: the same locations are trained and tested"] if trained is None else []
    tests = (
        TestSplit("D2S", None, [r for r in drones if r.location in tested], tiles),
        TestSplit("S2D", None, [r for r in tiles if r.location in tested], drones),
    )
    train = [record for record in (*drones, *tiles) if record.location in trained_now]
    return Dataset(KIND, root.name or "folders", root, train, tests, notes)


def _example(records: list[Record]) -> str:
    return f"`{records[0].location}`" if records else "no image"


def _records(folder: Path, view: View) -> list[Record]:
    """Location = name of the sub-folder (images at any depth below it), or the stem of a loose file."""
    records = [Record(path, view, path.stem) for path in images_in(folder)]
    for location in folders_in(folder):
        below = sorted(sub for sub in location.rglob("*") if sub.is_dir() and not is_hidden(sub, location))
        inner = [location, *below]
        records += [Record(path, view, location.name) for sub in inner for path in images_in(sub)]
    return records


def _place(record: Record, places: dict[str, Place], root: Path) -> Record:
    path = record.path
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    place = places.get(relative) or places.get(record.location)
    return record if place is None else replace(record, position=place.position, altitude=place.altitude)


def read_places(file: Path) -> dict[str, Place]:
    """Read the CSV of positions: key (`path` relative to the root, or `location`) -> place."""
    try:
        return _read_places(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{file}: is no CSV in UTF-8 ({error}); save it as such") from error


def _read_places(file: Path) -> dict[str, Place]:
    """`read_places`, with errors of decoding as they come."""
    places: dict[str, Place] = {}
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        names = {name.strip().lower(): name for name in rows.fieldnames or ()}
        for other, name in list(names.items()):
            names.setdefault(_COLUMNS.get(other, other), name)
        key = "path" if "path" in names else "location"
        missing = {key, "longitude", "latitude"} - names.keys()
        if missing:
            raise SkyPartError(f"{file}: no column {', '.join(sorted(missing))}; name the columns in its first line")
        for number, row in enumerate(rows, start=2):
            try:
                position = Position(float(row[names["longitude"]]), float(row[names["latitude"]]))
                altitude = row.get(names.get("altitude", ""))
                places[row[names[key]].strip()] = Place(position, float(altitude) if altitude else None)
            except (AttributeError, TypeError, ValueError) as error:
                raise SkyPartError(
                    f"{file}, line {number}: a cell is missing, or longitude and latitude must be degrees ({error})"
                ) from error
            if not (abs(position.longitude) <= 180 and abs(position.latitude) <= 90):
                raise SkyPartError(
                    f"{file}, line {number}: {position} is not on the earth; longitude and latitude swapped?"
                )
    return places
