"""Images to calibrate and to check an export with: a rendered world in all ten weathers, or images the user names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, list_photos, read_rgb
from skypart.images.weather import CONDITIONS, corrupt
from skypart.progress import with_progress
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import random_pose
from skypart.worlds.ground import World
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_satellite

STYLES = ("town", "suburb", "campus", "farmland", "coast")
SATELLITE_M = 160.0
"""Edge of the ground on the satellite image of a place."""


@dataclass(frozen=True)
class Places:
    """Places to retrieve: satellites, one per place; drones, photos of them; place: (n,) the place of each drone photo.

    Images that a user names have no places: satellites is empty.
    """

    drones: list[RgbImage]
    satellites: list[RgbImage]
    place: list[int]

    @property
    def images(self) -> list[RgbImage]:
        """All images."""
        return [*self.drones, *self.satellites]


def render_places(photos: int, seed: int, size: int = 320) -> Places:
    """Render drone photos, two per place and in all weathers by turns, and the satellite image of each place."""
    count = max(1, (photos + 1) // 2)
    worlds: dict[int, World] = {}
    found = Places([], [], [])
    for number in with_progress(range(count), "rendering places"):
        region = number * len(STYLES) // count
        if region not in worlds:
            worlds = {region: Region(seed, region, STYLES[region], 600.0, 0.5).load()}
        world = worlds[region]
        rng = np.random.default_rng([seed, number])
        pose = random_pose(world, rng, (70.0, 200.0), (45.0, 90.0), (45.0, 65.0), SATELLITE_M / 2)
        look = sample_appearance(rng, "satellite")
        found.satellites.append(render_satellite(world, pose.target, SATELLITE_M, size, look, rng))
        photo = render_drone(world, pose, size, sample_appearance(rng, "drone"), rng)
        for turn in range(min(2, photos - len(found.drones))):
            weather = CONDITIONS[(2 * number + turn) % len(CONDITIONS)]
            found.drones.append(corrupt(photo, weather, "paper", seed, f"{number}-{turn}"))
            found.place.append(number)
    return found


def named_images(sources: Sequence[Path], count: int) -> Places:
    """At most `count` images of files and folders, evenly spread, each in one of the ten weathers by turns."""
    files = list_photos(sources)
    if len(files) < 10:
        raise SkyPartError(f"{sources[0]}: {len(files)} images are too few for an export; name 10 or more")
    chosen = [files[number * len(files) // count] for number in range(count)] if len(files) > count else files
    repeats = -(-count // len(chosen))
    drones = [
        corrupt(read_rgb(file), CONDITIONS[(number + turn) % len(CONDITIONS)], "paper", 0, f"{number}-{turn}")
        for turn in range(repeats)
        for number, file in enumerate(chosen)
    ]
    return Places(drones[:count], [], [])
