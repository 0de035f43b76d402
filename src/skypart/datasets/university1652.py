"""University-1652: `train/{drone,satellite}/<id>/*`, `test/{query,gallery}_{drone,satellite}/<id>/*`."""

from pathlib import Path

from skypart.datasets.records import Dataset, TestSplit
from skypart.datasets.scan import folders_in, read_classes

KIND = "university1652"
NAME = "University-1652"

OFFICIAL_COUNTS = {
    "train/drone": (701, 37_854),
    "train/satellite": (701, 701),
    "test/query_drone": (701, 37_855),
    "test/query_satellite": (701, 701),
    "test/gallery_drone": (951, 51_355),
    "test/gallery_satellite": (951, 951),
}
"""Part folder -> (locations, images) of the published release."""

UNUSED_PARTS = ("train/street", "train/google", "test/query_street", "test/gallery_street", "test/4K_drone")
"""Folders of the release that the two drone-satellite directions do not read."""


def matches(root: Path) -> bool:
    """Whether `root` is laid out like University-1652 (DenseUAV has the same folders, but 6-digit ids)."""
    parts = [root / part for part in OFFICIAL_COUNTS]
    names = [folder.name for part in parts for folder in folders_in(part)[:1]]
    return sum(part.is_dir() for part in parts) >= 3 and all(len(name) < 6 for name in names)


def read(root: Path) -> Dataset:
    """Read the layout; label = the folder's number, no altitudes, no positions."""
    train = [
        *read_classes(root / "train/drone", "drone"),
        *read_classes(root / "train/satellite", "satellite"),
    ]
    test = root / "test"
    tests = (
        TestSplit(
            "D2S",
            None,
            list(read_classes(test / "query_drone", "drone")),
            list(read_classes(test / "gallery_satellite", "satellite")),
        ),
        TestSplit(
            "S2D",
            None,
            list(read_classes(test / "query_satellite", "satellite")),
            list(read_classes(test / "gallery_drone", "drone")),
        ),
    )
    return Dataset(KIND, NAME, root, train, tests)
