"""What weather costs in loading training images: CPU time with it over CPU time without, both profiles, 224 and 392 px.

    python benchmarks/weather_loading.py [--each 12] [--data FOLDER]       writes docs/results/weather-loading.md

Loads through the training's own TrainingImages with the default augmentation, four drone images to a satellite tile as
recipes draw them, all of them 512 px JPEGs of a rendered world. The draws are chosen so that every one of the ten
conditions falls on equally many drone images; the same draws are loaded with and without weather, batch by batch in
turns within one process, so that both meet the same load of the machine.
"""

import argparse
import datetime
import os
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from skypart.atomic import write_text
from skypart.datasets import open_dataset
from skypart.datasets.records import Record
from skypart.datasets.sampler import Draw
from skypart.images.augment import Augmentation
from skypart.images.decode import read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import CONDITIONS, PROFILES
from skypart.progress import with_progress
from skypart.training.data import TrainingImages
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.weather_environment import ROOT, machine

OUT = ROOT / "docs/results/weather-loading.md"
SIZES = (224, 392)
WANTED = 1.5
SEED = 42
BATCH = 20
DRONE_SHARE = 4


@dataclass(frozen=True)
class Found:
    """CPU milliseconds an image without and with weather, and the 95 % range of their ratio over batches."""

    clean: float
    weather: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """How many times slower loading is with weather."""
        return self.weather / self.clean


def pictures(data: Path | None, scratch: Path) -> list[Record]:
    """Records of a SUES-200 shaped set: a given one, or 6 locations rendered here; tiles turned to JPEG as well."""
    if data is None:
        data = scratch / "world"
        request = build_request(None, "tiny", "", 1.0, locations=6, seed=1, like="sues200", image_size=512, maps=False)
        make_world(data, request, 1)
    records = []
    for number, record in enumerate(open_dataset(data).train):
        if record.path.suffix.lower() not in (".jpg", ".jpeg"):
            path = scratch / f"{number}.jpg"
            Image.fromarray(read_rgb(record.path)).save(path, quality=90)
            record = replace(record, path=path)
        records.append(record)
    return records


def draws(images: TrainingImages, each: int) -> list[Draw]:
    """Shuffled draws in which every condition falls on `each` drone images, with a tile after every four."""
    drone = [i for i, record in enumerate(images.records) if record.view == "drone"]
    tiles = [i for i, record in enumerate(images.records) if record.view == "satellite"]
    left = dict.fromkeys(CONDITIONS, each)
    chosen: list[Draw] = []
    seed = 0
    while any(left.values()):
        index = drone[seed % len(drone)]
        found = images.weather_for(Draw(index, seed))
        assert found is not None
        condition = found[0].condition(found[1], seed)
        if left[condition]:
            left[condition] -= 1
            chosen.append(Draw(index, seed))
        seed += 1
    order = np.random.default_rng(SEED).permutation(len(chosen))
    mixed = []
    for place, which in enumerate(order):
        mixed.append(chosen[which])
        if place % DRONE_SHARE == DRONE_SHARE - 1:
            mixed.append(Draw(tiles[place // DRONE_SHARE % len(tiles)], seed + place))
    return mixed


def load(images: TrainingImages, batch: list[Draw]) -> float:
    """CPU milliseconds of loading a batch in this process."""
    start = time.process_time()
    for draw in batch:
        images[draw]
    return 1000.0 * (time.process_time() - start)


def measure(records: list[Record], profile: str, size: int, each: int) -> Found:
    """Load the same draws without and with weather, batch by batch in turns."""
    clean, stormy = (
        TrainingImages(records, Preprocessing(size), Augmentation(), weather, SEED) for weather in ("", profile)
    )
    chosen = draws(stormy, each)
    batches = [chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH)]
    load(clean, batches[0])
    load(stormy, chosen)  # what is set up once a process, such as OpenCV's tables for Lab, is not a cost an image
    rows = []
    for number, batch in enumerate(with_progress(batches, f"{profile} {size} px", len(batches))):
        first, second = (clean, stormy) if number % 2 else (stormy, clean)
        times = {id(first): load(first, batch), id(second): load(second, batch)}
        rows.append((times[id(clean)], times[id(stormy)]))
    found = np.asarray(rows)
    rng = np.random.default_rng(0)
    totals = found[rng.integers(0, len(found), (2000, len(found)))].sum(axis=1)
    low, high = np.percentile(totals[:, 1] / totals[:, 0], [2.5, 97.5])
    without, with_weather = found.sum(axis=0) / len(chosen)
    return Found(float(without), float(with_weather), float(low), float(high))


def report(results: dict[tuple[str, int], Found], each: int) -> str:
    """The Markdown page."""
    drone = each * len(CONDITIONS)
    lines = [
        "# Weather: cost in loading training images",
        "",
        f"CPU time per image of the training loader, one process, {drone} drone images ({each} of each condition) and",
        f"{drone // DRONE_SHARE} satellite tiles per row: 512 px JPEGs of a rendered world, decoded, cropped, resized",
        "and augmented with default settings; weather on drone images only. The same draws are loaded without and",
        "with weather, in alternating batches, after a first round that is not counted (OpenCV makes tables for",
        "Lab and Luv once per process). Brackets: 95 % range of the ratio over batches. Target: at most 1.5.",
        "",
        f"Machine: {machine()}, load {os.getloadavg()[0]:.1f}; {datetime.date.today().isoformat()}.",
        f"Made by `{shlex.join(['python', *sys.argv])}`.",
        "",
        "| profile | input px | without, ms | with weather, ms | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for (profile, size), found in results.items():
        lines.append(
            f"| {profile} | {size} | {found.clean:.2f} | {found.weather:.2f} | "
            f"**{found.ratio:.2f}** [{found.low:.2f}, {found.high:.2f}] |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=12, help="drone images of each condition")
    parser.add_argument("--data", type=Path, help="a SUES-200 shaped folder of 512 px images instead of a new world")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        records = pictures(options.data, Path(scratch))
        results = {
            (profile, size): measure(records, profile, size, options.each) for size in SIZES for profile in PROFILES
        }
    text = report(results, options.each)
    print(text)
    write_text(OUT, text)
    slow = [f"{profile} at {size} px" for (profile, size), found in results.items() if found.ratio > WANTED]
    if slow:
        sys.exit(f"more than {WANTED} times slower: {', '.join(slow)}")


if __name__ == "__main__":
    main()
