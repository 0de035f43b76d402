"""The test data of the default model: worlds, dates, frames, and images changed as in flight. None was trained on.

Used by benchmarks/default_model.py and others; each function takes an `Embed`, which turns images into
unit rows for each readout.
"""

import argparse
import csv
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.evaluation.metrics import retrieval_metrics
from skypart.images.augment import add_night, photograph
from skypart.images.decode import RgbImage, read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import corrupt
from skypart.maps.sources import open_maps
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.position.labelled import read_labelled
from skypart.progress import with_progress
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

HELD_OUT = "autzen,long_beach,eureka"
OBLIQUE = "real, oblique over guessed heights"
Embed = Callable[[Sequence[RgbImage]], dict[str, NDArray[np.float32]]]


def remembering(embed: Embed) -> Embed:
    """The same, each picture embedded once: tiles come back in many sets."""
    rows: dict[bytes, dict[str, NDArray[np.float32]]] = {}

    def recall(pictures: Sequence[RgbImage]) -> dict[str, NDArray[np.float32]]:
        keys = [hashlib.sha256(f"{picture.shape}".encode() + picture.tobytes()).digest() for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in rows}
        found = embed(list(new.values())) if new else {}
        for index, key in enumerate(new):
            rows[key] = {name: each[index] for name, each in found.items()}
        return {name: np.stack([rows[key][name] for key in keys]) for name in rows[keys[0]]}

    return recall


def worlds(arguments: argparse.Namespace) -> dict[str, Path]:
    """Render (or find) the test worlds, 200 locations each."""
    data = arguments.shared / "data"
    common: dict[str, Any] = {"like": "free", "image_size": 256, "views": 2, "maps": False}
    real = [str(data / "autzen_lidar_cc_by"), str(data / "naip_california_cc_by")]
    likes: dict[str, Any] = {"like": "sues200", "image_size": 256, "views": 1, "maps": False, "locations": 200}
    held_out: dict[str, Any] = {"only": HELD_OUT, "spacing": 100.0, "locations": 200}
    asked = {
        "real": build_request(real, seed=7, **held_out, **common),
        OBLIQUE: build_request(real, seed=27, surround=True, guess_heights=True, **held_out, **common),
        "procedural": build_request(None, seed=8, spacing=200.0, locations=200, **common),
        "real, laid out like SUES-200": build_request(real, only=HELD_OUT, seed=17, spacing=100.0, **likes),
        "procedural, laid out like SUES-200": build_request(None, seed=18, spacing=250.0, **likes),
        "procedural, a style never trained on": build_request(
            None, styles="coast", seed=9, spacing=200.0, locations=200, **common
        ),
    }
    found = {}
    for name, request in asked.items():
        if not arguments.only or name in arguments.only:
            found[name] = arguments.work / re.sub(r"\W+", "-", name)
            make_world(found[name], request, workers=arguments.workers)
    return found


def views_of(world: Path) -> tuple[list[Path], list[tuple[str, Path]]]:
    """One tile a place, and two drone pictures a place with its name: of a SUES-like world the lowest and highest."""
    drone = world / "drone" if (world / "drone").is_dir() else world / "drone_view_512"
    satellite = world / "satellite" if (world / "satellite").is_dir() else world / "satellite-view"
    places = sorted(path.name for path in drone.iterdir())
    tiles = [min((satellite / place).iterdir()) for place in places]
    pictures = {place: sorted(path for path in (drone / place).rglob("*") if path.is_file()) for place in places}
    return tiles, [(place, path) for place in places for path in (pictures[place][0], pictures[place][-1])]


def retrieval(
    embed: Embed, world: Path, size: int, conditions: Sequence[str] = ("normal",), profile: str = "paper"
) -> dict[str, dict[str, Any]]:
    """R@1 of both directions by readout and condition, one tile a place; with several conditions one drone picture
    a place."""
    files, drones = views_of(world)
    tiles, places = embed([read_rgb(path) for path in files]), np.array([path.parent.name for path in files])
    if len(conditions) > 1:
        drones = drones[::2]
    labels = np.array([place for place, _ in drones])
    found: dict[str, dict[str, Any]] = {name: {} for name in tiles}
    for condition in with_progress(conditions, world.name):
        pictures = [corrupt(read_rgb(path), condition, profile, 0, f"{place}/{path.name}") for place, path in drones]
        if condition != "normal":  # as `skypart evaluate --weather` does
            pictures = [Preprocessing(size, "area").resize(picture) for picture in pictures]
        for name, queries in embed(pictures).items():
            found[name][condition] = both_ways(queries, labels, tiles[name], places)
    return found


def both_ways(
    drones: NDArray[np.float32], labels: NDArray[np.str_], tiles: NDArray[np.float32], places: NDArray[np.str_]
) -> dict[str, float]:
    """R@1 in per cent: every drone picture against all tiles, every tile against all drone pictures."""
    there, back = retrieval_metrics(drones, labels, tiles, places), retrieval_metrics(tiles, places, drones, labels)
    return {"D2S": there["R@1"], "S2D": back["R@1"]}


