"""How good is the default model? On places, styles and photos it was not trained on, beside what it must beat.

    python benchmarks/default_model.py --shared ../shared [--also "CLS-only=runs/default-model/cls.safetensors"]

renders the test worlds (kept under --work), embeds them with the shipped model and its CLS branch, with other models
(if given, each a row of its own) and with the untrained backbone's plain readouts, and writes the tables of
docs/results/default-model.md between their marks, and docs/results/default-model.json. --keep takes a row of a model
that is not there any more from that file; its pictures must be those of today (measure another row again to see it).
"""

import argparse
import csv
import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.errors import SkyPartError
from skypart.evaluation.metrics import retrieval_metrics
from skypart.images.decode import ImageLike, RgbImage, read_rgb
from skypart.images.light import night
from skypart.images.photograph import photograph
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import CONDITIONS, RENDERING, corrupt
from skypart.maps.sources import open_maps
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.model import SkyPart
from skypart.model.embedder import Embedder, load
from skypart.model.shipped import sha256_of
from skypart.position.labelled import read_labelled
from skypart.progress import console, track
from skypart.training.checkpoint import code_version
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT = "autzen,long_beach,eureka"
Embed = Callable[[Sequence[RgbImage]], dict[str, NDArray[np.float32]]]
FULL = "SkyPart"
BRANCH = "its CLS branch alone, taught by an InfoNCE of its own in the same run"
MADE = "made by"
WEATHERS = {"paper": "weather", "weatherprompt": "harder weather"}  # profile -> what its figures are called
UNTRAINED = {"untrained, mean patch of block 8": (8, "patches"), "untrained, CLS of block 10": (10, "cls")}


def models(arguments: argparse.Namespace) -> dict[str, tuple[Embed, str]]:
    """What is compared: name -> function from pictures to unit rows by readout, and what tells models apart."""
    full = load(arguments.model, size=arguments.size)
    found: dict[str, tuple[Embed, str]] = {
        FULL: (partial(rows_of, full, {FULL: "embedding", BRANCH: "cls"}), full.digest)
    }
    for row in arguments.also:
        name, _, file = row.partition("=")
        other = load(file, size=arguments.size)
        of_row = hashlib.sha256(f"{name} {other.digest}".encode()).hexdigest()  # figures are kept by name, too
        found[name] = (partial(rows_of, other, {name: "embedding"}), of_row)
    backbone = arguments.shared / "weights" / "dinov2_vits14_descendant.safetensors"
    plain = SkyPart.from_backbone(str(backbone)).eval()
    found["untrained"] = (lambda pictures: plain_readouts(plain, pictures, full), sha256_of(backbone))
    return found


def rows_of(
    embedder: Embedder, wanted: Mapping[str, str], pictures: Sequence[ImageLike]
) -> dict[str, NDArray[np.float32]]:
    """Unit rows by name, each of the embedding or the branch of the model's output that `wanted` gives for it."""
    outputs = list(embedder.outputs(pictures))
    return {name: torch.cat([getattr(each, part) for each in outputs]).numpy() for name, part in wanted.items()}


