"""Calibrate an index: fit confidence and radius to labelled photos, check them by cross-validation, and store them."""

import json
import logging
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import check_writable, write_text
from skypart.drawing.files import check_figure_path, save_figure
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import list_photos
from skypart.maps.manifest import IndexManifest
from skypart.position.confidence import (
    ASSUMED_ERRORS,
    CORRECT_WITHIN_M,
    MAX_WRONG_SHARE,
    Calibration,
    ErrorSources,
    fit_calibration,
)
from skypart.position.figures import draw_calibration
from skypart.position.fix import Evidence, Fix
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from skypart.position.photos import locate_photo
from skypart.progress import with_progress

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]


MIN_PHOTOS = 25
"""Photos needed to calibrate: each of five folds is judged by a fit to the other photos, which needs 20."""


@dataclass(frozen=True)
class Outcome:
    """A located photo.

    error_m: of the best guess, whether or not there is a fix; infinite for a photo from outside the map. east_m,
    north_m: the same error by direction, from the truth to the guess; NaN if unknown. map_name: the map of the best
    view, if known.
    """

    photo: str
    evidence: Evidence
    error_m: float
    east_m: float = math.nan
    north_m: float = math.nan
    map_name: str = ""

    @property
    def outside(self) -> bool:
        """Whether the photo is from outside the map."""
        return math.isinf(self.error_m)


@dataclass(frozen=True)
class Quality:
    """Quality of a calibration on photos it was not fitted to (cross-validation).

    covered: share of accepted photos inside their radius. accepted: share of photos of the map that get a fix.
    wrong: share of accepted photos that are off by more than CORRECT_WITHIN_M. false_accepts: share of photos from
    outside that get a fix. median_radius_m: of accepted photos. calibration_error: expected calibration error (ECE). A
    share of nothing is NaN.
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
        """Content for JSON, where null means NaN."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


def locate_labelled(locator: Locator, photos: Sequence[LabelledPhoto], outside: Sequence[Path] = ()) -> list[Outcome]:
    """Locate photos of known position, and photos from outside the map, as `skypart locate` does.

    Photos that cannot be read, or in which nothing can be seen, are left out.
    """
    every = [*photos, *(LabelledPhoto(path=path, latitude=None, longitude=None) for path in outside)]
    outcomes, patient = [], locator.thorough()
    with closing(with_progress(every, "locating")) as bar:
        for photo in bar:
            try:
                fix = locate_photo(patient, photo.path)
            except SkyPartError as error:
                log.warning("left out: %s", error)
                continue
            outcome = measure_outcome(photo, fix)
            if outcome is not None:
                outcomes.append(outcome)
    return outcomes


def measure_outcome(photo: LabelledPhoto, fix: Fix) -> Outcome | None:
    """How far the best guess for a photo lies from the truth, and in which direction; None if there is no guess."""
    guess = fix.best_guess
    if fix.evidence is None or guess is None:
        return None
    map_name = fix.candidates[0].map_name if fix.candidates else ""
    error = photo.error_m(latitude=guess.latitude, longitude=guess.longitude)
    if photo.latitude is None or photo.longitude is None:
        return Outcome(fix.photo, fix.evidence, error, map_name=map_name)
    frame = LocalFrame(latitude=photo.latitude, longitude=photo.longitude)
    offset = frame.to_metres(latitude=guess.latitude, longitude=guess.longitude)
    return Outcome(fix.photo, fix.evidence, error, float(offset.x), float(offset.y), map_name)


def fit_outcomes(
    outcomes: Sequence[Outcome],
    source: str,
    max_wrong: float = MAX_WRONG_SHARE,
    map_error: bool = False,
    sources: ErrorSources = ASSUMED_ERRORS,
    min_support: float = 0.0,
) -> Calibration:
    """Fit a calibration to located photos.

    map_error: estimate the map's error from the common error of its photos instead of taking that of `sources`.
    min_support: see `Calibration`.
    """
    offsets = [(outcome.east_m, outcome.north_m) for outcome in outcomes] if map_error else None
    return fit_calibration(
        [outcome.evidence for outcome in outcomes],
        [outcome.error_m for outcome in outcomes],
        source,
        max_wrong,
        offsets,
        [outcome.map_name for outcome in outcomes],
        sources,
        min_support,
    )


def cross_validate(
    outcomes: Sequence[Outcome],
    folds: int = 5,
    max_wrong: float = MAX_WRONG_SHARE,
    groups: Sequence[str] | None = None,
    map_error: bool = False,
    min_support: float = 0.0,
    sources: ErrorSources = ASSUMED_ERRORS,
    widened: ErrorSources | None = None,
) -> tuple[Floats, Floats]:
    """Confidence and radius (infinite: no fix) of each photo, (n,) each, by a calibration fitted without its fold.

    groups: a name for each photo, such as its map; the photos of each name are one fold, instead of random ones.
    map_error, sources, min_support: as in `fit_outcomes`. widened: the radius is that of `Calibration.widen`.
    """
    order = np.random.default_rng(0).permutation(len(outcomes))
    parts = [set(order[number::folds].tolist()) for number in range(folds)]
    if groups is not None:
        parts = [{i for i, name in enumerate(groups) if name == each} for each in sorted(set(groups))]
    confidence, radius = np.zeros(len(outcomes)), np.full(len(outcomes), math.inf)
    for fold in parts:
        try:
            others = [o for i, o in enumerate(outcomes) if i not in fold]
            calibration = fit_outcomes(others, "fold", max_wrong, map_error, sources, min_support)
            if widened is not None:
                calibration = calibration.widen(widened)
        except SkyPartError as error:
            raise SkyPartError(f"too few photos to check the calibration with {len(parts)} folds: {error}") from error
        for index in fold:
            evidence = outcomes[index].evidence
            confidence[index] = calibration.confidence(evidence)
            if calibration.accepts(evidence):
                radius[index] = calibration.radius(evidence)
    return confidence, radius


