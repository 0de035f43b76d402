"""Count false accepts: python benchmarks/outsiders.py --count 2000 [--shared ../shared] [--only demo,city]

Photos of elsewhere are located in three indexes: the demo's town, squares of a real city, and NUST's campus. A fix with
a position is a false accept. Photos: renders of procedural worlds that were never indexed, drone photos of other places
(odm_photos_cc0), and aerial images of other cities. One line per photo and index goes to
WORK/outsiders.jsonl; the same command resumes, and --only does part of the work. The page has Clopper-Pearson intervals
of 95 %.
"""

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.calibration import real_photos as calibration_photos
from benchmarks.page import write_page
from PIL import Image
from scipy.stats import beta

import skypart
from skypart.atomic import atomic_path
from skypart.demo import TOWN_VIEWS
from skypart.demo_town import make_town
from skypart.embedding import Embedder, load_fastest
from skypart.images.weather import CONDITIONS, corrupt
from skypart.maps.build import build_index
from skypart.maps.views import ViewOptions
from skypart.progress import console, with_progress
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import random_pose
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.render import render_drone, render_map

SEED = 9_001
"""Of the rendered worlds; no index, training or calibration uses it."""
CITY = "long_beach"
"""The city that the shipped model was not trained on."""
STYLES = ("town", "suburb", "coast", "campus", "farmland")
PER_WORLD = 25
SEEN = {
    "01028.jpg": "The photo shows a row of three blue tennis courts and grass. The demo's town has a row of four such "
    "courts, drawn by the same generator in the same sizes. Real courts and pitches have standard sizes, too."
}
"""What was seen in photos that were accepted, by the name of their file."""
REAL_VIEWS = ViewOptions((120.0, 200.0), 0.5)


INDEXES = ("demo", "city", "NUST")


def make_indexes(work: Path, shared: Path, model: Embedder, names: Sequence[str]) -> dict[str, Path]:
    """The indexes of these names that there is data for, made once: name -> folder."""
    data = shared / "data"
    found = {}
    if "demo" in names:
        found["demo"] = work / "demo.skyindex"
        build_index([str(path) for path in make_town(work / "town").maps], found["demo"], model, "default", TOWN_VIEWS)
    if "city" in names and (data / "naip_california_cc_by").is_dir():
        city = work / f"{CITY}.tif"
        if not city.is_file():
            sources = find_sources(data / "naip_california_cc_by", 0, surround=True)
            world = next(each for each in sources if each.name.startswith(CITY)).load()
            write_geotiff(city, render_map(world), world)
        found["city"] = work / "city.skyindex"
        build_index([str(city)], found["city"], model, "default", REAL_VIEWS)
    if "NUST" in names and (data / "nust_bsd2").is_dir():
        found["NUST"] = work / "nust.skyindex"
        maps = [str(path) for path in sorted((data / "nust_bsd2").glob("*.tif"))]
        build_index(maps, found["NUST"], model, "default", REAL_VIEWS)
    return found


def real_photos(shared: Path) -> dict[str, list[Path]]:
    """Photos of places that are in none of the indexes and not in the calibration, by source, in a random order."""
    data = shared / "data"
    fitted = {photo.path for photo in calibration_photos(shared)}
    aerial = [
        file for file in sorted((data / "naip_california_cc_by" / "images").glob("*.jpg")) if CITY not in file.name
    ]
    found = {
        "drone photos (ODM)": sorted(set((data / "odm_photos_cc0").rglob("*.jpg")) - fitted),
        "aerial images of other cities": [file for file in aerial if CITY not in file.name],
    }
    for files in found.values():
        random.Random(SEED).shuffle(files)
    return {source: files for source, files in found.items() if files}