def plain_readouts(model: SkyPart, pictures: Sequence[RgbImage], like: Embedder) -> dict[str, NDArray[np.float32]]:
    """Unit rows of the untrained backbone: the mean patch and the CLS token of two blocks."""
    rows: dict[str, list[NDArray[np.float32]]] = {name: [] for name in UNTRAINED}
    prepare = Preprocessing(size=like.size)
    blocks = tuple(block for block, _ in UNTRAINED.values())
    with torch.inference_mode():
        for start in range(0, len(pictures), 16):
            inputs = torch.from_numpy(np.stack([prepare(picture) for picture in pictures[start : start + 16]]))
            tapped = model.backbone(inputs, blocks)
            for (name, (_, which)), tokens in zip(UNTRAINED.items(), tapped, strict=True):
                vector = tokens.cls if which == "cls" else tokens.patches.mean(dim=1)
                rows[name].append(torch.nn.functional.normalize(vector, dim=-1).numpy())
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def worlds(arguments: argparse.Namespace) -> dict[str, Path]:
    """Render (or find) the test worlds, 200 locations each."""
    data = arguments.shared / "data"
    common: dict[str, Any] = {"like": "free", "image_size": 256, "views": 2, "maps": False}
    real = [str(data / "autzen_lidar_cc_by"), str(data / "naip_california_cc_by")]
    likes: dict[str, Any] = {"like": "sues200", "image_size": 256, "views": 1, "maps": False, "locations": 200}
    asked = {
        "real": build_request(real, only=HELD_OUT, seed=7, spacing=100.0, locations=200, **common),
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
    for condition in track(conditions, world.name):
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
    dark: RgbImage = np.clip(night(picture.astype(np.float32), rng) + 0.5, 0, 255).astype(np.uint8)
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


def measure(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """All figures, by readout, then by set, and the code that gave them. What was measured before with the same model
    is kept beside the worlds."""
    sets = worlds(arguments)
    drawn = {world: pictures_of(path) for world, path in sets.items()}
    made: set[str] = set()
    figures: dict[str, Any] = {}
    for model, (embed, digest) in models(arguments).items():
        kept = arguments.work / f"figures-{arguments.size}-{digest[:12]}.json"
        known: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
        jobs: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
            "dates": ("dates", partial(dates, embed, arguments.shared)),
            "nust": ("nust", partial(frames, embed, arguments.shared, arguments.size)),
        }
        if "real" in sets:
            jobs["by map"] = (f"by map, pictures {drawn['real']}", partial(by_map, embed, sets["real"]))
            jobs["flown"] = (f"flown, pictures {drawn['real']}", partial(flown, embed, sets["real"]))
        for world, path in sets.items():
            jobs[world] = (f"{world}, pictures {drawn[world]}", partial(retrieval, embed, path, arguments.size))
            for profile, job in WEATHERS.items():
                if (world, profile) == ("real", "paper") or (model == FULL and world in ("real", "procedural")):
                    jobs[f"{world}, {job}"] = (
                        f"{world}, {job}, drawing {RENDERING}, area, pictures {drawn[world]}",
                        partial(retrieval, embed, path, arguments.size, CONDITIONS, profile),
                    )
        for job, (label, run) in jobs.items():
            if label not in known:
                console.print(f"{model}: {job}")
                known[label] = run()
                known.setdefault(MADE, {})[label] = f"{code_version()} of {datetime.date.today().isoformat()}"
                write_text(kept, json.dumps(known, indent=1))
            made.add(known[MADE][label])
            for name, found in known[label].items():
                figures.setdefault(name, {})[job] = found
    return figures, sorted(made)


def mean_of(weather: Mapping[str, Mapping[str, float]], direction: str) -> float:
    """R@1 of a direction, mean over the ten conditions."""
    return float(np.mean([weather[condition][direction] for condition in CONDITIONS]))


def tables(figures: dict[str, Any], size: int, made: Sequence[str]) -> str:
    """The figures as Markdown."""
    real = [name for name in figures[FULL] if list(figures[FULL][name]) == ["normal"]]
    lines = [
        f"| R@1, % | {' | '.join(f'{name}, D→S / S→D' for name in real)} | real, mean of the ten `paper` weathers, "
        "D→S / S→D | city, date against date | NUST frames within 50 m (median error) |",
        "|---|" + "---|" * (len(real) + 3),
    ]
    for name, mine in figures.items():
        cells = [f"{mine[world]['normal']['D2S']:.1f} / {mine[world]['normal']['S2D']:.1f}" for world in real]
        weather = mine.get("real, weather")  # not there with --only
        cells.append(" / ".join(f"{mean_of(weather, way):.1f}" for way in ("D2S", "S2D")) if weather else "")
        cells.append(f"{np.mean(list(mine['dates'].values())):.1f}")
        cells.append(f"{mine['nust']['within_50m']:.0f} % ({mine['nust']['median_m']:.0f} m)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += _apart(figures)
    for profile, job in WEATHERS.items():
        lines += [
            "",
            f"| `{profile}` weather, one drone view a place, R@1, % | " + " | ".join(CONDITIONS) + " | mean |",
            "|---|" + "---|" * 11,
        ]
        for world in ("real", "procedural"):
            if f"{world}, {job}" not in figures[FULL]:
                continue
            weather = figures[FULL][f"{world}, {job}"]
            for direction, arrow in (("D2S", "D→S"), ("S2D", "S→D")):
                row = " | ".join(f"{weather[condition][direction]:.1f}" for condition in CONDITIONS)
                lines.append(f"| {world}, {arrow} | {row} | {mean_of(weather, direction):.1f} |")
    lines += [
        "",
        f"Input {size} px, corrupted pictures resized by area. {platform.machine()}, {os.cpu_count()} cores, "
        f"code {'; '.join(made)}. "
        f"Command: `python {shlex.join(sys.argv)}`",
    ]
    return "\n".join(lines) + "\n"


def _apart(figures: Mapping[str, Any]) -> list[str]:
    """A table of the real places map by map and of pictures changed as flights change them."""
    if "by map" not in figures[FULL]:  # not there with --only
        return []
    counts = {title: each["places"] for title, each in figures[FULL]["by map"].items()}
    heads = [f"{title} ({count} places)" for title, count in counts.items()] + [f"real, {title}" for title in FLOWN]
    lines = [
        "",
        f"| R@1 among all 200 real places, D→S / S→D, % | {' | '.join(heads)} |",
        "|---|" + "---|" * len(heads),
    ]
    for name, mine in figures.items():
        if "by map" in mine:
            cells = [f"{each['D2S']:.1f} / {each['S2D']:.1f}" for each in (mine["by map"] | mine["flown"]).values()]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def kept_rows(names: Sequence[str], file: Path) -> dict[str, Any]:
    """Rows of the last page, by name."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    missing = [name for name in names if name not in before]
    if missing:
        raise SkyPartError(f"{file}: has no row {missing[0]!r} to keep; it has {', '.join(before) or 'none'}")
    return {name: before[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--model", default="default")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FILE", help="another model's row")
    parser.add_argument("--keep", action="append", default=[], metavar="NAME", help="a row of the last page")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "default-model" / "test")
    parser.add_argument("--only", action="append", default=[], help="only these worlds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "default-model.md")
    arguments = parser.parse_args()
    kept = kept_rows(arguments.keep, arguments.out.with_suffix(".json"))
    figures, made = measure(arguments)
    made += [f"of the page before ({name})" for name in kept]
    untrained = {name: figures.pop(name) for name in UNTRAINED}
    figures |= kept | untrained  # what must be beaten comes last
    write_text(arguments.out.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
    text = tables(figures, arguments.size, made)
    page = arguments.out.read_text(encoding="utf-8") if arguments.out.is_file() else "<!-- figures -->\n<!-- end -->\n"
    marked = re.sub(r"(<!-- figures -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page, flags=re.DOTALL)
    write_text(arguments.out, marked)
    console.print(text)


if __name__ == "__main__":
    main()
