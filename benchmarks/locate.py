"""How long `locate` takes, stage by stage, in processor time, and whether faster engines are as accurate and honest.

    python benchmarks/locate.py [--shared ../shared] [--int8 default-int8.xml] [--photos 6]

renders the maps and photos of benchmarks/calibration.py (the first --photos of each map, and as many real photos of
each place) and locates each with every engine, one after the other: PyTorch, ONNX Runtime with and without the tokens
of the index, and an export of the default model (`skypart export default --to openvino --precision int8`). The heading
is unknown, and then known. Times are processor time as a ratio to one eager float32 embedding of the same photo,
measured right before. Writes docs/results/locate-speed.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.calibration import INDEXED, SEED, maps, photograph, real_flight, real_photos, write_rasters
from benchmarks.page import write_page

import skypart.position.matching as matching
import skypart.position.search as search
from skypart.atomic import atomic_path, write_text
from skypart.datasets.rendering import Pose
from skypart.embedding import Embedder, load, load_fastest
from skypart.embedding.keypoints import KeypointDetector
from skypart.images.decode import read_rgb
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.calibrate import measure_outcome
from skypart.position.confidence import CORRECT_WITHIN_M
from skypart.position.fix import Hints
from skypart.position.labelled import LabelledPhoto
from skypart.position.locate import LastMatch, Locator
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import random_pose
from skypart.worlds.procedural import Region
from skypart.worlds.render import render_drone

ROOT = Path(__file__).resolve().parent.parent
FLIGHT = "a flight"
BARE = "no tokens in the index"
DEFAULT = "ONNX Runtime"
STAGES = (
    "decode",
    "preprocess",
    "embed the photo",
    "map passes",
    "search",
    "lay out",
    "cut and warp",
    "keypoints",
    "match",
    "fit",
)


class StageClock:
    """Processor time per stage, without the time of stages inside it.

    passes: images that passed through the network. detections: images whose keypoints were detected.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.passes = self.detections = 0
        self._inner: list[float] = []

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of the block to `stage`."""
        started = time.process_time()
        self._inner.append(0.0)
        try:
            yield
        finally:
            spent = time.process_time() - started
            self.seconds[stage] += spent - self._inner.pop()
            if self._inner:
                self._inner[-1] += spent

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Measure every call of a function or method."""
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.measure(stage):
                if name in ("patch_tokens", "embed_with_patches"):
                    self.passes += len(arguments[0])
                self.detections += name == "detect"
                return original(*arguments, **options)

        setattr(owner, name, timed)


