"""The demo's town: maps of it and of similar neighbours, and a flight over it in changing weather."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.datasets.rendering import Pose
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage
from skypart.images.weather import RENDERING, corrupt
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.lighting import Lighting
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone, render_map

SEED = 21
EXTENT = 1200.0
GSD = 0.5
PHOTO = (480, 10)
VIDEO = (320, 24)
"""Edge in pixels, and number of photos or seconds."""
SWING = 0.06
"""Half the width of the S-shaped flight, as a share of the town's edge."""
STYLES = ("town", "suburb", "town")
"""The first is flown over; the others are similar places that it could be confused with."""
WEATHER = ("normal", "fog", "normal", "rain", "normal", "wind", "snow", "normal", "dark", "over_exposure")


@dataclass(frozen=True)
class DemoFiles:
    """Files of a demo. photos: a folder with labels. video: of a flight. truth: CSV of its true positions."""

    maps: tuple[Path, ...]
    photos: Path
    video: Path
    truth: Path


def make_town(out: Path) -> DemoFiles:
    """Render maps, photos and a video into `out`. Files of an earlier run with the same settings are kept."""
    maps = tuple(out / f"{chr(97 + number)}_{style}.tif" for number, style in enumerate(STYLES))
    town = DemoFiles(maps, out / "photos", out / "flight.mp4", out / "truth.csv")
    note = out / "town.json"
    settings = json.dumps(
        {
            "seed": SEED,
            "extent": EXTENT,
            "gsd": GSD,
            "styles": STYLES,
            "photo": PHOTO,
            "video": (*VIDEO, SWING),
            "weather": RENDERING,
        }
    )
    if note.is_file() and note.read_text(encoding="utf-8") == settings:
        return town
    for number, (style, path) in enumerate(zip(STYLES, maps, strict=True)):
        world = Region(SEED, number, style, EXTENT, GSD).load()
        look = sample_appearance(np.random.default_rng([SEED, number]), "satellite")
        write_geotiff(path, render_map(world, look), world)
        if number == 0:
            _fly(world, town)
    write_text(note, settings)
    return town


def _fly(world: World, town: DemoFiles) -> None:
    """Render photos at random places and a video along a path, each in its own weather."""
    look = sample_appearance(np.random.default_rng([SEED, 99]), "drone")
    lighting = Lighting(world.drone, look)
    rng = np.random.default_rng([SEED, 5])
    edge, count = PHOTO
    rows = []
    for number in range(count):
        spot = rng.uniform(0.18, 0.82, 2) * EXTENT
        tilt, heading = rng.uniform(45, 85), rng.uniform(0, 360)
        pose = Pose((spot[0], -spot[1]), rng.uniform(90, 180), tilt, heading, rng.uniform(45, 60))
        weather = WEATHER[number % len(WEATHER)]
        photo = corrupt(render_drone(world, pose, edge, look, rng, lighting), weather, "paper", SEED, str(number))
        name = f"{number + 1:02d}_{weather}.jpg"
        with atomic_path(town.photos / name) as temporary:
            Image.fromarray(photo).save(temporary, quality=92)
        longitude, latitude = world.lonlat(*pose.target)
        rows.append([name, f"{latitude:.8f}", f"{longitude:.8f}"])
    write_text(town.photos / "labels.csv", csv_text(["file", "latitude", "longitude"], rows))
    places = list(_path(VIDEO[1]))
    rows = []
    for second, (x, y, _) in enumerate(places):
        longitude, latitude = world.lonlat(x, y)
        rows.append([str(second), f"{latitude:.8f}", f"{longitude:.8f}"])
    write_text(town.truth, csv_text(["time_s", "latitude", "longitude"], rows))
    frames = (
        corrupt(
            render_drone(world, Pose((x, y), 130.0, 65.0, heading, 52.0), VIDEO[0], look, rng, lighting),
            WEATHER[second * len(WEATHER) // len(places)],
            "paper",
            SEED,
            f"v{second}",
        )
        for second, (x, y, heading) in enumerate(places)
    )
    _write_video(town.video, frames)


def _path(seconds: int) -> Iterator[tuple[float, float, float]]:
    """Where the camera looks each second, in local metres, and its heading: an S over the town at 20 to 30 m/s."""

    def spot(t: float) -> tuple[float, float]:
        return EXTENT * (0.5 + SWING * math.sin(2 * math.pi * t)), -EXTENT * (0.28 + 0.44 * t)

    for second in range(seconds):
        here, ahead = spot(second / seconds), spot((second + 0.5) / seconds)
        yield *here, math.degrees(math.atan2(ahead[0] - here[0], ahead[1] - here[1])) % 360


def _write_video(path: Path, frames: Iterator[RgbImage]) -> None:
    """Write one frame per second as MPEG-4."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        writer = cv2.VideoWriter(str(temporary), cv2.VideoWriter.fourcc(*"mp4v"), 1.0, (VIDEO[0], VIDEO[0]))
        if not writer.isOpened():
            raise SkyPartError(f"cannot write {path}: OpenCV has no MPEG-4 encoder; install opencv-python-headless")
        for frame in frames:
            writer.write(np.ascontiguousarray(frame[:, :, ::-1]))
        writer.release()


def csv_text(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
