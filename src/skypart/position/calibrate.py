"""Fit confidence and radius on labelled photos, store them in the index, and show how good they are."""

import json
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from skypart.atomic import check_writable, write_text
from skypart.drawing.files import check_figure_path, save_figure
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import list_photos
from skypart.maps.manifest import Manifest
from skypart.position.confidence import MOST_WRONG, RIGHT_M, Calibration, fit
from skypart.position.fix import Fix
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from skypart.position.photos import locate_photo
from skypart.progress import console, with_progress

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """A located photo. error_m: of the best guess, whether or not it counts as a fix; infinite outside the map.

    east_m, north_m: the same error by its direction, from the truth to the guess; NaN where it is not known.
    """

    fix: Fix
    error_m: float
    east_m: float = math.nan
    north_m: float = math.nan

    @property
    def outside(self) -> bool:
        """Whether the photo is from outside the map."""
        return math.isinf(self.error_m)


ENOUGH = 25
"""Photos to calibrate with: each of five folds is judged by the rest, which must be the 20 that a fit needs."""


@dataclass(frozen=True)
class Quality:
    """How well a calibration holds on photos it was not fitted on (cross-validation).

    covered: share of accepted photos inside their radius. accepted: share of photos of the map that get a fix.
    wrong: share of accepted photos beyond RIGHT_M. false_accepts: share of photos from outside that get a fix.
    median_radius_m: of accepted ones. calibration_error: expected error of the confidence. A share of nothing is NaN.
    """

    photos: int
    outside: int
    covered: float
    accepted: float
    wrong: float
    false_accepts: float
    median_radius_m: float
    calibration_error: float

    def to_dict(self) -> dict[str, float | None]:
        """For JSON, in which null stands for NaN."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


def locate_labelled(locator: Locator, photos: Sequence[LabelledPhoto], outside: Sequence[Path] = ()) -> list[Outcome]:
    """Locate photos of known position, and photos from outside the map, as `skypart locate` does.

    Those without any evidence, in which nothing can be seen, are left out, and so are those that cannot be read.
    """
    every = [*photos, *(LabelledPhoto(path=path, latitude=None, longitude=None) for path in outside)]
    outcomes = []
    with closing(with_progress(every, "locating")) as bar:
        for photo in bar:
            try:
                fix = locate_photo(locator, photo.path)
            except SkyPartError as unread:
                console.print(f"left out: {unread}", style="yellow", markup=False, highlight=False, soft_wrap=True)
                continue
            if not fix.evidence:
                continue
            outcomes.append(outcome_of(photo, fix))
    return outcomes


def outcome_of(photo: LabelledPhoto, fix: Fix) -> Outcome:
    """How far the best guess for a photo lies from the truth, and which way."""
    guess = {name: fix.evidence[name] for name in ("latitude", "longitude")}
    error = photo.error_m(**guess)
    if photo.latitude is None or photo.longitude is None:
        return Outcome(fix, error)
    away = LocalFrame(latitude=photo.latitude, longitude=photo.longitude).to_metres(**guess)
    return Outcome(fix, error, float(away.x), float(away.y))


def fit_outcomes(
    outcomes: Sequence[Outcome], source: str, most_wrong: float = MOST_WRONG, map_error: bool = False
) -> Calibration:
    """A calibration from located photos.

    map_error: keep what the photos of a map err in common apart, as the calibration's floor; for maps to be used.
    """
    offsets = [(o.east_m, o.north_m) for o in outcomes] if map_error else None
    maps = [o.fix.candidates[0].map_name if o.fix.candidates else "" for o in outcomes]
    evidence, errors = [o.fix.evidence for o in outcomes], [o.error_m for o in outcomes]
    return fit(evidence, errors, source, most_wrong, offsets, maps)


def cross_validate(
    outcomes: Sequence[Outcome],
    folds: int = 5,
    most_wrong: float = MOST_WRONG,
    groups: Sequence[str] | None = None,
    map_error: bool = False,
) -> tuple[Floats, Floats]:
    """Confidence and radius (infinite: no fix) of each photo by a calibration fitted without its fold.

    groups: a name for each photo, as of its map; photos of one name are then a fold, instead of some drawn at random.
    map_error: as in fit_outcomes.
    """
    order = np.random.default_rng(0).permutation(len(outcomes))
    parts = [set(order[fold::folds].tolist()) for fold in range(folds)]
    if groups is not None:
        parts = [{i for i, name in enumerate(groups) if name == each} for each in sorted(set(groups))]
    confidence, radius = np.zeros(len(outcomes)), np.full(len(outcomes), math.inf)
    for mine in parts:
        try:
            others = [o for i, o in enumerate(outcomes) if i not in mine]
            calibration = fit_outcomes(others, "fold", most_wrong, map_error)
        except SkyPartError as error:
            raise SkyPartError(f"too few photos to check the calibration by {len(parts)} folds: {error}") from error
        for index in mine:
            evidence = outcomes[index].fix.evidence
            confidence[index] = calibration.confidence(evidence)
            if confidence[index] >= calibration.threshold:
                radius[index] = calibration.radius(evidence)
    return confidence, radius


def quality(outcomes: Sequence[Outcome], confidence: Floats, radius: Floats) -> Quality:
    """Figures of merit of cross-validated confidences and radii."""
    errors = np.array([o.error_m for o in outcomes])
    outside, taken = np.isinf(errors), np.isfinite(radius)
    right = errors <= RIGHT_M
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    gaps = [abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    inside = taken & ~outside
    return Quality(
        photos=int((~outside).sum()),
        outside=int(outside.sum()),
        covered=_mean(errors[inside] <= radius[inside]),
        accepted=_mean(taken[~outside]),
        wrong=_mean(~right[taken]),
        false_accepts=_mean(taken[outside]),
        median_radius_m=float(np.median(radius[taken])) if taken.any() else math.nan,
        calibration_error=float(sum(gaps)),
    )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else math.nan


def store_calibration(locator: Locator, calibration: Calibration) -> None:
    """Write a calibration into the index."""
    index = locator.index
    manifest = Manifest.read(index.folder)
    index.manifest = replace(manifest, calibration=_with_maps(locator, calibration))
    index.manifest.write(index.folder)


def _with_maps(locator: Locator, calibration: Calibration) -> dict[str, Any]:
    """A calibration as it is kept, with the maps it holds for."""
    return {**calibration.to_dict(), "maps": locator.index.manifest.maps_digest}


def draw(outcomes: Sequence[Outcome], confidence: Floats, radius: Floats, out: Path) -> None:
    """Reliability diagram, risk-coverage curve, and errors against radii, as one picture."""
    errors = np.array([o.error_m for o in outcomes])
    right = errors <= RIGHT_M
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, last = figure.subplots(1, 3)
    _draw_reliability(left, confidence, right)
    order = np.argsort(-confidence, kind="stable")
    count = np.arange(1, len(order) + 1)
    middle.plot(100 * count / len(order), 100 * np.cumsum(~right[order]) / count, color="#b3403a")
    middle.set(
        xlabel="photos accepted, most confident first (%)", ylabel=f"of them wrong by more than {RIGHT_M:.0f} m (%)"
    )
    middle.set_title("Risk and coverage")
    taken = np.isfinite(radius) & np.isfinite(errors)
    last.scatter(radius[taken], np.maximum(errors[taken], 0.3), s=14, alpha=0.6, color="#2b6cb0")
    edge = max(float(radius[taken].max()) if taken.any() else 1.0, 1.0)
    last.plot([0.3, edge], [0.3, edge], color="#888888", linewidth=1)
    last.set(xscale="log", yscale="log", xlabel="95 % radius (m)", ylabel="error (m)", title="Error against radius")
    for axes in (left, middle, last):
        axes.grid(alpha=0.25)
    save_figure(figure, out)


def _draw_reliability(axes: Any, confidence: Floats, right: NDArray[np.bool_]) -> None:
    """Confidence against the share that is right, in ten bins; dots as large as the bins are full."""
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    for number in np.unique(bins):
        chosen = bins == number
        axes.scatter(
            confidence[chosen].mean(), right[chosen].mean(), s=20 + 300 * chosen.mean(), color="#2b6cb0", alpha=0.8
        )
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel=f"share within {RIGHT_M:.0f} m")
    axes.set_title("Reliability")


def run_calibration(locator: Locator, labelled: Path, outside: Sequence[Path], picture: Path) -> str:
    """`skypart calibrate`: fit, check by cross-validation, store, draw; the text for the terminal."""
    report_file = picture.with_suffix(".json")
    check_figure_path(picture)
    if picture.resolve().parent == locator.index.folder.resolve():
        raise SkyPartError(f"{picture}: lies in the index, whose files it could replace; choose a place outside it")
    for file in (picture, report_file):
        check_writable(file)
    strangers, photos = list_photos(outside) if outside else [], read_labelled(labelled)
    gone = next((path for path in strangers if not path.is_file()), None)
    if gone is not None:
        raise SkyPartError(f"{gone}: no such file; give photos from outside the map, or their folder")
    if len(photos) + len(strangers) < ENOUGH:
        raise SkyPartError(
            f"{len(photos) + len(strangers)} photos are too few to calibrate with; give {ENOUGH} or more"
        )
    if not strangers and all(photo.latitude is not None for photo in photos):
        told = "all photos are of the map, but some must be located wrongly to calibrate with"
        console.print(f"{told}; give photos of other places too (--outside)", style="yellow", soft_wrap=True)
    outcomes = locate_labelled(locator, photos, strangers)
    calibration = fit_outcomes(outcomes, f"{len(outcomes)} photos of {labelled.name}", map_error=True)
    if math.isinf(min(calibration.refined, calibration.voted)):
        raise SkyPartError(
            f"of {len(outcomes)} photos too few are located surely enough to say how far fixes err; nothing was "
            "stored: add photos of the map, or go on without a calibration"
        )
    store_calibration(locator, calibration)
    kept = {"calibration": _with_maps(locator, calibration)}
    try:
        confidence, radius = cross_validate(outcomes, map_error=True)
    except SkyPartError as error:
        write_text(report_file, json.dumps({"quality": None, **kept}, indent=1, allow_nan=False) + "\n")
        return f"calibrated on {len(outcomes)} photos, but nothing can be said of how well it holds: {error}"
    found = quality(outcomes, confidence, radius)
    write_text(report_file, json.dumps({"quality": found.to_dict(), **kept}, indent=1, allow_nan=False) + "\n")
    draw(outcomes, confidence, radius, picture)
    lines = [
        f"calibrated on {found.photos} photos of the map and {found.outside} from outside; by cross-validation:",
        f"  with a fix                  {100 * found.accepted:.0f} % of the photos of the map",
        f"  truth inside the radius     {100 * found.covered:.0f} % of them (95 % wanted)",
        f"  wrong by more than {RIGHT_M:.0f} m    {100 * found.wrong:.1f} % of all fixes",
        f"  median 95 % radius          {found.median_radius_m:.0f} m",
        f"  calibration error           {100 * found.calibration_error:.1f} % of confidence",
    ]
    if found.outside:
        lines.append(f"  false accepts               {100 * found.false_accepts:.1f} % of the photos from outside")
    return "\n".join([*lines, f"diagrams: {picture}"])
