"""Whether an export locates as many photos as PyTorch: photos of rendered worlds over an index that PyTorch made."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder
from skypart.geo.geodesy import distance_m
from skypart.images.weather import CONDITIONS, corrupt
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.confidence import CORRECT_WITHIN_M
from skypart.position.locate import Locator
from skypart.progress import with_progress
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import random_pose
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_map

STYLES = ("town", "suburb", "coast")
EDGE_M = 500.0
"""Edge of the map of each style."""
VIEWS = ViewOptions((110.0, 170.0, 250.0), 0.45)


def compare_locating(
    reference: Embedder, exported: Embedder, photos: int, seed: int, folder: Path
) -> NDArray[np.bool_]:
    """Whether the best guess for each photo is right, with PyTorch and with an export of it, (photos, 2).

    Both use the same index.

    photos: in all, half of them in some weather. folder: for the maps and the index, which stay there.
    """
    worlds = {style: Region(seed, number, style, EDGE_M, 0.5).load() for number, style in enumerate(STYLES)}
    maps: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (style, world) in enumerate(worlds.items()):
        maps.append(folder / f"{style}.tif")
        look = sample_appearance(np.random.default_rng([seed, number]), "satellite")
        write_geotiff(maps[-1], render_map(world, look), world)
    build_index([str(path) for path in maps], folder / "parity.skyindex", reference, "parity", VIEWS)
    index = MapIndex(folder / "parity.skyindex")
    locators = [Locator(index, embedder) for embedder in (reference, exported)]
    right = np.zeros((photos, 2), dtype=np.bool_)
    for number in with_progress(range(photos), "comparing positions"):
        world = worlds[STYLES[number % len(STYLES)]]
        rng = np.random.default_rng([seed, number, 1])
        pose = random_pose(world, rng, (70.0, 160.0), (45.0, 90.0), (45.0, 65.0), 110.0)
        photo = render_drone(world, pose, 320, sample_appearance(rng, "drone"), rng)
        if number % 2:
            photo = corrupt(photo, CONDITIONS[number // 2 % len(CONDITIONS)], "paper", seed, str(number))
        longitude, latitude = world.lonlat(*pose.target)
        for which, locator in enumerate(locators):
            guess = locator.locate(photo).best_guess
            if guess is not None:
                error = distance_m(
                    latitude=latitude,
                    longitude=longitude,
                    to_latitude=guess.latitude,
                    to_longitude=guess.longitude,
                )
                right[number, which] = float(error) <= CORRECT_WITHIN_M
    return right
