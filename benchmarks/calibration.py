"""Fit the default calibration: how reliable fixes of the default model are on a map without its own calibration.

    python benchmarks/calibration.py [--shared ../shared]

renders maps of places that the model was not trained on. A procedural town, suburb and coast are indexed, and, if
--shared exists, the held-out LiDAR site and squares of the held-out city (whose photos have another date than the map).
A campus, farmland and other squares of that city are not indexed. Renders photos over all of them, half of them in ten
weathers, with faults that real photos and maps have and rendered ones lack: a map shifted by metres and warped locally,
ground higher or lower than the map knows, a wrong tilt and roll, a lens with distortion (see FAULTS). The radius is
fitted to these faults; the shipped one assumes larger ones (ASSUMED_ERRORS). Photos over maps that are not
indexed, and real photos of other places, count as from outside. The frames of NUST's video over its orthomosaic are
the only real photos with a known position. Locates all photos and writes src/skypart/position/default_calibration.json
and docs/results/calibration.md with its figure.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.atomic import atomic_path, write_text
from skypart.bridge.json_text import evidence_to_dict
from skypart.datasets.rendering import Pose
from skypart.drawing.files import save_figure
from skypart.embedding import load
from skypart.images.decode import RgbImage
from skypart.images.weather import CONDITIONS, RENDERING, corrupt
from skypart.maps.build import build_index
from skypart.maps.index import MapIndex
from skypart.maps.views import ViewOptions
from skypart.position.calibrate import Outcome, cross_validate, fit_outcomes, measure_outcome, measure_quality
from skypart.position.confidence import (
    ASSUMED_ERRORS,
    CORRECT_WITHIN_M,
    FEATURES,
    MATCHING_VERSION,
    Calibration,
    ErrorSources,
    GroupErrors,
)
from skypart.position.figures import draw_calibration
from skypart.position.fix import Evidence, Fix, Place
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from skypart.position.photos import locate_photo
from skypart.progress import console, with_progress
from skypart.training.checkpoint import code_version
from skypart.worlds.appearance import sample_appearance
from skypart.worlds.camera import random_pose
from skypart.worlds.geotiff import write_geotiff
from skypart.worlds.ground import World
from skypart.worlds.procedural import Region
from skypart.worlds.rasters import find_sources
from skypart.worlds.render import render_drone, render_map
from skypart.worlds.sources import RasterSource

ROOT = Path(__file__).resolve().parent.parent
INDEXED = ("town", "suburb", "coast")
OUTSIDE = ("campus", "farmland")
CITY = "long_beach"
SEED = 77
_EXACT = GroupErrors(1.0, 1.0)
ANY = Calibration((0.0,) * len(FEATURES), 0.0, ((0.0, 1.0),), 0.0, ErrorSources(), _EXACT, _EXACT, 0, "none")
"""Accepts everything: only the evidence is wanted, and the shipped calibration may be of another version."""
MIN_SUPPORT = 32.0
"""Support that a match needs. Chance reaches 15 on these photos, and a stadium that two procedural maps have 31."""
MAX_WRONG_SHARE = 0.01
"""Share of accepted photos that may be wrong: stricter than `skypart calibrate`, which knows the map."""


@dataclass(frozen=True)
class Faults:
    """Standard deviations of what a photo's nominal position does not know.

    map_m: position of the map, each axis. warp_m: local shifts within the map, each axis, see `warp_locally`. height_m:
    of the ground above the nominal one. tilt_deg, heading_deg, roll_deg: of the camera. distortion: radial, at the
    corner of the photo, as a share of its distance from the centre.
    """

    map_m: float = 6.0
    warp_m: float = 2.0
    height_m: float = 6.0
    tilt_deg: float = 2.5
    heading_deg: float = 2.5
    roll_deg: float = 2.5
    distortion: float = 0.03

    @property
    def tag(self) -> str:
        """A name for files that depend on these faults."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


