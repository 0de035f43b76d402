"""Fit the default calibration: how far to trust a fix of the default model on a map nobody calibrated for.

    python benchmarks/calibration.py [--shared ../shared]

makes maps of places the model never saw: a procedural town, suburb and coast and, where --shared is there, the held-out
LiDAR site and squares of the held-out city (one date on the map, another in the photos), which are indexed; a campus,
farmland and other squares of that city, which are not. Renders photos over all of them, half of them in ten weathers;
those over maps that are not indexed, and real photos of elsewhere, are from outside. Locates them, and writes
src/skypart/position/default_calibration.json and docs/results/calibration.md with its picture.
"""

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.embedding import load
from skypart.images.weather import CONDITIONS, RENDERING, corrupt
from skypart.maps.build import build_index
from skypart.maps.cut import ViewOptions
from skypart.maps.index import MapIndex
from skypart.position.calibrate import Outcome, cross_validate, draw, fit_outcomes, outcome_of, quality
from skypart.position.confidence import MATCHING, RIGHT_M
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto
from skypart.position.locate import Locator
from skypart.position.photos import locate_photo
from skypart.progress import console, with_progress
from skypart.training.checkpoint import code_version
from skypart.worlds.camera import random_pose
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.look import draw_look
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.render import render_drone, render_map
from skypart.worlds.sources import RasterSource

ROOT = Path(__file__).resolve().parent.parent
INDEXED = ("town", "suburb", "coast")
OUTSIDE = ("campus", "farmland")
CITY = "long_beach"
SEED = 77
GEOREFERENCE_M = 12.0
"""What the shipped radius allows for a real map's own errors of position and height: rendered photos have none."""

MOST_WRONG = 0.02
"""Share of accepted photos that may be wrong: less than where `skypart calibrate` knows the map."""


def maps(shared: Path) -> dict[str, tuple[World, bool]]:
    """Name -> the world and whether it is indexed."""
    found = {}
    for number, style in enumerate((*INDEXED, *OUTSIDE)):
        found[f"{style}-{number}"] = (Region(SEED, number, style, 800.0, 0.5).load(), style in INDEXED)
    lidar = shared / "data" / "autzen_lidar_cc_by"
    if lidar.is_dir():
        found["autzen"] = (find_sources(lidar, 0)[0].load(), True)
    squares = shared / "data" / "naip_california_cc_by"
    if squares.is_dir():
        here, elsewhere = _apart(find_sources(squares, SEED, surround=True, guess_heights=True))
        found |= {"long-beach": (here.load(), True), "long-beach-elsewhere": (elsewhere.load(), False)}
    return found


def _apart(sources: Sequence[RasterSource]) -> tuple[RasterSource, RasterSource]:
    """Two maps of nine squares of the held-out city, at several dates, that share no square."""
    dated = [source for source in sources if source.name.startswith(CITY) and len(source.files) > 1]

    def squares(source: RasterSource) -> set[Path]:
        return {file for place in (source.files, *source.around) for file in place}

    return next((one, other) for one in dated for other in dated if not squares(one) & squares(other))


def real_photos(shared: Path) -> list[LabelledPhoto]:
    """Photos of a camera in flight, of places that are on none of the maps."""
    files = sorted((shared / "data" / "caliterra_cc0").glob("*.jpg"))
    return [LabelledPhoto(path=file, latitude=None, longitude=None) for file in files]


