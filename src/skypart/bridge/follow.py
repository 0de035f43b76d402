"""`skypart track` with an index: its locator, its frame and its picture behind the filter."""

from dataclasses import replace
from pathlib import Path

from skypart.bridge.flight import MapPicture, run_track
from skypart.geo.geodesy import distance_m
from skypart.position.fix import Fix
from skypart.position.frame import Frame
from skypart.position.locate import Locator
from skypart.position.score import TrackScore
from skypart.position.track_options import TrackOptions


def follow(
    locator: Locator,
    flight: Path,
    output: Path,
    options: TrackOptions,
    rate_hz: float = 1.0,
    interval_s: float = 1.0,
    truth: Path | None = None,
    picture: Path | None = None,
) -> str:
    """Follow a flight over the index's maps and write it; the text for the terminal."""
    index = locator.index
    options = replace(options, area_km2=max(area_km2(locator), 0.01))
    background = MapPicture(index.bounds, lambda part: index.render(box=part)) if index.sources else None

    def locate(photo: Frame) -> Fix:
        return locator.locate(photo.image, name=photo.name, hints=photo.hints)

    result = run_track(
        flight,
        output,
        locate,
        options=options,
        frame=index.bounds.frame,
        rate_hz=rate_hz,
        interval_s=interval_s,
        truth=truth,
        picture=picture,
        background=background,
    )
    lines = [result.summary(), *(f"{name}: {score_text(score)}" for name, score in result.scores.items())]
    return "\n".join([*lines, *(f"wrote {path}" for path in result.written)])


def score_text(score: TrackScore) -> str:
    """A score in one line."""
    if score.median_m is None or score.p90_m is None or score.inside is None:
        return f"no position in {score.photos} photos"
    return (
        f"median error {score.median_m:.0f} m, 90 % below {score.p90_m:.0f} m, {100 * score.within_50_m:.0f} % within "
        f"50 m, {100 * score.without_fix:.0f} % without a position; "
        f"truth inside the 95 % radius of {100 * score.inside:.0f} % of the positions"
    )


def area_km2(locator: Locator) -> float:
    """Square kilometres of the box around the index's maps."""
    box = locator.index.bounds
    edges = distance_m(
        latitude=[box.south, box.south],
        longitude=[box.west, box.west],
        to_latitude=[box.north, box.south],
        to_longitude=[box.west, box.east],
    )
    return float(edges[0] * edges[1]) / 1e6