def measure_quality(outcomes: Sequence[Outcome], confidence: Floats, radius: Floats) -> Quality:
    """Summarise cross-validated confidences and radii, (n,) each."""
    errors = np.array([outcome.error_m for outcome in outcomes])
    outside, accepted = np.isinf(errors), np.isfinite(radius)
    correct = errors <= CORRECT_WITHIN_M
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    gaps = [abs(confidence[bins == b].mean() - correct[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    inside = accepted & ~outside
    return Quality(
        photos=int((~outside).sum()),
        outside=int(outside.sum()),
        covered=_mean(errors[inside] <= radius[inside]),
        accepted=_mean(accepted[~outside]),
        wrong=_mean(~correct[accepted]),
        false_accepts=_mean(accepted[outside]),
        median_radius_m=float(np.median(radius[accepted])) if accepted.any() else math.nan,
        calibration_error=float(sum(gaps)),
    )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else math.nan


def store_calibration(locator: Locator, calibration: Calibration) -> None:
    """Store a calibration in the index."""
    index = locator.index
    manifest = IndexManifest.read(index.folder)
    index.manifest = replace(manifest, calibration=_to_stored(locator, calibration))
    index.manifest.write(index.folder)


def _to_stored(locator: Locator, calibration: Calibration) -> dict[str, Any]:
    """The content that is stored: the calibration and a digest of the maps it applies to."""
    return {**calibration.to_dict(), "maps": locator.index.manifest.maps_digest}


def run_calibration(locator: Locator, labelled: Path, outside: Sequence[Path], figure: Path) -> str:
    """Run `skypart calibrate`: fit, cross-validate, store and draw; returns the text for the terminal."""
    report_file = figure.with_suffix(".json")
    check_figure_path(figure)
    if figure.resolve().parent == locator.index.folder.resolve():
        raise SkyPartError(f"{figure}: is inside the index, whose files it could replace; choose a place outside it")
    for file in (figure, report_file):
        check_writable(file)
    strangers, photos = list_photos(outside) if outside else [], read_labelled(labelled)
    missing = next((path for path in strangers if not path.is_file()), None)
    if missing is not None:
        raise SkyPartError(f"{missing}: no such file; give photos from outside the map, or their folder")
    if len(photos) + len(strangers) < MIN_PHOTOS:
        raise SkyPartError(
            f"{len(photos) + len(strangers)} photos are too few to calibrate with; give {MIN_PHOTOS} or more"
        )
    if not strangers and all(photo.latitude is not None for photo in photos):
        warning = "all photos are of the map, but a calibration needs some that are located wrongly"
        log.warning("%s; give photos of other places too (--outside)", warning)
    outcomes = locate_labelled(locator, photos, strangers)
    calibration = fit_outcomes(outcomes, f"{len(outcomes)} photos of {labelled.name}", map_error=True)
    if math.isinf(min(calibration.refined.scale, calibration.voted.scale)):
        raise SkyPartError(
            f"too few of {len(outcomes)} photos are located reliably enough to estimate an error radius; nothing was "
            "stored: add photos of the map, or continue without a calibration"
        )
    store_calibration(locator, calibration)
    stored = {"calibration": _to_stored(locator, calibration)}
    try:
        confidence, radius = cross_validate(outcomes, map_error=True)
    except SkyPartError as error:
        write_text(report_file, json.dumps({"quality": None, **stored}, indent=1, allow_nan=False) + "\n")
        return f"calibrated on {len(outcomes)} photos, but the quality of the calibration is unknown: {error}"
    found = measure_quality(outcomes, confidence, radius)
    write_text(report_file, json.dumps({"quality": found.to_dict(), **stored}, indent=1, allow_nan=False) + "\n")
    save_figure(draw_calibration(np.array([each.error_m for each in outcomes]), confidence, radius), figure)
    lines = [
        f"calibrated on {found.photos} photos of the map and {found.outside} from outside; by cross-validation:",
        f"  with a fix                  {100 * found.accepted:.0f} % of the photos of the map",
        f"  truth inside the radius     {100 * found.covered:.0f} % of them (target: 95 %)",
        f"  wrong by more than {CORRECT_WITHIN_M:.0f} m    {100 * found.wrong:.1f} % of all fixes",
        f"  median 95 % radius          {found.median_radius_m:.0f} m",
        f"  calibration error           {100 * found.calibration_error:.1f} % of confidence",
    ]
    if found.outside:
        lines.append(f"  false accepts               {100 * found.false_accepts:.1f} % of the photos from outside")
    return "\n".join([*lines, f"diagrams: {figure}"])