def photograph(work: Path, name: str, world: World, inside: bool, count: int) -> list[LabelledPhoto]:
    """Photos at random poses, every second one in a weather of its own."""
    photos = []
    for number in with_progress(range(count), f"photos of {name}"):
        rng = np.random.default_rng([SEED, number, len(name)])
        path = work / name / f"{number:03d}-{RENDERING}.jpg"
        pose = random_pose(world, rng, altitude=(70.0, 200.0), tilt=(40.0, 90.0), fov=(45.0, 65.0), margin=130.0)
        if not path.is_file():
            picture = render_drone(world, pose, 320, draw_look(rng, "drone"), rng)
            weather = CONDITIONS[number // 2 % len(CONDITIONS)] if number % 2 else "normal"
            with atomic_path(path) as temporary:
                Image.fromarray(corrupt(picture, weather, "paper", SEED, name + str(number))).save(temporary)
        longitude, latitude = world.lonlat(*pose.target)
        photos.append(
            LabelledPhoto(path=path, latitude=latitude if inside else None, longitude=longitude if inside else None)
        )
    return photos


def locate_all(locator: Locator, photos: Sequence[LabelledPhoto], kept: Path) -> list[Outcome]:
    """Locate photos as `skypart locate` does; what was found is kept, so that a run goes on where it was."""
    known: dict[str, dict[str, float]] = json.loads(kept.read_text()) if kept.is_file() else {}
    outcomes = []
    for photo in with_progress(photos, "locating"):
        name = f"{photo.path.parent.name}/{photo.path.name}"
        if name not in known:
            known[name] = locate_photo(locator, photo.path).evidence
            write_text(kept, json.dumps(known))
        evidence = known[name]
        if evidence:
            outcomes.append(outcome_of(photo, Fix(photo=str(photo.path), evidence=evidence)))
    return outcomes


def by_map(outcomes: Sequence[Outcome], over: Sequence[str], radius: NDArray[np.float64]) -> list[str]:
    """Rows of a table: photos of each map, or from outside, their best guesses and what became of them."""
    rows = []
    for name in dict.fromkeys(over):
        here = np.array([each == name for each in over])
        errors, fixed = np.array([o.error_m for o in outcomes])[here], np.isfinite(radius[here])
        outside = bool(np.isinf(errors).all())
        right = errors <= RIGHT_M
        guess = "" if outside else f"{100 * float(right.mean()):.0f}"
        wrong = "" if outside or not fixed.any() else f"{100 * float(np.mean(~right[fixed])):.0f}"
        title = f"{name}, {int(here.sum())}" + (", outside" if outside else "")
        rows.append(f"| {title} | {guess} | {100 * float(fixed.mean()):.0f} | {wrong} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "calibration")
    parser.add_argument("--photos", type=int, default=40, help="a map")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    photos: list[LabelledPhoto] = []
    rasters = []
    for name, (world, inside) in maps(arguments.shared).items():
        if inside:
            rasters.append(arguments.work / f"{name}.tif")
            if not rasters[-1].is_file():
                look = draw_look(np.random.default_rng([SEED, len(rasters)]), "satellite")
                write_geotiff(rasters[-1], render_map(world, look), world)
        photos += photograph(arguments.work, name, world, inside, arguments.photos)
    real = real_photos(arguments.shared)
    photos += real
    embedder = load(arguments.model)
    index = arguments.work / f"{embedder.digest[:12]}.skyindex"
    build_index(
        [str(path) for path in rasters], index, embedder, arguments.model, ViewOptions((110.0, 170.0, 250.0), 0.45)
    )
    kept = arguments.work / f"evidence-{embedder.digest[:12]}-{MATCHING}.json"
    outcomes = locate_all(Locator(MapIndex(index), embedder), photos, kept)
    source = f"{len(outcomes)} photos, benchmarks/calibration.py"
    calibration = replace(fit_outcomes(outcomes, source, MOST_WRONG), floor_m=GEOREFERENCE_M, model=embedder.digest)
    over = [Path(outcome.fix.photo).parent.name for outcome in outcomes]
    confidence, radius = cross_validate(outcomes, most_wrong=MOST_WRONG, groups=over)
    found = quality(outcomes, confidence, radius)
    draw(outcomes, confidence, radius, ROOT / "docs" / "results" / "calibration.png")
    write_text(
        ROOT / "src" / "skypart" / "position" / "default_calibration.json",
        json.dumps(calibration.to_dict(), indent=1) + "\n",
    )
    right = [o.error_m <= RIGHT_M for o in outcomes if not o.outside]
    lines = [
        "# The default calibration",
        "",
        "Rendered photos (half of them clean, half in the ten `paper` weathers, any heading, 70 to 200 m, tilt 40 to",
        "90 degrees) over maps the default model never saw: a procedural town, suburb and coast, a LiDAR site, and",
        "nine squares of a city over guessed heights, whose photos are of another year than the map. From outside:",
        f"photos over maps not indexed (a campus, farmland, nine other squares of that city) and {len(real)} real ones",
        "of elsewhere (Caliterra). The photos of each map are judged by a calibration fitted without that map, with a",
        f"threshold such that at most {MOST_WRONG:.0%} of the accepted are wrong. The shipped calibration is fitted on",
        f"all of them, and joins to every radius {GEOREFERENCE_M:.0f} m (as legs of a",
        "right triangle) for errors of a real map's georeference and heights, which rendered photos cannot show.",
        "",
        "| | |",
        "|---|---|",
        f"| photos of the maps, from outside | {found.photos}, {found.outside} |",
        f"| best guess within {RIGHT_M:.0f} m, before any threshold | {100 * float(np.mean(right)):.1f} % |",
        f"| with a fix | {100 * found.accepted:.1f} % |",
        f"| truth inside the 95 % radius | {100 * found.covered:.1f} % |",
        f"| of all fixes, those of photos from outside included, wrong by more than {RIGHT_M:.0f} m | "
        f"{100 * found.wrong:.1f} % |",
        f"| false accepts of photos from outside | {100 * found.false_accepts:.1f} % |",
        f"| median 95 % radius | {found.median_radius_m:.0f} m |",
        f"| expected calibration error | {100 * found.calibration_error:.1f} % |",
        "",
        "| photos of | best guess within 50 m, % | with a fix, % | of these wrong, % |",
        "|---|---|---|---|",
        *by_map(outcomes, over, radius),
        "",
        "![reliability, risk and coverage, error against radius](calibration.png)",
        "",
        f"Made by `python {' '.join(sys.argv)}` on {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, skypart {code_version()}.",
        "",
    ]
    write_text(ROOT / "docs" / "results" / "calibration.md", "\n".join(lines))
    console.print("\n".join(lines))


if __name__ == "__main__":
    main()
