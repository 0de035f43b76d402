"""University-1652: `train/{drone,satellite}/<id>/*`, `test/{query,gallery}_{drone,satellite}/<id>/*`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from skypart.datasets.benchmark import Benchmark, ImageFolder, folders_with_counts
from skypart.datasets.records import Dataset, TestSplit
from skypart.datasets.rendering import Framing, Pose, Rendering, Shot, spiral
from skypart.datasets.scan import folders_in, read_classes

PUBLISHED_COUNTS = {
    "train/drone": (701, 37_854),
    "train/satellite": (701, 701),
    "test/query_drone": (701, 37_855),
    "test/query_satellite": (701, 701),
    "test/gallery_drone": (951, 51_355),
    "test/gallery_satellite": (951, 951),
}
"""Folder -> (locations, images) in the published release."""

UNUSED_FOLDERS = ("train/street", "train/google", "test/query_street", "test/gallery_street", "test/4K_drone")
"""Folders of the release that neither drone-satellite direction reads."""


class University1652Rendering(Rendering):
    """A spiral of three turns from 256 m down to 121.5 m, and one satellite tile."""

    name = "university1652"
    framing = Framing(200.0, (42.0, 60.0), 45.0)
    spacing = 150.0
    views = 54
    altitudes = (256.0, 121.5)
    view_folders = (
        ("train/satellite/{}", "train/drone/{}"),
        ("test/gallery_satellite/{}", "test/gallery_drone/{}"),
    )

    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Roles in the ratio 701 train : 701 query : 250 distractors, in order, so that regions do not mix."""
        train, distractors = round(count * 701 / 1652), round(count * 250 / 1652)
        test = count - train - distractors
        return ["train"] * train + ["test"] * test + ["distractor"] * distractors

    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """Images of training locations go to `train`, of queries to query and gallery, of distractors to gallery."""
        folders = {
            "train": ("train/{}",),
            "test": ("test/query_{}", "test/gallery_{}"),
            "distractor": ("test/gallery_{}",),
        }[role]

        def paths(view: str, name: str) -> tuple[str, ...]:
            return tuple(f"{folder.format(view)}/{location}/{name}" for folder in folders)

        top, bottom = self.altitudes
        shots = [Shot(paths("satellite", f"{location}.jpg"), "satellite", 0, metres=framing.tile)]
        aim = Pose((0.0, 0.0), top, rng.uniform(*framing.tilt), 0.0, framing.fov)
        for index, pose in enumerate(spiral(aim, views, top, bottom, rng.uniform(0, 360)), start=1):
            shots.append(Shot(paths("drone", f"image-{index:02d}.jpeg"), "drone", 1, pose.jitter(rng, 2.0, 0.8)))
        return shots

    def write_extra_files(self, out: Path, roles: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
        """Create the empty street folders of the training locations."""
        for location, role in roles.items():
            for view in ("street", "google") if role == "train" else ():
                (out / "train" / view / location).mkdir(parents=True, exist_ok=True)


class University1652(Benchmark):
    """University-1652. The label is the folder's number; there are no altitudes and no positions."""

    kind = "university1652"
    title = "University-1652"
    layout = "train/ and test/ with query_drone, gallery_satellite, ... and 4-digit locations"
    published_tests: Mapping[str, tuple[int, int]] = {"D2S": (37_855, 951), "S2D": (701, 51_355)}
    rendering = University1652Rendering()

    def matches(self, root: Path) -> bool:
        """Whether three or more of its folders exist (DenseUAV has the same folders, but 6-digit ids)."""
        folders = [root / path for path in PUBLISHED_COUNTS]
        names = [location.name for folder in folders for location in folders_in(folder)[:1]]
        return sum(folder.is_dir() for folder in folders) >= 3 and all(len(name) < 6 for name in names)

    def read(self, root: Path) -> Dataset:
        """Read the training images and both test directions."""
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
        return Dataset(self.kind, self.title, root, train, tests)

    def image_folders(self, root: Path) -> list[ImageFolder]:
        """The folders of the release, with those that are not used."""
        return folders_with_counts(PUBLISHED_COUNTS) + [ImageFolder(path, used=False) for path in UNUSED_FOLDERS]