def by_map(embed: Embed, world: Path) -> dict[str, dict[str, Any]]:
    """R@1 of both directions by readout and map of the real places, each map's queries among all places."""
    files, drones = views_of(world)
    labels, places = np.array([place for place, _ in drones]), np.array([path.parent.name for path in files])
    tiles, views = (embed([read_rgb(path) for path in paths]) for paths in (files, [path for _, path in drones]))
    latitude: dict[str, float] = {}
    with (world / "positions.csv").open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            latitude[Path(line["path"]).parent.name] = float(line["latitude"])
    found: dict[str, dict[str, Any]] = {name: {} for name in tiles}
    for title, around in MAPS.items():
        here = {place for place, degrees in latitude.items() if abs(degrees - around) < 0.5}
        some_views, some_tiles = np.isin(labels, list(here)), np.isin(places, list(here))
        for name in tiles:
            there = retrieval_metrics(views[name][some_views], labels[some_views], tiles[name], places)
            back = retrieval_metrics(tiles[name][some_tiles], places[some_tiles], views[name], labels)
            found[name][title] = {"places": len(here), "D2S": there["R@1"], "S2D": back["R@1"]}
    return found


def flown(embed: Embed, world: Path) -> dict[str, dict[str, Any]]:
    """R@1 of both directions by readout, one drone picture a place, framed as in flight, and at night."""
    files, drones = views_of(world)
    tiles, places = embed([read_rgb(path) for path in files]), np.array([path.parent.name for path in files])
    found: dict[str, dict[str, Any]] = {name: {} for name in tiles}
    labels = np.array([place for place, _ in drones[::2]])
    for title, change in FLOWN.items():
        pictures = [change(read_rgb(path), np.random.default_rng([int(place), 9])) for place, path in drones[::2]]
        for name, queries in embed(pictures).items():
            found[name][title] = both_ways(queries, labels, tiles[name], places)
    return found


def at_night(picture: RgbImage, rng: np.random.Generator) -> RgbImage:
    """(h, w, 3) uint8 under lamps."""
    dark: RgbImage = np.clip(add_night(picture.astype(np.float32), rng) + 0.5, 0, 255).astype(np.uint8)
    return dark


MAPS = {"Long Beach": 33.8, "Eureka": 40.8, "Autzen": 44.06}
"""The real test places' maps, by latitude."""
FLOWN = {"framed as in flight": photograph, "at night under lamps": at_night}


def dates(embed: Embed, shared: Path) -> dict[str, dict[str, float]]:
    """R@1 of the held-out city by readout, one date against another."""
    folder = shared / "data" / "naip_california_cc_by"
    by_place: dict[str, dict[str, Path]] = {}
    with (folder / "index.csv").open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            if line["city"] == "long_beach":
                by_place.setdefault(line["place"], {})[line["year"]] = folder / "images" / line["file"]
    result: dict[str, dict[str, float]] = {}
    for first, second in (("2016", "2018"), ("2016", "2020"), ("2018", "2020")):
        places = [place for place, years in by_place.items() if first in years and second in years]
        rows = [embed([read_rgb(by_place[place][year]) for place in places]) for year in (first, second)]
        for name in rows[0]:
            metrics = retrieval_metrics(rows[0][name], np.array(places), rows[1][name], np.array(places))
            result.setdefault(name, {})[f"{first}-{second}"] = metrics["R@1"]
    return result


def frames(embed: Embed, shared: Path, size: int) -> dict[str, dict[str, float]]:
    """Share of real drone frames whose best map view lies within 50 m, heading unknown; median error in metres."""
    folder = shared / "data" / "nust_bsd2"
    source = open_maps([str(folder / "orthomosaic_utm43n.tif")])[0]
    footprints = plan_views(source, (120.0, 180.0), 0.5, (0.0,))
    views = [(each, *read_view(source, each, size)) for each in footprints]
    kept = [(each, picture) for each, picture, valid in views if not is_empty(picture, valid)]
    gallery = embed([picture for _, picture in kept])
    photos = read_labelled(folder)
    queries = embed([read_rgb(photo.path) for photo in photos])
    found = {}
    for name in queries:
        best = (queries[name] @ gallery[name].T).argmax(axis=1)
        errors = [
            photo.error_m(latitude=kept[index][0].latitude, longitude=kept[index][0].longitude)
            for photo, index in zip(photos, best, strict=True)
        ]
        found[name] = {
            "within_50m": 100 * float(np.mean(np.array(errors) < 50)),
            "median_m": float(np.median(errors)),
        }
    return found


def pictures_of(world: Path) -> str:
    """A short hash of a world's pictures, by name and size: figures of other pictures are other figures."""
    files = sorted(path for path in world.rglob("*") if path.suffix in (".jpg", ".png"))
    lines = [f"{path.relative_to(world)} {path.stat().st_size}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]
