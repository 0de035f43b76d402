"""Any two folders: `drone/` and `satellite/`, matched by sub-folder or file stem, with optional positions.

`drone/<location>/*.jpg` or `drone/<location>.jpg`, and the same in `satellite/`. Optional files beside them:
- `positions.csv` with columns `longitude`, `latitude`, and `location` or `path`, optionally `altitude`;
- `train_ids.txt` with the locations to train on; the others are tested. Without it, all are trained and tested.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from skypart.atomic import write_text
from skypart.datasets.benchmark import Benchmark, ImageFolder
from skypart.datasets.records import Dataset, Position, Record, TestSplit, View
from skypart.datasets.rendering import Framing, Pose, Rendering, Shot, ShotView
from skypart.datasets.scan import folders_in, images_in
from skypart.errors import SkyPartError
from skypart.images.decode import is_hidden

POSITIONS = "positions.csv"
_COLUMNS = {"lon": "longitude", "lng": "longitude", "x": "longitude", "lat": "latitude", "y": "latitude"}


@dataclass(frozen=True)
class CsvPosition:
    """A row of positions.csv: position in degrees, altitude in metres or None."""

    position: Position
    altitude: float | None


def view_folder(root: Path, view: View) -> Path | None:
    """The sub-folder of `root` called `view`, or else the only one whose name contains it."""
    exact = root / view
    if exact.is_dir():
        return exact
    named = [folder for folder in folders_in(root) if view in folder.name.lower()]
    return named[0] if len(named) == 1 else None


def _has_images(folder: Path) -> bool:
    return bool(images_in(folder)) or any(images_in(sub) for sub in folders_in(folder))


def read_pair(
    drone: Path,
    satellite: Path,
    positions: Path | None = None,
    trained: set[str] | None = None,
    root: Path | None = None,
) -> Dataset:
    """Read any two folders; `trained` are the locations to train on (None: train and test on everything)."""
    known = {} if positions is None else read_positions(positions)
    root = drone.parent if root is None else root
    drones = [_add_position(record, known, root) for record in _records(drone, "drone")]
    tiles = [_add_position(record, known, root) for record in _records(satellite, "satellite")]
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
    return Dataset(OwnFolders.kind, root.name or "folders", root, train, tests, notes)


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


def _add_position(record: Record, known: dict[str, CsvPosition], root: Path) -> Record:
    path = record.path
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    found = known.get(relative) or known.get(record.location)
    return record if found is None else replace(record, position=found.position, altitude=found.altitude)


def read_positions(file: Path) -> dict[str, CsvPosition]:
    """Read positions.csv: key (`path` relative to the root, or `location`) -> position."""
    try:
        return _read_rows(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{file}: is not a UTF-8 CSV file ({error}); save it as UTF-8") from error


def _read_rows(file: Path) -> dict[str, CsvPosition]:
    """`read_positions`, without translating decoding errors."""
    positions: dict[str, CsvPosition] = {}
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        names = {name.strip().lower(): name for name in rows.fieldnames or ()}
        for other, name in list(names.items()):
            names.setdefault(_COLUMNS.get(other, other), name)
        key = "path" if "path" in names else "location"
        missing = {key, "longitude", "latitude"} - names.keys()
        if missing:
            raise SkyPartError(f"{file}: no column {', '.join(sorted(missing))}; name the columns in the first line")
        for number, row in enumerate(rows, start=2):
            try:
                position = Position(float(row[names["longitude"]]), float(row[names["latitude"]]))
                altitude = row.get(names.get("altitude", ""))
                positions[row[names[key]].strip()] = CsvPosition(position, float(altitude) if altitude else None)
            except (AttributeError, TypeError, ValueError) as error:
                raise SkyPartError(
                    f"{file}, line {number}: a cell is missing, or longitude and latitude must be degrees ({error})"
                ) from error
            if not (abs(position.longitude) <= 180 and abs(position.latitude) <= 90):
                raise SkyPartError(
                    f"{file}, line {number}: {position} is not on the earth; longitude and latitude swapped?"
                )
    return positions


class FreeRendering(Rendering):
    """Varied training data: each drone image is a flight of its own, with three satellite passes of different width.

    The ground width of a drone image is drawn first, then tilt and altitude, then the lens that gives this width. So a
    model learns that neither height, lens nor direction identifies a location.
    """

    name = "free"
    framing = Framing(200.0, (40.0, 70.0), 50.0)
    spacing = 150.0
    views = 6
    altitudes = (320.0, 60.0)
    view_folders = (("satellite/{}", "drone/{}"),)
    extra_files = (POSITIONS,)

    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """All locations are for training; render test data separately."""
        return ["train"] * count

    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """Three satellite tiles, then `views` drone images."""
        small = framing.tilt[0] > 50
        shots = []
        passes: tuple[ShotView, ...] = ("satellite", "old", "satellite")
        for index, view in enumerate(passes):
            width = framing.tile * rng.uniform(*((0.72, 1.0) if small or framing.surrounded else (0.8, 1.3)))
            shots.append(Shot((f"satellite/{location}/{index}.jpg",), view, 1000 + index, metres=width))
        lowest = 55.0 if small else 32.0
        high, low = self.altitudes
        for index in range(views):
            width = framing.tile * rng.uniform(*((0.4, 0.75) if small else (0.5, 1.15)))
            tilt = lowest + (90.0 - lowest) * float(rng.uniform()) ** 1.3
            altitude = math.exp(rng.uniform(math.log(low), math.log(high)))
            lens = math.degrees(2 * math.atan(width / 2 / (altitude / math.sin(math.radians(tilt)))))
            aim = rng.normal(0.0, 0.06 * framing.tile, 2)
            pose = Pose((aim[0], aim[1]), altitude, tilt, rng.uniform(0, 360), min(max(lens, 22.0), 84.0))
            shots.append(Shot((f"drone/{location}/{index}.jpg",), "drone", index, pose))
        return shots

    def write_extra_files(self, out: Path, roles: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
        """Write positions.csv: where each drone image points, and its altitude."""
        lines = [
            f"{row['path']},{row['target_lon']},{row['target_lat']},{row['altitude_m']}\n"
            for row in rows
            if row["view"] == "drone"
        ]
        write_text(out / POSITIONS, "path,longitude,latitude,altitude\n" + "".join(lines))


class OwnFolders(Benchmark):
    """The user's own images: a drone and a satellite folder."""

    kind = "folders"
    title = "two folders (drone, satellite)"
    layout = "drone/ and satellite/ with matching names"
    generic = True
    rendering = FreeRendering()

    def matches(self, root: Path) -> bool:
        """Whether `root` has a drone and a satellite folder with images."""
        folders = [view_folder(root, view) for view in ("drone", "satellite")]
        return all(folder is not None and _has_images(folder) for folder in folders)

    def read(self, root: Path) -> Dataset:
        """Read `root/drone`, `root/satellite` and, if they exist, `positions.csv` and `train_ids.txt`."""
        drone, satellite = view_folder(root, "drone"), view_folder(root, "satellite")
        if drone is None or satellite is None:
            raise SkyPartError(f"{root}: needs a `drone` and a `satellite` folder")
        positions = root / POSITIONS
        train_ids = root / "train_ids.txt"
        try:
            trained = set(train_ids.read_text(encoding="utf-8-sig").split()) if train_ids.is_file() else None
        except UnicodeDecodeError as error:
            raise SkyPartError(f"{train_ids}: is not UTF-8 text ({error}); save it as UTF-8") from error
        return read_pair(drone, satellite, positions if positions.is_file() else None, trained, root)

    def image_folders(self, root: Path) -> list[ImageFolder]:
        """Both folders, with any structure below them."""
        views = [view_folder(root, "drone"), view_folder(root, "satellite")]
        return [ImageFolder(folder.name, any_depth=True) for folder in views if folder is not None]