FAULTS = Faults()
FAULT_LIMITS = ErrorSources(map_m=15.0, height_m=12.0, camera_deg=5.0)
"""The 95 % limits of FAULTS, to which the radius is fitted."""
WARP_WAVELENGTH_M = 80.0
"""Distance over which local shifts of a map change."""


def maps(shared: Path) -> dict[str, tuple[World, bool]]:
    """Worlds by name, and whether each is indexed."""
    found = {}
    for number, style in enumerate((*INDEXED, *OUTSIDE)):
        found[f"{style}-{number}"] = (Region(SEED, number, style, 800.0, 0.5).load(), style in INDEXED)
    lidar = shared / "data" / "autzen_lidar_cc_by"
    if lidar.is_dir():
        found["autzen"] = (find_sources(lidar, 0)[0].load(), True)
    squares = shared / "data" / "naip_california_cc_by"
    if squares.is_dir():
        here, elsewhere = _disjoint_pair(find_sources(squares, SEED, surround=True, guess_heights=True))
        found |= {"long-beach": (here.load(), True), "long-beach-elsewhere": (elsewhere.load(), False)}
    return found


def write_rasters(work: Path, worlds: Mapping[str, tuple[World, bool]], faults: Faults = FAULTS) -> list[Path]:
    """The satellite maps of the indexed worlds as GeoTIFF, made once."""
    rasters: list[Path] = []
    for name, (world, inside) in worlds.items():
        if not inside:
            continue
        rasters.append(work / f"maps-{faults.tag}" / f"{name}.tif")
        if not rasters[-1].is_file():
            rasters[-1].parent.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng([SEED, len(rasters)])
            image = render_map(world, sample_appearance(rng, "satellite"))
            write_geotiff(
                rasters[-1], warp_locally(image, faults.warp_m / world.gsd, WARP_WAVELENGTH_M / world.gsd, rng), world
            )
    return rasters


def warp_locally(image: RgbImage, shift: float, wavelength: float, rng: np.random.Generator) -> RgbImage:
    """An image (h, w, 3) whose pixels are shifted by a smooth random field, as in a mosaic of many photos.

    shift: standard deviation in pixels, each axis. wavelength: pixels over which the shift changes.
    """
    rows, columns = image.shape[:2]
    grid = (math.ceil(rows / wavelength) + 3, math.ceil(columns / wavelength) + 3)
    down, across = (
        cv2.resize(rng.normal(0.0, shift, grid).astype(np.float32), (columns, rows), interpolation=cv2.INTER_CUBIC)
        for _ in range(2)
    )
    y, x = np.mgrid[:rows, :columns].astype(np.float32)
    return np.asarray(cv2.remap(image, x + across, y + down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))


def _disjoint_pair(sources: Sequence[RasterSource]) -> tuple[RasterSource, RasterSource]:
    """Two maps of nine squares of the held-out city, with several dates, that share no square."""
    dated = [source for source in sources if source.name.startswith(CITY) and len(source.files) > 1]

    def squares(source: RasterSource) -> set[Path]:
        return {file for place in (source.files, *source.around) for file in place}

    return next((one, other) for one in dated for other in dated if not squares(one) & squares(other))


def real_photos(shared: Path) -> list[LabelledPhoto]:
    """Real aerial photos of places that are on none of the maps; of the larger set every second one.

    The others are left for benchmarks/outsiders.py.
    """
    data = shared / "data"
    files = sorted((data / "caliterra_cc0").glob("*.jpg")) + sorted((data / "odm_photos_cc0").rglob("*.jpg"))[::2]
    return [LabelledPhoto(path=file, latitude=None, longitude=None) for file in files]


def real_flight(shared: Path) -> tuple[list[Path], list[LabelledPhoto]]:
    """The orthomosaic of NUST, and the frames of its video with their positions."""
    folder = shared / "data" / "nust_bsd2"
    return ([folder / "orthomosaic_utm43n.tif"], read_labelled(folder)) if folder.is_dir() else ([], [])


