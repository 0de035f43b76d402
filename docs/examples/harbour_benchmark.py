"""A benchmark from outside the package: Harbour-30, a made-up data set. See docs/extending.md.

Layout: `{train,test}/<4 digits>/{uav,ortho}/*.jpg`; the test galleries are the test locations.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from skypart.datasets import Benchmark, Dataset, Record, TestSplit, View, register
from skypart.datasets.benchmark import ImageFolder
from skypart.datasets.rendering import Framing, Pose, Rendering, Shot, orbit
from skypart.datasets.scan import folders_in, images_in

ALTITUDE = 120.0


class HarbourRendering(Rendering):
    """`skypart world make --like harbour30`: one orbit at 120 m and one orthophoto per location."""

    name = "harbour30"
    framing = Framing(tile=200.0, tilt=(50.0, 60.0), fov=45.0)
    spacing = 150.0
    views = 8
    altitudes = (ALTITUDE,)
    view_folders = (("train/{}/ortho", "train/{}/uav"),)

    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """The first two thirds are for training."""
        train = round(count * 2 / 3)
        return ["train"] * train + ["test"] * (count - train)

    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """The orthophoto, then the orbit."""
        aim = Pose((0.0, 0.0), ALTITUDE, rng.uniform(*framing.tilt), 0.0, framing.fov)
        poses = orbit(aim, views, rng.uniform(0, 360))
        ortho = Shot((f"{role}/{location}/ortho/0.jpg",), "satellite", 0, metres=framing.tile)
        return [ortho, *(Shot((f"{role}/{location}/uav/{i}.jpg",), "drone", 1, p) for i, p in enumerate(poses))]


class Harbour(Benchmark):
    """Harbour-30: 20 training and 10 test locations, 8 drone images each."""

    kind = "harbour30"
    title = "Harbour-30"
    layout = "train/ and test/ with <location>/uav and <location>/ortho"
    headline_metrics = ("R@1", "R@5", "AP")
    published_tests: Mapping[str, tuple[int, int]] = {"D2S": (80, 10), "S2D": (10, 80)}
    rendering = HarbourRendering()

    def matches(self, root: Path) -> bool:
        """Whether the first test location has a `uav` folder."""
        return any((location / "uav").is_dir() for location in folders_in(root / "test")[:1])

    def read(self, root: Path) -> Dataset:
        """Read all images; the label is the location's number."""

        def load(part: str, folder: str, view: View) -> list[Record]:
            found = [(place.name, path) for place in folders_in(root / part) for path in images_in(place / folder)]
            return [Record(path, view, location, ALTITUDE) for location, path in found]

        train = [*load("train", "uav", "drone"), *load("train", "ortho", "satellite")]
        drone, satellite = load("test", "uav", "drone"), load("test", "ortho", "satellite")
        tests = (TestSplit("D2S", None, drone, satellite), TestSplit("S2D", None, satellite, drone))
        return Dataset(self.kind, self.title, root, train, tests)

    def image_folders(self, root: Path) -> list[ImageFolder]:
        """What `skypart data check` counts: path, inner folder, (locations, images) of the release."""
        return [
            ImageFolder("train", "uav", (20, 160)),
            ImageFolder("train", "ortho", (20, 20)),
            ImageFolder("test", "uav", (10, 80)),
            ImageFolder("test", "ortho", (10, 10)),
        ]


register(Harbour())
