"""SUES-200, raw (`drone_view_512/<id>/<h>/*`, `satellite-view/<id>/*`) and in the official split form.

Split form: `Training/<h>/{drone,satellite}/<id>/*`, `Testing/<h>/{query,gallery}_{drone,satellite}/<id>/*`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from skypart.atomic import write_text
from skypart.datasets.benchmark import Benchmark, ImageFolder, folders_with_counts
from skypart.datasets.records import Dataset, Record, TestSplit
from skypart.datasets.rendering import Framing, Pose, Rendering, Shot, orbit
from skypart.datasets.scan import folders_in, images_in, read_classes
from skypart.errors import SkyPartError

ALTITUDES = (150, 200, 250, 300)
LOCATIONS = 200
IMAGES_PER_ALTITUDE = 50
TRAIN_IDS_FILE = "train_ids.txt"

# fmt: off
TRAIN_IDS = frozenset((
    1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 15, 16, 20, 21, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 36,
    37, 39, 43, 44, 45, 51, 55, 56, 57, 58, 60, 64, 66, 67, 69, 70, 73, 74, 76, 77, 80, 81, 82, 84, 85,
    86, 87, 88, 89, 90, 91, 94, 96, 97, 100, 101, 102, 103, 104, 105, 106, 113, 116, 118, 119, 120, 123,
    125, 126, 127, 129, 132, 134, 137, 139, 141, 142, 145, 146, 147, 148, 149, 151, 152, 155, 156, 157,
    158, 159, 160, 163, 166, 167, 168, 169, 171, 174, 179, 180, 182, 183, 184, 185, 186, 187, 191, 192,
    193, 196, 197, 198, 199, 200,
))
# fmt: on
"""The official 120 training locations; the other 80 of 1..200 are the test set."""

SPLIT_COUNTS = {
    "Training/{h}/drone": (120, 6_000),
    "Training/{h}/satellite": (120, 120),
    "Testing/{h}/query_drone": (80, 4_000),
    "Testing/{h}/query_satellite": (80, 80),
    "Testing/{h}/gallery_drone": (200, 10_000),
    "Testing/{h}/gallery_satellite": (200, 200),
}
"""Folder at altitude h -> (locations, images) in the official split."""


def raw_folders(root: Path) -> tuple[Path, Path] | None:
    """The drone and the satellite folder of the raw form, or None if `root` has another form."""
    drone = [f for f in folders_in(root) if "drone" in f.name.lower()]
    satellite = [f for f in folders_in(root) if "satellite" in f.name.lower()]
    for folder in drone:
        for location in folders_in(folder)[:3]:
            if satellite and any(f.name in map(str, ALTITUDES) for f in folders_in(location)):
                return folder, satellite[0]
    return None


def train_ids(root: Path) -> frozenset[int]:
    """Training ids of `root`: its own `train_ids.txt` (rendered worlds have one) or the official 120."""
    file = root / TRAIN_IDS_FILE
    if not file.is_file():
        return TRAIN_IDS
    try:
        return frozenset(int(word) for word in file.read_text(encoding="utf-8").split())
    except ValueError as error:
        raise SkyPartError(f"{file}: must have one location number per line ({error}); fix or remove it") from error


def _read_raw(root: Path, drone_folder: Path, satellite_folder: Path) -> Dataset:
    trained = train_ids(root)
    drone = [
        Record(path, "drone", f"{int(location.name):04d}", float(h))
        for location in folders_in(drone_folder)
        if location.name.isdigit()
        for h in ALTITUDES
        for path in images_in(location / str(h))
    ]
    satellite = list(read_classes(satellite_folder, "satellite"))
    train = [record for record in (*drone, *satellite) if int(record.location) in trained]
    tests = []
    for h in ALTITUDES:
        level = [record for record in drone if record.altitude == h]
        queries = [record for record in level if int(record.location) not in trained]
        tested = [record for record in satellite if int(record.location) not in trained]
        if level:
            tests.append(TestSplit("D2S", h, queries, satellite))
            tests.append(TestSplit("S2D", h, tested, level))
    whose = "the official training ids" if trained == TRAIN_IDS else "its own train_ids.txt, not the official one"
    return Dataset(Sues200.kind, Sues200.title, root, train, _by_direction(tests), (f"raw form, split by {whose}",))


def _read_split(root: Path) -> Dataset:
    train: list[Record] = []
    tests: list[TestSplit] = []
    seen: set[str] = set()
    for h in ALTITUDES:
        train += read_classes(root / f"Training/{h}/drone", "drone", float(h))
        # Every altitude has a copy of the same satellite tile: train on it once.
        tiles = [r for r in read_classes(root / f"Training/{h}/satellite", "satellite") if r.location not in seen]
        seen.update(record.location for record in tiles)
        train += tiles
        test = root / f"Testing/{h}"
        if test.is_dir():
            query = list(read_classes(test / "query_drone", "drone", float(h)))
            gallery = list(read_classes(test / "gallery_satellite", "satellite"))
            tests.append(TestSplit("D2S", h, query, gallery))
            query = list(read_classes(test / "query_satellite", "satellite"))
            gallery = list(read_classes(test / "gallery_drone", "drone", float(h)))
            tests.append(TestSplit("S2D", h, query, gallery))
    return Dataset(Sues200.kind, Sues200.title, root, train, _by_direction(tests), ("official split form",))


def _by_direction(tests: list[TestSplit]) -> list[TestSplit]:
    return sorted(tests, key=lambda split: (split.direction, split.altitude or 0.0))


class Sues200Rendering(Rendering):
    """The raw form: an orbit at each of four altitudes, one satellite tile."""

    name = "sues200"
    framing = Framing(220.0, (45.0, 65.0), 45.0)
    spacing = 150.0
    views = IMAGES_PER_ALTITUDE
    altitudes = tuple(map(float, ALTITUDES))
    view_folders = (("satellite-view/{}", "drone_view_512/{}"),)
    extra_files = (TRAIN_IDS_FILE,)

    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """60 % train (120 of 200), drawn at random; the others test."""
        train = set(rng.permutation(count)[: round(count * 0.6)].tolist())
        return ["train" if index in train else "test" for index in range(count)]

    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """The satellite tile, then `views` drone images per altitude."""
        shots = [Shot((f"satellite-view/{location}/0.png",), "satellite", 0, metres=framing.tile)]
        for flight, altitude in enumerate(self.altitudes, start=1):
            aim = Pose((0.0, 0.0), altitude, rng.uniform(*framing.tilt), 0.0, framing.fov)
            for index, pose in enumerate(orbit(aim, views, rng.uniform(0, 360))):
                path = f"drone_view_512/{location}/{altitude:.0f}/{index}.jpg"
                shots.append(Shot((path,), "drone", flight, pose.jitter(rng, 4.0, 1.5)))
        return shots

    def write_extra_files(self, out: Path, roles: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
        """Write the list of training locations."""
        write_text(out / TRAIN_IDS_FILE, "".join(f"{name}\n" for name, role in roles.items() if role == "train"))


class Sues200(Benchmark):
    """SUES-200 in either form: both directions at each altitude that has images."""

    kind = "sues200"
    title = "SUES-200"
    layout = "drone_view_512/ and satellite-view/, or Training/ and Testing/"
    averages_altitudes = True
    published_tests: Mapping[str, tuple[int, int]] = {f"D2S {h}m": (4_000, 200) for h in ALTITUDES} | {
        f"S2D {h}m": (80, 10_000) for h in ALTITUDES
    }
    rendering = Sues200Rendering()

    def matches(self, root: Path) -> bool:
        """Whether `root` has the raw or the split form."""
        split = any((root / "Testing" / str(h)).is_dir() or (root / "Training" / str(h)).is_dir() for h in ALTITUDES)
        return split or raw_folders(root) is not None

    def read(self, root: Path) -> Dataset:
        """Read either form."""
        folders = raw_folders(root)
        return _read_split(root) if folders is None else _read_raw(root, *folders)

    def image_folders(self, root: Path) -> list[ImageFolder]:
        """The folders of the form that `root` has."""
        raw = raw_folders(root)
        if raw is None:
            return folders_with_counts({name.format(h=h): n for h in ALTITUDES for name, n in SPLIT_COUNTS.items()})
        drone, satellite = raw
        images = LOCATIONS * IMAGES_PER_ALTITUDE
        levels = [ImageFolder(drone.name, str(h), (LOCATIONS, images)) for h in ALTITUDES]
        return [*levels, ImageFolder(satellite.name, published=(LOCATIONS, LOCATIONS))]

    def is_published(self, dataset: Dataset) -> bool:
        """Whether sizes and test locations are those of the official split."""
        queried = {int(record.location) for split in dataset.tests for record in split.query}
        return super().is_published(dataset) and not queried & TRAIN_IDS
