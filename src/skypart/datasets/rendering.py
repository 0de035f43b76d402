"""How `skypart world make` renders a benchmark: which images each location gets, how they are flown, where they go.

A benchmark's file defines its own `Rendering` beside its reader, so that both share folder names and altitudes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

WORLD_FILE = "world.json"
"""Describes a rendered data set; the folder `maps` beside it holds the whole ground."""

ShotView: TypeAlias = Literal["drone", "satellite", "old"]
"""`old` is a satellite image of an earlier date."""


def is_rendered(root: Path) -> bool:
    """Whether `root` was written by `skypart world make`."""
    return (root / WORLD_FILE).is_file()


@dataclass(frozen=True)
class Pose:
    """Where a drone camera is and where it points. The optical axis hits the bare earth at `target`.

    target: (x, y) local metres; altitude: metres of the camera above the bare earth at the target.
    tilt: degrees below the horizon (90 = straight down); azimuth: compass degrees of the viewing direction.
    fov: degrees across the square image.
    """

    target: tuple[float, float]
    altitude: float
    tilt: float = 90.0
    azimuth: float = 0.0
    fov: float = 45.0

    def jitter(self, rng: np.random.Generator, metres: float, degrees: float) -> "Pose":
        """A pose that misses its aim a little, as real flights do; standard deviations in metres and degrees."""
        dx, dy = rng.normal(0, metres, 2)
        tilt = float(np.clip(self.tilt + rng.normal(0, degrees), 30, 90))
        return Pose(
            (self.target[0] + dx, self.target[1] + dy),
            self.altitude * rng.uniform(0.985, 1.015),
            tilt,
            (self.azimuth + rng.normal(0, 2 * degrees)) % 360,
            self.fov,
        )


def orbit(pose: Pose, views: int, start: float = 0.0, turns: float = 1.0) -> list[Pose]:
    """`views` poses on a circle around the target of `pose`, all pointing at it."""
    return [replace(pose, azimuth=(start + 360.0 * turns * index / views) % 360.0) for index in range(views)]


def spiral(pose: Pose, views: int, top: float, bottom: float, start: float = 0.0, turns: float = 3.0) -> list[Pose]:
    """`views` poses on a spiral that descends from altitude `top` to `bottom` metres in `turns` turns."""
    ring = orbit(pose, views, start, turns)
    steps = max(views - 1, 1)
    return [replace(each, altitude=top + (bottom - top) * index / steps) for index, each in enumerate(ring)]


@dataclass(frozen=True)
class Framing:
    """What the cameras cover. tile: metres of a satellite tile; tilt: range in degrees; fov: degrees.

    surrounded: beyond the tile lies the ground of other maps, which drones may see and satellites may not.
    """

    tile: float
    tilt: tuple[float, float]
    fov: float
    surrounded: bool = False


@dataclass(frozen=True)
class Shot:
    """One image and all the paths it is written to, relative to the data set.

    pose: of drone images, around (0, 0). metres: edge of satellite images.
    flight: images with the same number share season, sun and camera.
    """

    paths: tuple[str, ...]
    view: ShotView
    flight: int
    pose: Pose | None = None
    metres: float = 0.0


class Rendering(ABC):
    """How to render a data set in one layout. Subclasses set the attributes and implement the abstract methods.

    name: the value of `--like`. framing: what the cameras cover. spacing: metres between locations.
    views: drone images per location and altitude; fixed_views: the user cannot change their number.
    altitudes: all altitudes flown, in metres. adjacent: the locations of a map are neighbours, not scattered over it.
    dates: states of the ground that a procedural map needs (drone, satellite, and perhaps an older satellite).
    view_folders: (satellite folder, drone folder) of a location `{}`, for contact sheets; the first pair found is used.
    extra_files: paths of the files that `write_extra_files` writes.
    """

    name: str
    framing: Framing
    spacing: float
    views: int
    altitudes: tuple[float, ...]
    view_folders: tuple[tuple[str, str], ...]
    fixed_views: bool = False
    adjacent: bool = False
    dates: int = 2
    extra_files: tuple[str, ...] = ()

    @property
    def highest(self) -> float:
        """Highest altitude flown, metres."""
        return max(self.altitudes)

    def location_name(self, index: int) -> str:
        """Folder name of location `index`, which counts from 0."""
        return f"{index + 1:04d}"

    @abstractmethod
    def assign_roles(self, count: int, rng: np.random.Generator) -> list[str]:
        """The role of each of `count` locations: `train`, `test` or `distractor`."""

    @abstractmethod
    def shots(self, location: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
        """All images of the location named `location`, in the order they are rendered."""

    def write_extra_files(  # noqa: B027 (most layouts have no extra files)
        self, out: Path, roles: Mapping[str, str], rows: Sequence[Mapping[str, str]]
    ) -> None:
        """Write what belongs beside the images, such as lists of training locations or positions.

        roles: location -> role. rows: one per image, sorted by path, with the keys of poses.csv and `view` and
        `all_paths` (paths joined by `|`).
        """