def photograph(
    work: Path, name: str, world: World, inside: bool, count: int, faults: Faults = FAULTS
) -> list[LabelledPhoto]:
    """Render photos at random poses, every second one in some weather. Their labels are nominal: see `Faults`."""
    photos = []
    for number in with_progress(range(count), f"photos of {name}"):
        rng = np.random.default_rng([SEED, number, len(name)])
        path = work / name / f"{number:03d}-{RENDERING}-{faults.tag}.jpg"
        nominal = random_pose(world, rng, altitude=(70.0, 200.0), tilt=(40.0, 90.0), fov=(45.0, 65.0), margin=130.0)
        pose = actual_pose(nominal, faults, rng)
        roll, bend = rng.normal(0.0, faults.roll_deg), rng.normal(0.0, faults.distortion)
        east, north = rng.normal(0.0, faults.map_m, 2)
        if not path.is_file():
            image = distort(render_drone(world, pose, 384, sample_appearance(rng, "drone"), rng), roll, bend, 320)
            weather = CONDITIONS[number // 2 % len(CONDITIONS)] if number % 2 else "normal"
            with atomic_path(path) as temporary:
                Image.fromarray(corrupt(image, weather, "paper", SEED, name + str(number))).save(temporary)
        longitude, latitude = world.lonlat(nominal.target[0] + east, nominal.target[1] + north)
        photos.append(
            LabelledPhoto(path=path, latitude=latitude if inside else None, longitude=longitude if inside else None)
        )
    return photos


def actual_pose(nominal: Pose, faults: Faults, rng: np.random.Generator) -> Pose:
    """The pose of a camera at the nominal place whose ground is higher and whose angles are others than it knows."""
    tilt = float(np.clip(nominal.tilt + rng.normal(0.0, faults.tilt_deg), 20.0, 90.0))
    azimuth = (nominal.azimuth + rng.normal(0.0, faults.heading_deg)) % 360.0
    altitude = max(nominal.altitude - rng.normal(0.0, faults.height_m), 30.0)

    def ahead(pose_tilt: float, height: float, direction: float) -> NDArray[np.float64]:
        run = height / math.tan(math.radians(pose_tilt))
        return run * np.array([math.sin(math.radians(direction)), math.cos(math.radians(direction))])

    centre = np.array(nominal.target) - ahead(nominal.tilt, nominal.altitude, nominal.azimuth)
    x, y = centre + ahead(tilt, altitude, azimuth)
    return Pose((float(x), float(y)), altitude, tilt, azimuth, nominal.fov)


def distort(image: RgbImage, roll: float, bend: float, size: int) -> RgbImage:
    """The centre of a photo (n, n, 3), rolled by degrees and seen through a lens with radial distortion.

    bend: at the corner, as a share of its distance from the centre.
    """
    half = size / 2
    rows, columns = np.meshgrid(np.arange(size) + 0.5 - half, np.arange(size) + 0.5 - half, indexing="ij")
    factor = 1.0 + bend * (rows**2 + columns**2) / (2 * half**2)
    sine, cosine = math.sin(math.radians(roll)), math.cos(math.radians(roll))
    middle = len(image) / 2 - 0.5
    across = (factor * (cosine * columns - sine * rows) + middle).astype(np.float32)
    down = (factor * (sine * columns + cosine * rows) + middle).astype(np.float32)
    return np.asarray(cv2.remap(image, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))


def locate_all(locator: Locator, photos: Sequence[LabelledPhoto], cache: Path) -> list[Outcome]:
    """Locate photos as `skypart locate` does. Evidence and best guesses are cached, so that a run can resume."""
    known: dict[str, dict[str, float | None]] = json.loads(cache.read_text()) if cache.is_file() else {}
    outcomes = []
    for photo in with_progress(photos, "locating"):
        name = f"{photo.path.parent.name}/{photo.path.name}"
        if name not in known:
            known[name] = evidence_to_dict(locate_photo(locator, photo.path))
            write_text(cache, json.dumps(known))
        outcome = measure_outcome(photo, cached_fix(str(photo.path), known[name]))
        if outcome is not None:
            outcomes.append(outcome)
    return outcomes


def cached_fix(photo: str, values: Mapping[str, float | None]) -> Fix:
    """A fix with the cached evidence and best guess only; without either if nothing could be seen in the photo."""
    numbers = {name: float("nan") if value is None else value for name, value in values.items()}
    if not numbers:
        return Fix(photo=photo)
    guess = Place(numbers.pop("latitude"), numbers.pop("longitude"))
    return Fix(photo=photo, evidence=Evidence(**numbers), best_guess=guess)


def by_map(outcomes: Sequence[Outcome], over: Sequence[str], radius: NDArray[np.float64]) -> list[str]:
    """Table rows: the photos of each map, or from outside, with the accuracy of their best guesses and fixes."""
    rows = []
    for name in dict.fromkeys(over):
        here = np.array([each == name for each in over])
        errors, fixed = np.array([o.error_m for o in outcomes])[here], np.isfinite(radius[here])
        outside = bool(np.isinf(errors).all())
        right = errors <= CORRECT_WITHIN_M
        guess = "" if outside else f"{100 * float(right.mean()):.0f}"
        wrong = "" if outside or not fixed.any() else f"{100 * float(np.mean(~right[fixed])):.0f}"
        inside = "" if not wrong else f"{100 * float(np.mean(errors[fixed] <= radius[here][fixed])):.0f}"
        title = f"{name}, {int(here.sum())}" + (", outside" if outside else "")
        rows.append(f"| {title} | {guess} | {100 * float(fixed.mean()):.0f} | {wrong} | {inside} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "calibration")
    parser.add_argument("--photos", type=int, default=40, help="per map")
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    worlds = maps(arguments.shared)
    rasters = write_rasters(arguments.work, worlds)
    photos: list[LabelledPhoto] = []
    for name, (world, inside) in worlds.items():
        photos += photograph(arguments.work, name, world, inside, arguments.photos)
    real = real_photos(arguments.shared)
    flight_maps, flight = real_flight(arguments.shared)
    rasters += flight_maps
    photos += [*flight, *real]
    embedder = load(arguments.model)
    index = arguments.work / f"{embedder.digest[:12]}-{FAULTS.tag}.skyindex"
    build_index(
        [str(path) for path in rasters], index, embedder, arguments.model, ViewOptions((110.0, 170.0, 250.0), 0.45)
    )
    cache = arguments.work / f"evidence-{embedder.digest[:12]}-{FAULTS.tag}-{MATCHING_VERSION}.json"
    outcomes = locate_all(Locator(MapIndex(index), embedder, calibration=ANY), photos, cache)
    source = f"{len(outcomes)} photos, benchmarks/calibration.py"
    fitted = fit_outcomes(outcomes, source, MAX_WRONG_SHARE, sources=FAULT_LIMITS, min_support=MIN_SUPPORT)
    calibration = replace(fitted.widen(ASSUMED_ERRORS), model=embedder.digest)
    over = [Path(outcome.photo).parent.name for outcome in outcomes]
    judge = partial(
        cross_validate,
        outcomes,
        max_wrong=MAX_WRONG_SHARE,
        groups=over,
        min_support=MIN_SUPPORT,
        sources=FAULT_LIMITS,
    )
    confidence, tight = judge()
    _, radius = judge(widened=ASSUMED_ERRORS)
    fitted_quality = measure_quality(outcomes, confidence, tight)
    found = measure_quality(outcomes, confidence, radius)
    errors = np.array([outcome.error_m for outcome in outcomes])
    save_figure(draw_calibration(errors, confidence, radius), ROOT / "docs" / "results" / "calibration.png")
    write_text(
        ROOT / "src" / "skypart" / "position" / "default_calibration.json",
        json.dumps(calibration.to_dict(), indent=1) + "\n",
    )
    right = [o.error_m <= CORRECT_WITHIN_M for o in outcomes if not o.outside]
    lines = [
        "# The default calibration",
        "",
        "The rendered photos show maps that the default model was not trained on: a procedural town, suburb and "
        "coast, a LiDAR",
        "site, and nine squares of a city with estimated heights, whose photos are from another year than the map. "
        "Half of the",
        "photos are clean, half are in the ten `paper` weathers, at any heading, from 70 to 200 m and with tilts of "
        "40 to 90 degrees.",
        f"Real photos of known position: {len(flight)} frames of a video over its orthomosaic (NUST).",
        "From outside: photos over maps that are not indexed (a campus, farmland, nine other squares of that city) and",
        f"{len(real)} real photos of other places (Caliterra, Ohio, Texas). The photos of each map are judged by a",
        f"calibration fitted without that map, with a threshold at which at most {MAX_WRONG_SHARE:.0%} of the accepted",
        "photos are wrong. The shipped calibration is fitted to all photos.",
        f"A match also needs a support of {MIN_SUPPORT:.0f}: the number of inliers, reduced by those that another "
        "place also has, and",
        "reduced if they crowd in one part of the photo. This limit and the settings of the search were chosen on "
        "these photos.",
        "[outsiders.md](outsiders.md) tests the final settings on other photos.",
        "",
        "The rendered photos have errors that their labels do not contain. Standard deviations:",
        "",
        "| error | size |",
        "|---|---|",
        f"| position of the map, each axis | {FAULTS.map_m:.0f} m |",
        f"| local shifts within the map, each axis, over {WARP_WAVELENGTH_M:.0f} m | {FAULTS.warp_m:.0f} m |",
        f"| height of the ground | {FAULTS.height_m:.0f} m |",
        f"| tilt, heading, roll of the camera, each | {FAULTS.tilt_deg:g} degrees |",
        f"| radial distortion at the photo's corner | {100 * FAULTS.distortion:.0f} % |",
        "",
        f"The 95 % radius combines four parts: the map ({FAULT_LIMITS.map_m:.0f} m), unknown heights of",
        f"{FAULT_LIMITS.height_m:.0f} m seen obliquely, {FAULT_LIMITS.camera_deg:.0f} degrees of the camera, and",
        "the match. They are scaled by a factor, fitted by split conformal prediction, so that 95 % of the photos "
        "are covered.",
        "",
        "**The shipped radius is wider than that.** In a trial on real oblique photos, which are not available here,",
        "an earlier radius, fitted to rendered photos, contained the true position of only 63 %. The shipped one "
        "assumes",
        f"heights of {ASSUMED_ERRORS.height_m:.0f} m and {ASSUMED_ERRORS.camera_deg:.0f} degrees, and the fitted "
        "factor",
        "can only widen it. It covers more than 95 % of the photos here. The rows below use it unless they say "
        "otherwise.",
        "",
        "| | |",
        "|---|---|",
        f"| photos of the maps, photos from outside | {found.photos}, {found.outside} |",
        f"| best guess within {CORRECT_WITHIN_M:.0f} m, before any threshold | {100 * float(np.mean(right)):.1f} % |",
        f"| photos of the maps with a fix | {100 * found.accepted:.1f} % |",
        f"| true position inside the 95 % radius | {100 * found.covered:.1f} % |",
        f"| true position inside the radius as fitted | {100 * fitted_quality.covered:.1f} % |",
        f"| median radius as fitted | {fitted_quality.median_radius_m:.0f} m |",
        f"| fixes that are wrong by more than {CORRECT_WITHIN_M:.0f} m, including photos from outside | "
        f"{100 * found.wrong:.1f} % |",
        f"| false accepts of photos from outside | {100 * found.false_accepts:.1f} % |",
        f"| median 95 % radius | {found.median_radius_m:.0f} m |",
        f"| mean 95 % radius | {float(radius[np.isfinite(radius)].mean()):.0f} m |",
        f"| median error of the fixes | {float(np.median(errors[np.isfinite(radius) & np.isfinite(errors)])):.0f} m |",
        f"| expected calibration error | {100 * found.calibration_error:.1f} % |",
        "",
        "| map, photos | best guess within 50 m, % | with a fix, % | of these wrong, % | inside the radius, % |",
        "|---|---|---|---|---|",
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
