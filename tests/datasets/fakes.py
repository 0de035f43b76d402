"""Tiny data sets of each layout: the location determines the image, the view adds noise."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

EDGE = 24


@functools.cache
def _pattern(location: int) -> np.ndarray:
    coarse = np.random.default_rng(location).integers(0, 256, (4, 4, 3))
    return np.kron(coarse, np.ones((EDGE // 4, EDGE // 4, 1))).astype(np.float64)


def write_image(path: Path, location: int, variant: int) -> Path:
    """Write a small image of `location`; `variant` selects its noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng([location, variant]).normal(0, 12, (EDGE, EDGE, 3))
    Image.fromarray(np.clip(_pattern(location) + noise, 0, 255).astype(np.uint8)).save(path)
    return path


def make_university(
    root: Path, train: Sequence[int] = (1, 2), query: Sequence[int] = (3, 4, 5), extra: Sequence[int] = (6,)
) -> Path:
    parts: dict[str, tuple[Sequence[int], int]] = {
        "train/drone": (train, 3),
        "train/satellite": (train, 1),
        "test/query_drone": (query, 3),
        "test/query_satellite": (query, 1),
        "test/gallery_drone": ((*query, *extra), 3),
        "test/gallery_satellite": ((*query, *extra), 1),
    }
    for part, (ids, images) in parts.items():
        for i in ids:
            for n in range(images):
                suffix = "jpg" if "satellite" in part else "jpeg"
                write_image(
                    root / part / f"{i:04d}" / f"image-{n + 1:02d}.{suffix}",
                    i,
                    n + 50 * ("satellite" in part),
                )
    (root / "train/google/0001").mkdir(parents=True)
    return root


def make_sues_raw(
    root: Path,
    ids: Sequence[int] = (1, 2, 8, 12, 14),
    images: int = 2,
    altitudes: Sequence[int] = (150, 200, 250, 300),
) -> Path:
    for i in ids:
        write_image(root / "satellite-view" / f"{i:04d}" / "0.png", i, 99)
        for h in altitudes:
            for n in range(images):
                write_image(root / "drone_view_512" / f"{i:04d}" / str(h) / f"{n}.jpg", i, h + n)
    return root


def make_denseuav(root: Path, train: Sequence[int] = (0, 1), test: Sequence[int] = (2256, 2257, 2258)) -> Path:
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for i in (*train, *test):
        parts = ["test/gallery_drone", "test/gallery_satellite"]
        parts += ["train/drone", "train/satellite"] if i in train else ["test/query_drone", "test/query_satellite"]
        for part in parts:
            for h in (80, 90, 100):
                folder = root / part / f"{i:06d}"
                if part.endswith("drone"):
                    write_image(folder / f"H{h}.JPG", i, h)
                else:
                    write_image(folder / f"H{h}.tif", i, h + 1)
                    write_image(folder / f"H{h}_old.tif", i, h + 2)
        lon, lat = 120.38 + 0.0002 * i, 30.32 + 0.0001 * i
        phase = "train" if i in train else "test"
        lines[phase] += [f"{phase}/drone/{i:06d}/H{h}.JPG E{lon} N{lat} {h}.5" for h in (80, 90, 100)]
    for phase, text in lines.items():
        (root / f"Dense_GPS_{phase}.txt").write_text("\n".join(text) + "\n")
    (root / "Dense_GPS_ALL.txt").write_text("\n".join(lines["train"] + lines["test"]) + "\n")
    return root


def make_folders(root: Path, names: Sequence[str] = ("bridge", "church", "park")) -> Path:
    for i, name in enumerate(names):
        write_image(root / "satellite" / f"{name}.png", i, 7)
        for n in range(2):
            write_image(root / "drone" / name / f"{n}.jpg", i, n)
    rows = [f"{name},{10 + i / 100},{50 + i / 100},120" for i, name in enumerate(names)]
    (root / "positions.csv").write_text("location,lon,lat,altitude\n" + "\n".join(rows) + "\n")
    return root
