"""How far a track lies from the truth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.geodesy import FloatArray, distance_m, wrap_longitude
from skypart.position.frames import Frames
from skypart.position.track_point import TrackPoint
from skypart.position.truth import Truth

WITHIN_M = 50.0


@dataclass(frozen=True, kw_only=True)
class TrackScore:
    """How far a track lies from the truth.

    photos: how many were compared; left_out: those for whose time the truth is not known. median_m, p90_m: error that
    half and 90 % of the told positions stay below, None where there is none. within_50_m: share of all compared photos
    with a position at most 50 m off. without_fix: share without a position. inside: share of the told positions that
    lie within their own 95 % radius.
    """

    photos: int
    left_out: int
    median_m: float | None
    p90_m: float | None
    within_50_m: float
    without_fix: float
    inside: float | None


def score_track(points: Sequence[TrackPoint], truth: Truth, longest_gap_s: float = 10.0) -> TrackScore:
    """Compare points with the truth, straight lines between its known positions.

    Points before its first and after its last position, or inside a gap longer than `longest_gap_s`, are left out.
    """
    seconds = np.array([point.time_s for point in points], dtype=np.float64)
    known = _known(seconds, truth, longest_gap_s)
    east = np.unwrap(truth.longitude, period=360.0)
    latitude, longitude = np.interp(seconds, truth.time_s, truth.latitude), np.interp(seconds, truth.time_s, east)
    errors, radii = [], []
    for i in np.flatnonzero(known).tolist():
        point = points[i]
        if point.latitude is not None and point.longitude is not None:
            metres = distance_m(
                latitude=latitude[i],
                longitude=float(wrap_longitude(longitude[i])),
                to_latitude=point.latitude,
                to_longitude=point.longitude,
            )
            errors.append(float(metres))
            radii.append(point.radius_m or 0.0)
    count, told = int(known.sum()), len(errors)
    if count == 0:
        raise SkyPartError("the truth covers none of the flight's photos; check its times against the video")
    error = np.array(errors)
    return TrackScore(
        photos=count,
        left_out=len(points) - count,
        median_m=float(np.median(error)) if told else None,
        p90_m=float(np.quantile(error, 0.9)) if told else None,
        within_50_m=float((error <= WITHIN_M).sum()) / count,
        without_fix=1.0 - told / count,
        inside=float((error <= np.array(radii)).mean()) if told else None,
    )


def check_truth(path: Path, truth: Truth, frames: Frames, rate_hz: float, longest_gap_s: float = 10.0) -> None:
    """Refuse the truth of `path` if it cannot cover any photo of a flight; to be asked before long work begins.

    rate_hz: frames a second that are taken from a video. Of a video only the length is known, as its container tells.
    """
    begin, end = float(truth.time_s[0]), float(truth.time_s[-1])
    if frames.times:
        seconds = np.array(sorted(frames.times.values()))
        covered, last = bool(_known(seconds, truth, longest_gap_s).any()), float(seconds[-1])
    elif len(frames) and frames.fps:
        last = len(frames) / min(rate_hz, frames.fps)
        covered = begin <= last + longest_gap_s and end >= 0.0
    else:
        return
    if not covered:
        raise SkyPartError(
            f"{path}: covers none of the flight's photos, with times from {begin:.1f} to {end:.1f} s where the flight "
            f"goes from 0 to {last:.1f} s; count its times from the start of the flight"
        )


def raw_points(points: Sequence[TrackPoint]) -> list[TrackPoint]:
    """The photos' own fixes in the form of a track, to be scored beside it."""
    bare = [TrackPoint(time_s=point.time_s, raw=point.raw) for point in points]
    return [
        replace(
            point,
            latitude=point.raw.latitude,
            longitude=point.raw.longitude,
            radius_m=point.raw.radius_m,
            confidence=point.raw.confidence,
            state="tracking",
        )
        if point.raw is not None and point.raw.found
        else point
        for point in bare
    ]


def _known(seconds: FloatArray, truth: Truth, longest_gap_s: float) -> NDArray[np.bool_]:
    """(n,) whether the truth is known at each time."""
    after = np.clip(np.searchsorted(truth.time_s, seconds), 0, len(truth.time_s) - 1)
    before = np.maximum(after - 1, 0)
    to_before, to_after = np.abs(seconds - truth.time_s[before]), np.abs(truth.time_s[after] - seconds)
    near = np.minimum(to_before, to_after) < 0.02
    inside = (seconds >= truth.time_s[0]) & (seconds <= truth.time_s[-1])
    return np.asarray(near | (inside & (to_before + to_after <= longest_gap_s)))
