"""Folder layouts, the three benchmarks' and our own: which pictures of a location go where, and how they are flown."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from skypart.errors import SkyPartError
from skypart.worlds.camera import Pose, orbit, spiral


@dataclass(frozen=True)
class Framing:
    """What the cameras cover. tile: metres of a satellite tile; tilt: range in degrees; fov: degrees.

    surrounded: beyond the tile lies other maps' ground, which drones may see and satellites may not.
    """

    tile: float
    tilt: tuple[float, float]
    fov: float
    surrounded: bool = False


@dataclass(frozen=True)
class Shot:
    """One picture and all the places it is written to (relative paths).

    view: drone, satellite or old (an older satellite pass). pose: of drones, around (0, 0). metres: of satellites.
    flight: pictures of one number share season, sun and camera.
    """

    paths: tuple[str, ...]
    view: str
    flight: int
    pose: Pose | None = None
    metres: float = 0.0


@dataclass(frozen=True)
class Layout:
    """A benchmark's shape. spacing: metres between locations. views: drone pictures of a location and altitude.

    together: the locations of a map are neighbours, not scattered over it.
    """

    name: str
    framing: Framing
    spacing: float
    views: int
    altitudes: tuple[float, ...]
    assign: Callable[[int, np.random.Generator], list[str]]
    shots: Callable[[str, str, int, Framing, np.random.Generator], list[Shot]]
    together: bool = False

    @property
    def highest(self) -> float:
        """Largest altitude flown, metres."""
        return max(self.altitudes)


def fit(
    framing: Framing, extent: tuple[float, float], highest: float, margin: tuple[float, float] = (0.0, 0.0)
) -> Framing:
    """The framing on a map of `extent` metres: small maps get a narrower lens and steeper views, unless they have
    surroundings, `margin` metres of them at either side."""
    room = min(extent)
    own = min(edge - 2 * rim for edge, rim in zip(extent, margin, strict=True))
    if own >= 2.5 * framing.tile:
        return framing
    tile = min(framing.tile, 0.98 * own)
    if room >= 2.5 * tile:
        return replace(framing, tile=tile, surrounded=True)
    tilt = (max(framing.tilt[0], 58.0), max(framing.tilt[1], 80.0))
    slant = highest / math.sin(math.radians(tilt[0]))
    lens = math.degrees(2 * math.atan(0.6 * room / slant))
    return Framing(tile, tilt, min(framing.fov, lens))


def _jitter(pose: Pose, rng: np.random.Generator, metres: float, degrees: float) -> Pose:
    """A pose that misses its aim a little, as flown ones do."""
    dx, dy = rng.normal(0, metres, 2)
    tilt = float(np.clip(pose.tilt + rng.normal(0, degrees), 30, 90))
    return Pose(
        (pose.target[0] + dx, pose.target[1] + dy),
        pose.altitude * rng.uniform(0.985, 1.015),
        tilt,
        (pose.azimuth + rng.normal(0, 2 * degrees)) % 360,
        pose.fov,
    )


def assign_sues(count: int, rng: np.random.Generator) -> list[str]:
    """Role of each location: 60 % train (120 of 200), the others test, drawn at random."""
    train = set(rng.permutation(count)[: round(count * 0.6)].tolist())
    return ["train" if index in train else "test" for index in range(count)]


def shots_sues(number: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
    """SUES-200 raw form: an orbit at each of four altitudes, one satellite tile."""
    shots = [Shot((f"satellite-view/{number}/0.png",), "satellite", 0, metres=framing.tile)]
    for flight, altitude in enumerate((150.0, 200.0, 250.0, 300.0), start=1):
        aim = Pose((0.0, 0.0), altitude, rng.uniform(*framing.tilt), 0.0, framing.fov)
        for index, pose in enumerate(orbit(aim, views, rng.uniform(0, 360))):
            path = f"drone_view_512/{number}/{altitude:.0f}/{index}.jpg"
            shots.append(Shot((path,), "drone", flight, _jitter(pose, rng, 4.0, 1.5)))
    return shots


def assign_university(count: int, rng: np.random.Generator) -> list[str]:
    """Roles in the proportion 701 train : 701 query : 250 distractors, in order, so that regions do not mix."""
    train, distractors = round(count * 701 / 1652), round(count * 250 / 1652)
    test = count - train - distractors
    return ["train"] * train + ["test"] * test + ["distractor"] * distractors


def shots_university(number: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
    """University-1652: a spiral of three turns from 256 m down to 121.5 m, one satellite tile."""
    folders = {
        "train": ("train/{}",),
        "test": ("test/query_{}", "test/gallery_{}"),
        "distractor": ("test/gallery_{}",),
    }[role]

    def paths(view: str, name: str) -> tuple[str, ...]:
        return tuple(f"{folder.format(view)}/{number}/{name}" for folder in folders)

    shots = [Shot(paths("satellite", f"{number}.jpg"), "satellite", 0, metres=framing.tile)]
    aim = Pose((0.0, 0.0), 256.0, rng.uniform(*framing.tilt), 0.0, framing.fov)
    for index, pose in enumerate(spiral(aim, views, 256.0, 121.5, rng.uniform(0, 360)), start=1):
        shots.append(Shot(paths("drone", f"image-{index:02d}.jpeg"), "drone", 1, _jitter(pose, rng, 2.0, 0.8)))
    return shots


def assign_dense(count: int, rng: np.random.Generator) -> list[str]:
    """Roles in the proportion 2256 train : 777 test, in order, so that the areas do not mix."""
    train = round(count * 2256 / 3033)
    return ["train"] * train + ["test"] * (count - train)


def shots_dense(number: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
    """DenseUAV: straight down at 80, 90 and 100 m, and two satellite epochs a height; galleries hold all classes."""
    shots = []
    for flight, height in enumerate((80, 90, 100)):
        folders = ["train/{}"] if role == "train" else ["test/query_{}"]
        folders.append("test/gallery_{}")
        drone = tuple(f"{folder.format('drone')}/{number}/H{height}.JPG" for folder in folders)
        pose = Pose((0.0, 0.0), float(height), 90.0, rng.uniform(0, 360), framing.fov)
        shots.append(Shot(drone, "drone", 1 + flight, _jitter(pose, rng, 1.0, 0.0)))
        metres = framing.tile * height / 100
        for view, ending in (("satellite", ""), ("old", "_old")):
            paths = tuple(f"{folder.format('satellite')}/{number}/H{height}{ending}.tif" for folder in folders)
            shots.append(Shot(paths, view, 0 if view == "satellite" else 9, metres=metres))
    return shots


def assign_free(count: int, rng: np.random.Generator) -> list[str]:
    """All locations are trained on; tests are worlds of their own."""
    return ["train"] * count


def shots_free(number: str, role: str, views: int, framing: Framing, rng: np.random.Generator) -> list[Shot]:
    """Our own form for training: every drone picture a flight of its own, three satellite passes of unlike width.

    The width of ground a drone sees is drawn first, then tilt and altitude, and the lens that gives it: what a model
    must learn is that neither height, nor lens, nor direction says which place it is.
    """
    small = framing.tilt[0] > 50
    shots = []
    for index, view in enumerate(("satellite", "old", "satellite")):
        width = framing.tile * rng.uniform(*((0.72, 1.0) if small or framing.surrounded else (0.8, 1.3)))
        shots.append(Shot((f"satellite/{number}/{index}.jpg",), view, 1000 + index, metres=width))
    lowest = 55.0 if small else 32.0
    for index in range(views):
        width = framing.tile * rng.uniform(*((0.4, 0.75) if small else (0.5, 1.15)))
        tilt = lowest + (90.0 - lowest) * float(rng.uniform()) ** 1.3
        altitude = math.exp(rng.uniform(math.log(60.0), math.log(320.0)))
        lens = math.degrees(2 * math.atan(width / 2 / (altitude / math.sin(math.radians(tilt)))))
        aim = rng.normal(0.0, 0.06 * framing.tile, 2)
        pose = Pose((aim[0], aim[1]), altitude, tilt, rng.uniform(0, 360), min(max(lens, 22.0), 84.0))
        shots.append(Shot((f"drone/{number}/{index}.jpg",), "drone", index, pose))
    return shots


LAYOUTS = {
    "sues200": Layout(
        "sues200", Framing(220.0, (45.0, 65.0), 45.0), 150.0, 50, (150.0, 200.0, 250.0, 300.0), assign_sues, shots_sues
    ),
    "university1652": Layout(
        "university1652",
        Framing(200.0, (42.0, 60.0), 45.0),
        150.0,
        54,
        (256.0, 121.5),
        assign_university,
        shots_university,
    ),
    "denseuav": Layout(
        "denseuav", Framing(125.0, (90.0, 90.0), 58.0), 30.0, 1, (80.0, 90.0, 100.0), assign_dense, shots_dense, True
    ),
    "free": Layout("free", Framing(200.0, (40.0, 70.0), 50.0), 150.0, 6, (320.0, 60.0), assign_free, shots_free),
}


def layout_named(name: str) -> Layout:
    """The layout of a benchmark."""
    if name not in LAYOUTS:
        raise SkyPartError(f"unknown layout {name!r}; choose one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def location_name(layout: Layout, index: int) -> str:
    """Folder name of location `index` (from 0): four digits from 0001, DenseUAV six digits from 000000."""
    return f"{index:06d}" if layout.name == "denseuav" else f"{index + 1:04d}"
