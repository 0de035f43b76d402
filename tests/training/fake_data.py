"""A tiny SUES-200 in raw form: every location is a coloured pattern, drone images are noisy crops of it."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image


def make_sues(root: Path, locations: int = 8, per_altitude: int = 3, edge: int = 64) -> Path:
    """Write `locations` locations with four altitudes each, all of them training locations."""
    for number in range(1, locations + 1):
        rng = np.random.default_rng(number)
        ground = cv2.resize(rng.uniform(0, 255, (6, 6, 3)).astype(np.float32), (edge, edge))
        tile = root / "satellite-view" / f"{number:04d}"
        tile.mkdir(parents=True)
        Image.fromarray(np.clip(ground, 0, 255).astype(np.uint8)).save(tile / "0.png")
        for altitude in (150, 200, 250, 300):
            folder = root / "drone_view_512" / f"{number:04d}" / str(altitude)
            folder.mkdir(parents=True)
            for index in range(per_altitude):
                margin = (300 - altitude) // 25
                view = cv2.resize(ground[margin : edge - margin, margin : edge - margin], (edge, edge))
                noisy = view * rng.uniform(0.8, 1.2) + rng.normal(0, 6, view.shape)
                Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(folder / f"{index}.jpg")
    (root / "train_ids.txt").write_text("\n".join(f"{n:04d}" for n in range(1, locations + 1)) + "\n")
    return root


def swap_tiles(root: Path) -> Path:
    """Give every location the tile of another: only a model that memorises them finds the pairs."""
    tiles = sorted((root / "satellite-view").iterdir())
    contents = [(tile / "0.png").read_bytes() for tile in tiles]
    for tile, content in zip(tiles, contents[1:] + contents[:1], strict=True):
        (tile / "0.png").write_bytes(content)
    return root
