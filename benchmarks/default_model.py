"""How good is the default model? On places, styles and photos it was not trained on, beside what it must beat.

    python benchmarks/default_model.py --shared ../shared [--cls runs/default-model/cls/model.safetensors]

renders the test worlds (kept under --work), embeds them with the shipped model, with CLS-only trained the same way (if
given) and with the untrained backbone's plain readouts, and writes docs/results/default-model.json and the tables of
docs/results/default-model.md between their marks.
"""

import argparse
import csv
import datetime
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from skypart.atomic import write_text
from skypart.evaluation.metrics import retrieval_metrics
from skypart.images.decode import RgbImage, read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import CONDITIONS, corrupt
from skypart.maps.sources import open_maps
from skypart.maps.views import is_empty, plan_views, read_view
from skypart.model import SkyPart
from skypart.model.embedder import Embedder, load
from skypart.position.geodesy import distance_m
from skypart.position.labelled import read_labelled
from skypart.progress import console, track
from skypart.training.checkpoint import code_version
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT = "autzen,long_beach,eureka"
Embed = Callable[[Sequence[RgbImage]], NDArray[np.float32]]


def readouts(arguments: argparse.Namespace) -> dict[str, Embed]:
    """What is compared: name -> function from pictures to unit rows."""
    found: dict[str, Embed] = {}
    full = load(arguments.model, size=arguments.size)
    found["SkyPart"] = full.embed
    if arguments.cls:
        found["CLS-only, trained the same way"] = load(arguments.cls, size=arguments.size).embed
    plain = SkyPart.from_backbone(str(arguments.shared / "weights" / "dinov2_vits14_descendant.safetensors")).eval()
    found["untrained, mean patch of block 8"] = lambda pictures: plain_readout(plain, pictures, full, 8, "patches")
    found["untrained, CLS of block 10"] = lambda pictures: plain_readout(plain, pictures, full, 10, "cls")
    return found


def plain_readout(
    model: SkyPart, pictures: Sequence[RgbImage], like: Embedder, block: int, which: str
) -> NDArray[np.float32]:
    """Unit rows of the untrained backbone: the mean patch or the CLS token after `block`."""
    rows = []
    prepare = Preprocessing(size=like.size)
    with torch.inference_mode():
        for start in range(0, len(pictures), 16):
            inputs = torch.from_numpy(np.stack([prepare(picture) for picture in pictures[start : start + 16]]))
            tokens = model.tokens_from.finish(model.tokens_from.trunk(inputs, (block, block)), (block, block))[0]
            vector = tokens.cls if which == "cls" else tokens.patches.mean(dim=1)
            rows.append(torch.nn.functional.normalize(vector, dim=-1).numpy())
    return np.concatenate(rows)


def worlds(arguments: argparse.Namespace) -> dict[str, Path]:
    """Render (or find) the test worlds, 200 locations each."""
    data = arguments.shared / "data"
    common: dict[str, Any] = {"like": "free", "image_size": 256, "views": 2, "maps": False}
    real = [str(data / "autzen_lidar_cc_by"), str(data / "naip_california_cc_by")]
    asked = {
        "real": build_request(real, only=HELD_OUT, seed=7, spacing=100.0, locations=200, **common),
        "procedural": build_request(None, seed=8, spacing=200.0, locations=200, **common),
        "procedural, a style never trained on": build_request(
            None, styles="coast", seed=9, spacing=200.0, locations=200, **common
        ),
    }
    found = {}
    for name, request in asked.items():
        found[name] = arguments.work / re.sub(r"\W+", "-", name)
        make_world(found[name], request, workers=os.cpu_count() or 1)
    return found


def retrieval(embed: Embed, world: Path, condition: str = "normal", views: int = 2) -> dict[str, float]:
    """R@1 of both directions: every drone picture against one tile a place, every tile against all drone pictures."""
    places = sorted(path.name for path in (world / "drone").iterdir())
    drones = [(place, path) for place in places for path in sorted((world / "drone" / place).iterdir())[:views]]
    tiles = embed([read_rgb(world / "satellite" / place / "0.jpg") for place in places])
    pictures = [corrupt(read_rgb(path), condition, "paper", 0, f"{place}/{path.name}") for place, path in drones]
    queries = embed(pictures)
    labels, gallery = np.array([place for place, _ in drones]), np.array(places)
    there = retrieval_metrics(queries, labels, tiles, gallery)
    back = retrieval_metrics(tiles, gallery, queries, labels)
    return {"D2S": there["R@1"], "S2D": back["R@1"]}


