"""The true positions of a flight, and how far a track lies from them."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.geo.geodesy import FloatArray, distance_m, wrap_longitude
from skypart.position.frames import Frames
from skypart.position.labelled import FILE_COLUMNS, LATITUDE_COLUMNS, LONGITUDE_COLUMNS
from skypart.position.track import TrackPoint

TIME_COLUMNS = ("time_s", "time", "seconds", "t")
FRAME_COLUMNS = ("frame", "video_frame", "frame_number")
WITHIN_M = 50.0
MAX_GAP_S = 10.0
"""Gap between true positions, in seconds, over which they are interpolated."""
SAME_TIME_S = 0.02
"""A true position this close in time needs no interpolation."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """True positions of a flight, (n,) each: seconds from its start, rising, and WGS 84 degrees."""

    time_s: FloatArray
    latitude: FloatArray
    longitude: FloatArray


@dataclass(frozen=True, kw_only=True)
class TrackScore:
    """How far a track lies from the truth.

    photos: how many were compared. left_out: photos at times without a true position. median_m, p90_m: median and 90 %
    quantile of the errors of reported positions; None if there are none. within_50_m: share of all compared photos with
    a position at most 50 m off. without_fix: share without a position. inside: share of the reported positions whose
    95 % radius holds the truth.
    """

    photos: int
    left_out: int
    median_m: float | None
    p90_m: float | None
    within_50_m: float
    without_fix: float
    inside: float | None

    def summary(self) -> str:
        """One line for the terminal."""
        if self.median_m is None or self.p90_m is None or self.inside is None:
            return f"no position in {self.photos} photos"
        return (
            f"median error {self.median_m:.0f} m, 90 % below {self.p90_m:.0f} m, {100 * self.within_50_m:.0f} % within "
            f"50 m, {100 * self.without_fix:.0f} % without a position; "
            f"truth inside the 95 % radius of {100 * self.inside:.0f} % of the positions"
        )


def read_truth(path: Path, times: Mapping[str, float] | None = None, fps: float | None = None) -> Truth:
    """Read a CSV with latitude, longitude and one of time_s, frame (needs fps), file (needs times by file name)."""
    if not path.is_file():
        raise SkyPartError(f"{path}: no such file; give a CSV with columns time_s, latitude, longitude")
    by_name = {**{Path(name).name: seconds for name, seconds in (times or {}).items()}, **(times or {})}
    rows: list[tuple[float, float, float]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for number, raw in enumerate(csv.DictReader(stream), start=2):
                row = {(key or "").strip().lower(): value or "" for key, value in raw.items() if isinstance(value, str)}
                rows.append(_parse_row(path, number, row, by_name, fps))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{path}: not a CSV file ({error}); save it as CSV in UTF-8") from error
    if not rows:
        raise SkyPartError(f"{path}: lists no position; give a CSV with columns time_s, latitude, longitude")
    table = np.array(sorted(row for row in rows if math.isfinite(row[0])))
    if len(table) == 0:
        raise SkyPartError(f"{path}: lists none of the flight's photos; correct its column file")
    _, first = np.unique(table[:, 0], return_index=True)
    return Truth(time_s=table[first, 0], latitude=table[first, 1], longitude=table[first, 2])


def _parse_row(
    path: Path, number: int, row: Mapping[str, str], by_name: Mapping[str, float], fps: float | None
) -> tuple[float, float, float]:
    """Seconds, latitude and longitude of a row; infinite seconds for a photo that is not part of the flight."""

    def column(names: Sequence[str]) -> str | None:
        return next((row[name].strip() for name in names if row.get(name, "").strip()), None)

    time, frame, file = column(TIME_COLUMNS), column(FRAME_COLUMNS), column(FILE_COLUMNS)
    latitude, longitude = column(LATITUDE_COLUMNS), column(LONGITUDE_COLUMNS)
    try:
        if latitude is None or longitude is None:
            raise ValueError("no latitude or longitude")
        north, east = float(latitude), float(longitude)
        if not (abs(north) <= 90 and abs(east) <= 180):
            raise ValueError(f"{north}, {east} is not on the earth")
        if time is not None:
            seconds = float(time)
        elif frame is not None and fps:
            seconds = float(frame) / fps
        elif file is not None:
            seconds = by_name.get(file, by_name.get(Path(file).name, math.inf))
        else:
            raise ValueError("none of time_s, frame (of a video), file")
    except ValueError as error:
        raise SkyPartError(f"{path}, line {number}: {error}; give time_s, latitude, longitude") from error
    return seconds, north, east


def score_track(points: Sequence[TrackPoint], truth: Truth, max_gap_s: float = MAX_GAP_S) -> TrackScore:
    """Compare a track with the truth, which is interpolated linearly between known positions.

    Points before its first and after its last position, or inside a gap longer than `max_gap_s`, are left out.
    """
    seconds = np.array([point.time_s for point in points], dtype=np.float64)
    known = _is_known(seconds, truth, max_gap_s)
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
    count, reported = int(known.sum()), len(errors)
    if count == 0:
        raise SkyPartError("the truth covers none of the flight's photos; check its times against the video")
    error = np.array(errors)
    return TrackScore(
        photos=count,
        left_out=len(points) - count,
        median_m=float(np.median(error)) if reported else None,
        p90_m=float(np.quantile(error, 0.9)) if reported else None,
        within_50_m=float((error <= WITHIN_M).sum()) / count,
        without_fix=1.0 - reported / count,
        inside=float((error <= np.array(radii)).mean()) if reported else None,
    )


def check_truth_covers(path: Path, truth: Truth, frames: Frames, rate_hz: float, max_gap_s: float = MAX_GAP_S) -> None:
    """Raise if the truth read from `path` cannot cover any photo of a flight. Call this before long work.

    rate_hz: frames per second that are used of a video. Of a video only the length that its container reports is known.
    """
    begin, end = float(truth.time_s[0]), float(truth.time_s[-1])
    if frames.times:
        seconds = np.array(sorted(frames.times.values()))
        covered, last = bool(_is_known(seconds, truth, max_gap_s).any()), float(seconds[-1])
    elif len(frames) and frames.fps:
        last = len(frames) / min(rate_hz, frames.fps)
        covered = begin <= last + max_gap_s and end >= 0.0
    else:
        return
    if not covered:
        raise SkyPartError(
            f"{path}: covers none of the flight's photos: its times run from {begin:.1f} to {end:.1f} s, the flight "
            f"from 0 to {last:.1f} s; count its times from the start of the flight"
        )


def _is_known(seconds: FloatArray, truth: Truth, max_gap_s: float) -> NDArray[np.bool_]:
    """(n,) whether the true position is known at each time."""
    after = np.clip(np.searchsorted(truth.time_s, seconds), 0, len(truth.time_s) - 1)
    before = np.maximum(after - 1, 0)
    to_before, to_after = np.abs(seconds - truth.time_s[before]), np.abs(truth.time_s[after] - seconds)
    near = np.minimum(to_before, to_after) < SAME_TIME_S
    inside = (seconds >= truth.time_s[0]) & (seconds <= truth.time_s[-1])
    return np.asarray(near | (inside & (to_before + to_after <= max_gap_s)))
