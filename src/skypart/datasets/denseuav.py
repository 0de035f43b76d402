"""DenseUAV: `{train,test}/.../<6 digits>/H{80,90,100}.JPG`, `H*.tif`, `H*_old.tif`, and GPS files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from skypart.atomic import write_text
from skypart.datasets.benchmark import Benchmark, Fault, ImageFolder, folders_with_counts
from skypart.datasets.records import Dataset, Position, Record, TestSplit, View
from skypart.datasets.rendering import Framing, Pose, Rendering, Shot, ShotView
from skypart.datasets.scan import abbreviate, folders_in, images_in, read_classes
from skypart.errors import SkyPartError

HEIGHTS = (80, 90, 100)
DIGITS = 6
GPS_FILES = ("Dense_GPS_train.txt", "Dense_GPS_test.txt", "Dense_GPS_ALL.txt")
_HEIGHT = re.compile(r"H(\d+)")

PUBLISHED_COUNTS = {
    "train/drone": (2_256, 6_768),
    "train/satellite": (2_256, 13_536),
    "test/query_drone": (777, 2_331),
    "test/query_satellite": (777, 4_662),
    "test/gallery_drone": (3_033, 9_099),
    "test/gallery_satellite": (3_033, 18_198),
}
"""Folder -> (locations, images) in the published release."""


def read_positions(root: Path) -> dict[str, Position]:
    """Location -> position from the GPS files in the order of GPS_FILES; a later line overrides.

    Lines are `path E<longitude> N<latitude> <height>`; the location is the folder of the path.
    """
    positions: dict[str, Position] = {}
    for name in GPS_FILES:
        file = root / name
        if not file.is_file():
            continue
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise SkyPartError(f"{file}: is not UTF-8 text ({error}); save it as UTF-8") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                location, position = _parse(line, f"{file}, line {number}")
                positions[location] = position
    return positions


def _parse(line: str, where: str) -> tuple[str, Position]:
    words = line.split()
    try:
        location = f"{int(words[0].replace(chr(92), '/').split('/')[-2]):0{DIGITS}d}"
        return location, Position(_degrees(words[1], "E", "W"), _degrees(words[2], "N", "S"))
    except (IndexError, ValueError) as error:
        raise SkyPartError(f"{where}: must be `path E<longitude> N<latitude> <height>`, not {line!r}") from error


def _degrees(word: str, positive: str, negative: str) -> float:
    if word[0] not in positive + negative:
        raise ValueError(word)
    degrees = float(word[1:])
    if not abs(degrees) <= 180:
        raise ValueError(word)
    return degrees * (1.0 if word[0] == positive else -1.0)


def _with_heights(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        height = _HEIGHT.match(record.path.name)
        yield replace(record, altitude=float(height.group(1))) if height else record


class DenseUavRendering(Rendering):
    """Straight down at 80, 90 and 100 m, and satellite tiles of two dates per height."""

    name = "denseuav"
    framing = Framing(125.0, (90.0, 90.0), 58.0)
    spacing = 30.0
    views = 1
    altitudes = tuple(map(float, HEIGHTS))
    view_folders = (
        ("train/satellite/{}", "train/drone/{}"),
        ("test/gallery_satellite/{}", "test/gallery_drone/{}"),
    )
    fixed_views = True
    adjacent = True
    dates = 3
    extra_files = GPS_FILES

    def location_name(self, index: int) -> str:
        """Six digits from 000000."""
        return f"{index:0{DIGITS}d}"

    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Roles in the ratio 2256 train : 777 test, in order, so that the areas do not mix."""
        train = round(count * 2256 / 3033)
        return ["train"] * train + ["test"] * (count - train)

    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """Training or query images, which are all in the galleries as well."""
        shots = []
        for flight, height in enumerate(HEIGHTS):
            folders = ["train/{}"] if role == "train" else ["test/query_{}"]
            folders.append("test/gallery_{}")
            drone = tuple(f"{folder.format('drone')}/{location}/H{height}.JPG" for folder in folders)
            pose = Pose((0.0, 0.0), float(height), 90.0, rng.uniform(0, 360), framing.fov)
            shots.append(Shot(drone, "drone", 1 + flight, pose.jitter(rng, 1.0, 0.0)))
            metres = framing.tile * height / 100
            epochs: tuple[tuple[ShotView, str], ...] = (("satellite", ""), ("old", "_old"))
            for view, ending in epochs:
                paths = tuple(f"{folder.format('satellite')}/{location}/H{height}{ending}.tif" for folder in folders)
                shots.append(Shot(paths, view, 0 if view == "satellite" else 9, metres=metres))
        return shots

    def write_extra_files(self, out: Path, roles: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
        """Write the GPS files."""
        lines = {part: "".join(line for row in rows for line in _gps_lines(row, part)) for part in ("train", "test")}
        for name, text in zip(GPS_FILES, (lines["train"], lines["test"], lines["train"] + lines["test"]), strict=True):
            write_text(out / name, text)


def _gps_lines(row: Mapping[str, str], part: str) -> list[str]:
    """Lines `path E<longitude> N<latitude> <height>` of one image, for its paths in `part` (train or test)."""
    return [
        f"{path} E{row['target_lon']} N{row['target_lat']} {row['altitude_m']}\n"
        for path in row["all_paths"].split("|")
        if path.startswith(part)
    ]


class DenseUav(Benchmark):
    """DenseUAV: the whole test in both directions, and the queries of each height separately."""

    kind = "denseuav"
    title = "DenseUAV"
    layout = "train/ and test/ with query_drone, gallery_satellite, ..., 6-digit locations and Dense_GPS_*.txt"
    headline_metrics = ("R@1", "R@5", "R@top1", "AP", "SDM@1", "SDM@3", "SDM@5")
    published_tests: Mapping[str, tuple[int, int]] = {"D2S": (2_331, 18_198), "S2D": (4_662, 9_099)}
    rendering = DenseUavRendering()

    def matches(self, root: Path) -> bool:
        """Whether `root` has DenseUAV's folders, and GPS files or images named by height."""
        if not any((root / path).is_dir() for path in PUBLISHED_COUNTS):
            return False
        if any((root / name).is_file() for name in GPS_FILES):
            return True
        for path in PUBLISHED_COUNTS:
            for location in folders_in(root / path)[:1]:
                return len(location.name) == DIGITS and any(_HEIGHT.match(p.name) for p in images_in(location))
        return False

    def read(self, root: Path) -> Dataset:
        """Read the images, their heights from file names, and their positions from the GPS files."""
        positions = read_positions(root)

        def load(folder: str, view: View) -> list[Record]:
            return list(_with_heights(read_classes(root / folder, view, None, DIGITS, positions)))

        train = [*load("train/drone", "drone"), *load("train/satellite", "satellite")]
        whole = [
            TestSplit("D2S", None, load("test/query_drone", "drone"), load("test/gallery_satellite", "satellite")),
            TestSplit("S2D", None, load("test/query_satellite", "satellite"), load("test/gallery_drone", "drone")),
        ]
        tests: list[TestSplit] = []
        for split in whole:
            tests.append(split)
            for height in HEIGHTS:
                query = [record for record in split.query if record.altitude == height]
                if query:
                    tests.append(TestSplit(split.direction, float(height), query, split.gallery))
        notes: tuple[str, ...] = () if positions else ("no Dense_GPS_*.txt found: SDM and MA cannot be computed",)
        tested = {record.location: record for split in whole for record in (*split.query, *split.gallery)}
        unknown = sorted(name for name, record in tested.items() if record.position is None)
        if positions and unknown:
            first = f"{len(unknown)} locations have no line in Dense_GPS_*.txt (first: {unknown[0]})"
            notes = (f"{first}: SDM and MA cannot be computed",)
        return Dataset(self.kind, self.title, root, train, tests, notes)

    def image_folders(self, root: Path) -> list[ImageFolder]:
        """The folders of the release."""
        return folders_with_counts(PUBLISHED_COUNTS)

    def inconsistencies(self, dataset: Dataset) -> Iterator[tuple[Fault, str]]:
        """Locations without a position, unless none has one."""
        records = [
            *dataset.train,
            *(record for split in dataset.tests for record in (*split.query, *split.gallery)),
        ]
        unknown = {record.location for record in records if record.position is None}
        if unknown and len(unknown) < len({record.location for record in records}):
            yield "missing", f"no line in Dense_GPS_*.txt for {abbreviate(unknown)}"