def render_photos(work: Path, count: int) -> list[Path]:
    """Drone photos of procedural worlds that were never indexed, half of them in some weather; made once."""
    files = [work / "rendered" / f"{number:05d}.jpg" for number in range(count)]
    for first in with_progress(range(0, count, PER_WORLD), "rendering worlds"):
        missing = [number for number in range(first, min(first + PER_WORLD, count)) if not files[number].is_file()]
        if not missing:
            continue
        place = first // PER_WORLD
        world = Region(SEED, place, STYLES[place % len(STYLES)], 800.0, 0.5).load()
        for number in missing:
            rng = np.random.default_rng([SEED, number])
            pose = random_pose(world, rng, altitude=(70.0, 200.0), tilt=(40.0, 90.0), fov=(45.0, 65.0), margin=130.0)
            image = render_drone(world, pose, 320, sample_appearance(rng, "drone"), rng)
            weather = CONDITIONS[number // 2 % len(CONDITIONS)] if number % 2 else "normal"
            with atomic_path(files[number]) as temporary:
                Image.fromarray(corrupt(image, weather, "paper", SEED, str(number))).save(temporary)
    return files


def choose(work: Path, shared: Path, count: int) -> list[tuple[str, Path]]:
    """`count` photos with their source: a quarter of each real source, as far as there are, the rest rendered."""
    chosen: list[tuple[str, Path]] = []
    for source, files in real_photos(shared).items():
        chosen += [(source, file) for file in files[: count // 4]]
    rendered = render_photos(work, count - len(chosen))
    return chosen + [("rendered worlds", file) for file in rendered]


def interval(wrong: int, count: int) -> tuple[float, float]:
    """Clopper-Pearson interval of 95 % of a share."""
    low = 0.0 if wrong == 0 else float(beta.ppf(0.025, wrong, count - wrong + 1))
    high = 1.0 if wrong == count else float(beta.ppf(0.975, wrong + 1, count - wrong))
    return low, high


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The results so far; a line that was cut off by a kill is left out."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def locate_all(
    indexes: dict[str, Path], photos: Sequence[tuple[str, Path]], model: Embedder, log: Path, until: float
) -> None:
    """Locate every photo in every index, unless the log has it.

    Photos come in a random order, so that a run that stops at `until` (of the monotonic clock) has seen every source.
    """
    done = {(row["index"], row["photo"]) for row in read_lines(log)}
    with log.open("a", encoding="utf-8") as lines:
        lines.write("\n")  # ends a line that was cut off
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(skypart.open_index(folder, model=model)) for name, folder in indexes.items()
            }
            for source, photo in with_progress(random.Random(SEED).sample(photos, len(photos)), "locating"):
                for name, index in opened.items():
                    if (name, str(photo)) in done or time.monotonic() > until:
                        continue
                    fix = index.locate(photo)
                    row = {"index": name, "source": source, "photo": str(photo), "accepted": fix.found}
                    row |= {
                        "confidence": round(fix.confidence, 4),
                        "latitude": fix.latitude,
                        "longitude": fix.longitude,
                    }
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()


def page(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The page as lines of Markdown."""
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        for source in (row["source"], "all"):
            for index in (row["index"], "all"):
                counts[index, source].append(bool(row["accepted"]))
    lines = [
        "# Photos of elsewhere",
        "",
        f"{len({row['photo'] for row in rows}):,} photos that show none of the indexed places. "
        "A fix is a false accept. Indexes use the default calibration.",
        "",
        "| index | photos | false accepts | share | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for (index, source), found in sorted(counts.items()):
        low, high = interval(sum(found), len(found))
        share = f"{100 * sum(found) / len(found):.2f} %"
        lines.append(
            f"| {index} | {source}, {len(found):,} | {sum(found)} | {share} | {100 * low:.2f} to {100 * high:.2f} % |"
        )
    wrong = [row for row in rows if row["accepted"]]
    listed = [
        f"- `{Path(row['photo']).name}` ({row['source']}) in {row['index']}, confidence {row['confidence']:.2f}."
        f"{' ' + SEEN[Path(row['photo']).name] if Path(row['photo']).name in SEEN else ''}"
        for row in wrong
    ]
    return [
        *lines,
        "",
        *(["The false accepts:", "", *listed, ""] if listed else []),
        "Intervals are Clopper-Pearson's. Photos of one world or flight resemble each other: true ones are wider.",
        "No photo here served to fit the default calibration or to choose its limits.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="photos")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--work", type=Path, default=Path("outsiders-out"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/outsiders.md"))
    parser.add_argument("--only", default=",".join(INDEXES), help="indexes to use, comma-separated")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then; the page is of the photos so far")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := sorted(set(names) - set(INDEXES)):
        parser.error(f"--only: no index is called {unknown[0]}; there are {', '.join(INDEXES)}")
    given.work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60.0 * given.minutes
    model = load_fastest("default")
    indexes = make_indexes(given.work, given.shared, model, names)
    photos = choose(given.work, given.shared, given.count)
    log = given.work / "outsiders.jsonl"
    locate_all(indexes, photos, model, log, until)
    asked = {str(photo) for _, photo in photos}
    rows = [row for row in read_lines(log) if row["photo"] in asked]
    write_page(given.out, page(rows))
    for row in rows:
        if row["accepted"]:
            console.print(f"false accept in {row['index']}: {row['photo']}, confidence {row['confidence']}")


if __name__ == "__main__":
    main()