def prepare(arguments: argparse.Namespace, embedder: Embedder, index: Path) -> list[tuple[LabelledPhoto, float | None]]:
    """Photos with their headings; they and the index are made where they are not there yet."""
    photos: list[tuple[LabelledPhoto, float | None]] = []
    worlds = maps(arguments.shared)
    rasters = write_rasters(arguments.work, worlds)
    for name, (world, inside) in worlds.items():
        for number, photo in enumerate(photograph(arguments.work, name, world, inside, arguments.photos)):
            rng = np.random.default_rng([SEED, number, len(name)])
            pose = random_pose(world, rng, altitude=(70.0, 200.0), tilt=(40.0, 90.0), fov=(45.0, 65.0), margin=130.0)
            photos.append((photo, pose.azimuth))
    flight_maps, frames = real_flight(arguments.shared)
    rasters += flight_maps
    real = [*frames[:: max(1, len(frames) // arguments.photos)], *real_photos(arguments.shared)]
    for folder in dict.fromkeys(photo.path.parent for photo in real):
        photos += [(photo, None) for photo in real if photo.path.parent == folder][: arguments.photos]
    build_index([str(path) for path in rasters], index, embedder, "default", ViewOptions((110.0, 170.0, 250.0), 0.45))
    return interleaved(photos)


def fly(arguments: argparse.Namespace) -> list[LabelledPhoto]:
    """Frames of a straight flight over the first map: 8 m/s at 120 m, one frame a second, tilted by 70 degrees."""
    name, world = f"{INDEXED[0]}-0", Region(SEED, 0, INDEXED[0], 800.0, 0.5).load()
    rng = np.random.default_rng([SEED, 999])
    look = sample_appearance(rng, "drone")
    frames = []
    for number in range(arguments.frames):
        pose = Pose((250.0 + 8.0 * number, -400.0), 120.0, 70.0, 75.0, 55.0)
        path = arguments.work / f"flight-{name}" / f"{number:03d}.jpg"
        if not path.is_file():
            with atomic_path(path) as temporary:
                Image.fromarray(render_drone(world, pose, 320, look, rng)).save(temporary)
        longitude, latitude = world.lonlat(*pose.target)
        frames.append(LabelledPhoto(path=path, latitude=latitude, longitude=longitude))
    return frames


def follow(
    title: str, locator: Locator, clock: StageClock, frames: Sequence[LabelledPhoto], eager: Embedder
) -> list[dict[str, Any]]:
    """One row per frame of a flight but the first."""
    rows, last = [], None
    for frame in frames:
        inputs = eager.preprocess([read_rgb(frame.path)])
        unit = min(_seconds(partial(eager.embed_inputs, inputs)) for _ in range(3))
        row, last = locate_one(locator, clock, frame, None, last)
        rows.append({"photo": frame.path.name, "search": title, "unit": unit, **row})
    return rows[1:]


def interleaved(photos: Sequence[tuple[LabelledPhoto, float | None]]) -> list[tuple[LabelledPhoto, float | None]]:
    """The photos of all maps by turns, so that an interrupted run has seen every map."""
    seen: dict[Path, int] = {}
    order = []
    for number, (photo, _) in enumerate(photos):
        turn = seen[photo.path.parent] = seen.get(photo.path.parent, -1) + 1
        order.append((turn, number))
    return [photos[number] for _, number in sorted(order)]


def timed_locator(index: Path, embedder: Embedder, tokens: bool = True) -> tuple[Locator, StageClock]:
    """A locator whose stages are measured. tokens: use those of the index."""
    locator, clock = Locator(MapIndex(index), embedder), StageClock()
    if not tokens:
        locator.index.view_tokens = lambda hit: None  # type: ignore[method-assign]
    locator.locate(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))  # warm up
    clock.wrap(locator.index, "search", "search")
    clock.wrap(locator.index, "view", "cut and warp")
    clock.wrap(locator.search, "lay_out", "lay out")
    return locator, clock


def locate_all(
    searches: dict[str, tuple[Locator, StageClock, bool]],
    photos: Sequence[tuple[LabelledPhoto, float | None]],
    eager: Embedder,
    cache: Path,
) -> list[dict[str, Any]]:
    """One row per photo and search; finished photos are read from the cache, so that a run can resume."""
    rows: list[dict[str, Any]] = json.loads(cache.read_text()) if cache.is_file() else []
    done = {(row["photo"], row["search"]) for row in rows}
    for photo, heading in photos:
        name = f"{photo.path.parent.name}/{photo.path.name}"
        if all((name, title) in done for title in searches):
            continue
        inputs = eager.preprocess([read_rgb(photo.path)])
        unit = min(_seconds(partial(eager.embed_inputs, inputs)) for _ in range(3))
        for title, (locator, clock, known) in searches.items():
            if (name, title) in done or (known and heading is None):
                continue
            row, _ = locate_one(locator, clock, photo, heading if known else None)
            rows.append({"photo": name, "search": title, "unit": unit, **row})
        write_text(cache, json.dumps(rows))
    return rows


def _seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def locate_one(
    locator: Locator,
    clock: StageClock,
    photo: LabelledPhoto,
    heading: float | None,
    last: LastMatch | None = None,
) -> tuple[dict[str, Any], LastMatch | None]:
    """Locate a photo and measure its stages."""
    clock.seconds, clock.passes, clock.detections = dict.fromkeys(STAGES, 0.0), 0, 0
    embedder = locator.embedder
    functions = {
        (matching, "fit_homography"): "fit",
        (matching, "mutual_neighbours"): "match",
        (search, "warp"): "cut and warp",
        (search, "resize_for_detector"): "keypoints",
        (KeypointDetector, "detect"): "keypoints",
    }
    kept = [(owner, name, getattr(owner, name)) for owner, name in functions]
    started = time.process_time()
    with clock.measure("decode"):
        image = read_rgb(photo.path)
    clock.wrap(embedder, "preprocess", "preprocess")
    clock.wrap(embedder, "embed_with_patches", "embed the photo")
    clock.wrap(embedder, "patch_tokens", "map passes")
    for (owner, name), stage in functions.items():
        clock.wrap(owner, name, stage)
    try:
        fix, last = locator.locate_next(image, last, hints=Hints(heading_deg=heading))
    finally:
        for name in ("preprocess", "embed_with_patches", "patch_tokens"):
            delattr(embedder, name)
        for owner, name, original in kept:
            setattr(owner, name, original)
    total = time.process_time() - started
    outcome = measure_outcome(photo, fix)
    error = None if outcome is None or outcome.outside else outcome.error_m
    evidence = None if fix.evidence is None else fix.evidence.inliers
    stages = clock.seconds | {"other": total - sum(clock.seconds.values())}
    facts = {"outside": photo.latitude is None, "found": fix.found, "error": error, "radius": fix.radius_m}
    counts = {"passes": clock.passes, "matches": max(clock.detections - 1, 0)}
    return {"total": total, "stages": stages, "inliers": evidence, **counts, **facts}, last


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Accuracy, honesty and cost of one search."""
    inside, outside = ([row for row in rows if row["outside"] == which] for which in (False, True))
    fixes = [row for row in inside if row["found"]]
    ratios = np.array([row["total"] / row["unit"] for row in rows])
    return {
        "photos": len(rows),
        "fixes": 100 * len(fixes) / max(len(inside), 1),
        "wrong": sum(row["error"] > CORRECT_WITHIN_M for row in fixes),
        "false": sum(row["found"] for row in outside),
        "outside": len(outside),
        "covered": 100 * float(np.mean([row["error"] <= row["radius"] for row in fixes])) if fixes else float("nan"),
        "error": float(np.median([row["error"] for row in fixes])) if fixes else float("nan"),
        "guess": 100 * float(np.mean([(row["error"] or 0) <= CORRECT_WITHIN_M for row in inside])),
        "p50": float(np.percentile(ratios, 50)),
        "p99": float(np.percentile(ratios, 99)),
        "passes": float(np.percentile([row["passes"] for row in rows], 50)),
        "matches": float(np.percentile([row["matches"] for row in rows], 50)),
        "most": float(max(row["matches"] for row in rows)),
    }


def page(rows: Sequence[dict[str, Any]], titles: Sequence[str]) -> list[str]:
    """The tables of the page, of the photos that every search has located."""
    everywhere = [title for title in titles if "known" not in title and FLIGHT not in title]
    done = set.intersection(*({row["photo"] for row in rows if row["search"] == title} for title in everywhere))
    rows = [row for row in rows if row["photo"] in done or FLIGHT in row["search"]]
    found = {title: summary([row for row in rows if row["search"] == title]) for title in titles}
    lines = [
        "# The time of `locate`",
        "",
        "The first photos of each map of [calibration.md](calibration.md), and as many real photos of each place: a",
        "video over its map, and photos of elsewhere. Each search locates each photo in turn, with one thread. A run",
        "can be interrupted and resumed: then the page is of the photos so far. The searches of a photo may then have",
        "run in two processes, each with its own measurement of the embedding.",
        f"{DEFAULT} is what `skypart locate` uses; OpenVINO int8 is an export, given as `--model`.",
        "Ratios are processor time over that of one eager float32 embedding of the same photo.",
        "Goals: a median of 2.5 with nothing known, 1.5 with a heading and 1.2 in a flight, and 6 for 99 %.",
        "`passes` counts images that pass through the network, `matches` views of the map that are matched by",
        f"keypoints. `{BARE}` is an index made with `--no-tokens`: views pass through the network when they are first",
        "candidates, and are then kept in memory. `a flight` is a rendered flight, whose frames after the first are",
        "matched around the frame before.",
        "",
        "| search | photos | median ratio | 99 % | passes, median | matches, median | most matches |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {title} | {each['photos']} | {each['p50']:.1f} | {each['p99']:.1f} | {each['passes']:.0f} | "
        f"{each['matches']:.0f} | {each['most']:.0f} |"
        for title, each in found.items()
    ]
    lines += [
        "",
        "| search | with a fix, % | wrong fixes | false accepts, of | inside the radius, % | median error, m |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {title} | {each['fixes']:.0f} | {each['wrong']} | {each['false']}, {each['outside']} | "
        f"{each['covered']:.0f} | {each['error']:.1f} |"
        for title, each in found.items()
    ]
    lines += ["", "Mean processor time per stage, in eager embeddings:", "", "| stage | " + " | ".join(titles) + " |"]
    lines.append("|---|" + "---|" * len(titles))
    for stage in (*STAGES, "other"):
        means = [
            float(np.mean([row["stages"][stage] / row["unit"] for row in rows if row["search"] == title]))
            for title in titles
        ]
        lines.append(f"| {stage} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "calibration")
    parser.add_argument("--photos", type=int, default=6, help="per map")
    parser.add_argument("--frames", type=int, default=12, help="of the flight")
    parser.add_argument(
        "--part",
        default="all",
        choices=("photos", "flight", "page", "all"),
        help="page: of the photos so far",
    )
    parser.add_argument("--int8", default="", help="an int8 export of the default model")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "locate-speed.md")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    eager: Embedder = load("default")
    engines: dict[str, Embedder] = {"PyTorch": eager, DEFAULT: load_fastest("default")}
    if arguments.int8:
        engines["OpenVINO int8"] = load(arguments.int8)
    index = arguments.work / f"{eager.digest[:12]}.skyindex"
    cached, flown = arguments.work / "locate-rows.json", arguments.work / "locate-flight.json"
    chosen = {f"{DEFAULT}, {BARE}": (DEFAULT, False)}
    for engine in engines:
        chosen |= {engine: (engine, False), f"{engine}, heading known": (engine, True)}
    if arguments.part in ("photos", "all"):
        photos = prepare(arguments, eager, index)
        searches = {
            title: (*timed_locator(index, engines[engine], tokens=BARE not in title), known)
            for title, (engine, known) in chosen.items()
        }
        locate_all(searches, photos, eager, cached)
    if arguments.part in ("flight", "all"):
        frames = fly(arguments)
        flight = [
            row
            for engine, embedder in engines.items()
            for row in follow(f"{engine}, {FLIGHT}", *timed_locator(index, embedder), frames, eager)
        ]
        write_text(flown, json.dumps(flight))
    if arguments.part in ("page", "all"):
        rows = json.loads(cached.read_text())
        titles = list(chosen)
        if flown.is_file():
            rows += json.loads(flown.read_text())
            titles += [f"{engine}, {FLIGHT}" for engine in engines]
        write_page(arguments.out, page(rows, titles))


if __name__ == "__main__":
    main()
