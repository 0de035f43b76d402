"""SUES-200, raw (`drone_view_512/<id>/<h>/*`, `satellite-view/<id>/*`) and in the official split form.

Split form: `Training/<h>/{drone,satellite}/<id>/*`, `Testing/<h>/{query,gallery}_{drone,satellite}/<id>/*`.
"""

from pathlib import Path

from skypart.datasets.records import Dataset, Record, TestSplit
from skypart.datasets.scan import folders_in, images_in, read_classes
from skypart.errors import SkyPartError

KIND = "sues200"
NAME = "SUES-200"
ALTITUDES = (150, 200, 250, 300)
LOCATIONS = 200
IMAGES_PER_ALTITUDE = 50

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
"""The official 120 training locations; the other 80 of 1..200 are tested."""

SPLIT_COUNTS = {
    "Training/{h}/drone": (120, 6_000),
    "Training/{h}/satellite": (120, 120),
    "Testing/{h}/query_drone": (80, 4_000),
    "Testing/{h}/query_satellite": (80, 80),
    "Testing/{h}/gallery_drone": (200, 10_000),
    "Testing/{h}/gallery_satellite": (200, 200),
}
"""Part folder at altitude h -> (locations, images) of the official split."""


def raw_folders(root: Path) -> tuple[Path, Path] | None:
    """The drone and the satellite folder of the raw form, or None if `root` is not that."""
    drone = [f for f in folders_in(root) if "drone" in f.name.lower()]
    satellite = [f for f in folders_in(root) if "satellite" in f.name.lower()]
    for folder in drone:
        for location in folders_in(folder)[:3]:
            if satellite and any(f.name in map(str, ALTITUDES) for f in folders_in(location)):
                return folder, satellite[0]
    return None


def matches(root: Path) -> bool:
    """Whether `root` is SUES-200 in either form."""
    split = any((root / "Testing" / str(h)).is_dir() or (root / "Training" / str(h)).is_dir() for h in ALTITUDES)
    return split or raw_folders(root) is not None


def train_ids(root: Path) -> frozenset[int]:
    """Training ids of `root`: its own `train_ids.txt` (as rendered worlds have) or the official 120."""
    file = root / "train_ids.txt"
    if not file.is_file():
        return TRAIN_IDS
    try:
        return frozenset(int(word) for word in file.read_text(encoding="utf-8").split())
    except ValueError as error:
        raise SkyPartError(f"{file}: must hold one location number a line ({error}); mend or remove it") from error


def read(root: Path) -> Dataset:
    """Read either form into one data set: both directions at each altitude that has images."""
    folders = raw_folders(root)
    return _read_split(root) if folders is None else _read_raw(root, *folders)


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
    return Dataset(KIND, NAME, root, train, _by_direction(tests), (f"raw form, split by {whose}",))


def _read_split(root: Path) -> Dataset:
    train: list[Record] = []
    tests: list[TestSplit] = []
    seen: set[str] = set()
    for h in ALTITUDES:
        train += read_classes(root / f"Training/{h}/drone", "drone", float(h))
        # The same satellite tile stands under every altitude: train on it once.
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
    return Dataset(KIND, NAME, root, train, _by_direction(tests), ("official split form",))


def _by_direction(tests: list[TestSplit]) -> list[TestSplit]:
    return sorted(tests, key=lambda split: (split.direction, split.altitude or 0.0))