def dates(embed: Embed, shared: Path) -> dict[str, float]:
    """R@1 of the held-out city, one date against another."""
    folder = shared / "data" / "naip_california_cc_by"
    by_place: dict[str, dict[str, Path]] = {}
    with (folder / "index.csv").open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            if line["city"] == "long_beach":
                by_place.setdefault(line["place"], {})[line["year"]] = folder / "images" / line["file"]
    result = {}
    for first, second in (("2016", "2018"), ("2016", "2020"), ("2018", "2020")):
        places = [place for place, years in by_place.items() if first in years and second in years]
        rows = [embed([read_rgb(by_place[place][year]) for place in places]) for year in (first, second)]
        result[f"{first}-{second}"] = retrieval_metrics(rows[0], np.array(places), rows[1], np.array(places))["R@1"]
    return result


def frames(embed: Embed, shared: Path, size: int) -> dict[str, float]:
    """Share of real drone frames whose best map view lies within 50 m, heading unknown; median error in metres."""
    folder = shared / "data" / "nust_bsd2"
    source = open_maps([str(folder / "orthomosaic_utm43n.tif")])[0]
    footprints = plan_views(source, (120.0, 180.0), 0.5, (0.0,))
    views = [(each, *read_view(source, each, size)) for each in footprints]
    kept = [(each, picture) for each, picture, valid in views if not is_empty(picture, valid)]
    gallery = embed([picture for _, picture in kept])
    photos = read_labelled(folder)
    queries = embed([read_rgb(photo.path) for photo in photos])
    best = (queries @ gallery.T).argmax(axis=1)
    errors = [
        float(
            distance_m(
                latitude=photo.latitude or 0.0,
                longitude=photo.longitude or 0.0,
                to_latitude=kept[index][0].latitude,
                to_longitude=kept[index][0].longitude,
            )
        )
        for photo, index in zip(photos, best, strict=True)
    ]
    return {"within_50m": 100 * float(np.mean(np.array(errors) < 50)), "median_m": float(np.median(errors))}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    sets = worlds(arguments)
    figures: dict[str, Any] = {}
    for name, embed in readouts(arguments).items():
        console.print(name)
        mine: dict[str, Any] = {world: retrieval(embed, path) for world, path in sets.items()}
        mine["dates"] = dates(embed, arguments.shared)
        mine["nust"] = frames(embed, arguments.shared, arguments.size)
        if name == "SkyPart":
            for world in ("real", "procedural"):
                mine[f"{world}, weather"] = {
                    condition: retrieval(embed, sets[world], condition, views=1)
                    for condition in track(CONDITIONS, f"{world} worlds under weather")
                }
        figures[name] = mine
    return figures


def tables(figures: dict[str, Any], size: int) -> str:
    """The figures as Markdown."""
    real = [name for name in figures["SkyPart"] if isinstance(figures["SkyPart"][name].get("D2S"), float)]
    lines = [
        "| R@1, % | " + " | ".join(f"{name}, D→S / S→D" for name in real) + " | city, date against date | "
        "NUST frames within 50 m (median error) |",
        "|---|" + "---|" * (len(real) + 2),
    ]
    for name, mine in figures.items():
        cells = [f"{mine[world]['D2S']:.1f} / {mine[world]['S2D']:.1f}" for world in real]
        cells.append(f"{np.mean(list(mine['dates'].values())):.1f}")
        cells.append(f"{mine['nust']['within_50m']:.0f} % ({mine['nust']['median_m']:.0f} m)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| `paper` weather, R@1, % | " + " | ".join(CONDITIONS) + " | mean |", "|---|" + "---|" * 11]
    for world in ("real", "procedural"):
        weather = figures["SkyPart"][f"{world}, weather"]
        for direction, arrow in (("D2S", "D→S"), ("S2D", "S→D")):
            values = [weather[condition][direction] for condition in CONDITIONS]
            row = " | ".join(f"{value:.1f}" for value in values)
            lines.append(f"| {world}, {arrow} | {row} | {np.mean(values):.1f} |")
    when = datetime.date.today().isoformat()
    lines += [
        "",
        f"Input {size} px. {platform.machine()}, {os.cpu_count()} cores, {when}, code {code_version()}. "
        f"Command: `python {' '.join(sys.argv)}`",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--model", default="default")
    parser.add_argument("--cls", default="")
    parser.add_argument("--size", type=int, default=196)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "default-model" / "test")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "default-model.md")
    arguments = parser.parse_args()
    figures = measure(arguments)
    write_text(arguments.out.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
    text = tables(figures, arguments.size)
    page = arguments.out.read_text(encoding="utf-8") if arguments.out.is_file() else "<!-- figures -->\n<!-- end -->\n"
    marked = re.sub(r"(<!-- figures -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page, flags=re.DOTALL)
    write_text(arguments.out, marked)
    console.print(text)


if __name__ == "__main__":
    main()
