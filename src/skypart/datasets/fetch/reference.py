"""Compare fetched maps with the files that the default model was trained on.

Downloaded sources are verified byte by byte. The maps made from them are lossy images, so another JPEG library or
another way to fill holes gives other bytes. Maps are therefore compared by SHA-256 first and, if that differs, by a
summary: mean colours and heights of a coarse grid.
reference.json has `sha256` (hashes) and `likeness` (summaries) for each set.
"""

import csv
import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.images.decode import open_image, read_rgb

CELLS = 6
"""Cells per edge of the coarse grid."""
COLOUR_LIMIT, HEIGHT_LIMIT_M = 12.0, 2.0
"""Largest mean difference of colours, in grey levels, and median difference of heights of the same map."""
TEXTS = frozenset({"LICENSE", "PROVENANCE.txt"})
MapSummaries = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Comparison:
    """`identical` of `total` files have the reference bytes. colour, height: difference in grey levels and metres."""

    identical: int
    total: int
    colour: float
    height: float

    def __str__(self) -> str:
        """The result as text."""
        if self.identical == self.total:
            return f"all {self.total} files are byte for byte those the default model was trained on"
        return (
            f"{self.identical} of {self.total} files are byte for byte those the default model was trained on; of the "
            f"others, mean colours differ by {self.colour:.1f} of 255 and heights by {self.height:.2f} m (median)"
        )


def load_reference(name: str) -> dict[str, Any]:
    """The entry of a set in reference.json: `sha256` by file, and `likeness`."""
    text = (files("skypart.datasets.fetch") / "reference.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)[name]
    return found


def compare(folder: Path, expected: dict[str, Any]) -> Comparison:
    """Compare the set in `folder` with `expected` (see `load_reference`); raise if files are missing or differ."""
    have = hashes(folder)
    wanted: dict[str, str] = expected["sha256"]
    if missing := sorted(set(wanted) - set(have)):
        raise SkyPartError(f"{folder}: {missing[0]} is missing; delete the folder and fetch it again")
    identical = sum(have[file] == digest for file, digest in wanted.items())
    if identical == len(wanted):
        return Comparison(identical, len(wanted), 0.0, 0.0)
    colour, height = summary_distance(summarise_maps(folder), expected["likeness"], folder)
    if colour > COLOUR_LIMIT or height > HEIGHT_LIMIT_M:
        raise SkyPartError(
            f"{folder}: shows different ground than the data the default model was trained on (colours differ by "
            f"{colour:.1f} of 255, heights by {height:.1f} m); the source has changed"
        )
    return Comparison(identical, len(wanted), colour, height)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the set's files by name; one digest for all files in images/, over their sorted names."""
    found = {file.name: _sha256(file) for file in _files(folder) if file.name not in TEXTS}
    if (folder / "images").is_dir():
        lines = [f"{_sha256(file)}  {file.name}\n" for file in _files(folder / "images")]
        found["images/"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return found


def _files(folder: Path) -> list[Path]:
    """The visible files of a folder, sorted."""
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def summarise_maps(folder: Path) -> MapSummaries:
    """Mean colours and heights in metres of each map, or of each group of images with a common name."""
    found: MapSummaries = {}
    for ortho in sorted(folder.glob("*_ortho.jpg")):
        stem = ortho.name.removesuffix("_ortho.jpg")
        with open_image(folder / f"{stem}_dsm.png") as surface:
            steps = np.asarray(surface).astype(np.float32)
        found[stem] = {"colour": _means(read_rgb(ortho), steps > 0), "height": _heights(steps)}
    groups: dict[str, list[list[float]]] = defaultdict(list)
    if (folder / "index.csv").is_file():
        with (folder / "index.csv").open(newline="", encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                name = line["file"]
                image = folder / "images" / name if (folder / "images" / name).is_file() else folder / name
                rgb = read_rgb(image)
                groups[re.sub(r"_\d+$", "", image.stem)].append(_means(rgb, np.ones(rgb.shape[:2], dtype=bool)))
    for group, means in groups.items():
        found[group] = {"colour": [round(float(mean), 1) for mean in np.mean(means, axis=0)]}
    return found


def _means(rgb: NDArray[np.uint8], valid: NDArray[np.bool_]) -> list[float]:
    """Mean colour of the valid pixels in each of CELLS x CELLS cells, flat; 0 for a cell without any."""
    size = (CELLS, CELLS)
    weight = cv2.resize(valid.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    summed = cv2.resize(rgb.astype(np.float32) * valid[..., None], size, interpolation=cv2.INTER_AREA)
    means = summed / np.maximum(weight, 1e-6)[..., None]
    return [round(float(mean), 1) for mean in means.reshape(-1)]


def _heights(steps: NDArray[np.float32]) -> list[float]:
    """Mean height in metres of the valid pixels in each cell, flat; stored steps are decimetres."""
    valid = steps > 0
    weight = cv2.resize(valid.astype(np.float32), (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    summed = cv2.resize(steps, (CELLS, CELLS), interpolation=cv2.INTER_AREA)
    return [round(float(mean) / 10, 1) for mean in (summed / np.maximum(weight, 1e-6)).reshape(-1)]


def summary_distance(have: MapSummaries, wanted: MapSummaries, folder: Path) -> tuple[float, float]:
    """Largest mean difference of colours and largest median difference of heights over the maps of a set."""
    if set(have) != set(wanted):
        odd = sorted(set(have) ^ set(wanted))[0]
        raise SkyPartError(f"{folder}: {odd} is missing or unexpected; delete the folder and fetch it again")
    colours, heights = [0.0], [0.0]
    for name, expected in wanted.items():
        colours.append(float(np.mean(np.abs(np.subtract(have[name]["colour"], expected["colour"])))))
        if "height" in expected:
            heights.append(float(np.median(np.abs(np.subtract(have[name]["height"], expected["height"])))))
    return max(colours), max(heights)
