"""DenseUAV: `{train,test}/.../<6 digits>/H{80,90,100}.JPG`, `H*.tif`, `H*_old.tif`, and GPS files."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from skypart.datasets.records import Dataset, Position, Record, TestSplit, View
from skypart.datasets.scan import folders_in, images_in, read_classes
from skypart.errors import SkyPartError

KIND = "denseuav"
NAME = "DenseUAV"
HEIGHTS = (80, 90, 100)
DIGITS = 6
GPS_FILES = ("Dense_GPS_train.txt", "Dense_GPS_test.txt", "Dense_GPS_ALL.txt")
_HEIGHT = re.compile(r"H(\d+)")

OFFICIAL_COUNTS = {
    "train/drone": (2_256, 6_768),
    "train/satellite": (2_256, 13_536),
    "test/query_drone": (777, 2_331),
    "test/query_satellite": (777, 4_662),
    "test/gallery_drone": (3_033, 9_099),
    "test/gallery_satellite": (3_033, 18_198),
}
"""Part folder -> (locations, images) of the published release."""


def matches(root: Path) -> bool:
    """Whether `root` is laid out like DenseUAV: GPS files, or images named by height."""
    if not any((root / part).is_dir() for part in OFFICIAL_COUNTS):
        return False
    if any((root / name).is_file() for name in GPS_FILES):
        return True
    for part in OFFICIAL_COUNTS:
        for location in folders_in(root / part)[:1]:
            return len(location.name) == DIGITS and any(_HEIGHT.match(p.name) for p in images_in(location))
    return False


def read_positions(root: Path) -> dict[str, Position]:
    """Location -> position from the GPS files, train, test, then ALL; a later line overrides.

    Lines are `path E<longitude> N<latitude> <height>`; the key is the path's class folder.
    """
    positions: dict[str, Position] = {}
    for name in GPS_FILES:
        file = root / name
        if not file.is_file():
            continue
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise SkyPartError(f"{file}: is no text in UTF-8 ({error}); save it as such") from error
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
        raise SkyPartError(f"{where}: must read `path E<longitude> N<latitude> <height>`, not {line!r}") from error


def _degrees(word: str, positive: str, negative: str) -> float:
    if word[0] not in positive + negative:
        raise ValueError(word)
    degrees = float(word[1:])
    if not abs(degrees) <= 180:
        raise ValueError(word)
    return degrees * (1.0 if word[0] == positive else -1.0)


def read(root: Path) -> Dataset:
    """Read the layout: the whole test in both directions, and the queries of each height on their own."""
    positions = read_positions(root)

    def part(folder: str, view: View) -> list[Record]:
        return list(_with_heights(read_classes(root / folder, view, None, DIGITS, positions)))

    train = [*part("train/drone", "drone"), *part("train/satellite", "satellite")]
    whole = [
        TestSplit("D2S", None, part("test/query_drone", "drone"), part("test/gallery_satellite", "satellite")),
        TestSplit("S2D", None, part("test/query_satellite", "satellite"), part("test/gallery_drone", "drone")),
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
    lacking = sorted(name for name, record in tested.items() if record.position is None)
    if positions and lacking:
        first = f"{len(lacking)} locations have no line in Dense_GPS_*.txt (first: {lacking[0]})"
        notes = (f"{first}: SDM and MA cannot be computed",)
    return Dataset(KIND, NAME, root, train, tests, notes)


def _with_heights(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        height = _HEIGHT.match(record.path.name)
        yield replace(record, altitude=float(height.group(1))) if height else record
