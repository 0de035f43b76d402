"""Follow a flight: locate its photos one by one and filter their fixes into a track."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart import progress
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.fix import Fix
from skypart.position.frame import Frame
from skypart.position.frames import Frames
from skypart.position.score import raw_points
from skypart.position.smooth import smoothed
from skypart.position.track_filter import TrackFilter
from skypart.position.track_options import TrackOptions
from skypart.position.track_point import TrackPoint

Locate: TypeAlias = Callable[[Frame], Fix]
"""From a photo of the flight to a fix."""


def track(
    frames: Frames, locate: Locate, options: TrackOptions | None = None, frame: LocalFrame | None = None
) -> list[TrackPoint]:
    """The track of a flight, one point a photo.

    frame: metric frame of the map; without one, around the first place that is found.
    """
    options = options or TrackOptions()
    follower = TrackFilter(options, frame) if frame else None
    points: list[TrackPoint] = []
    errors: list[SkyPartError] = []
    with closing(progress.with_progress(frames, "locating", len(frames) or None)) as shown:
        for photo in shown:
            try:
                fix = locate(photo)
            except SkyPartError as error:  # as when a map on the network does not answer for once
                errors.append(error)
                fix = Fix(photo=photo.name, reason=str(error))
            if follower is None:
                follower = _around(fix, options)
            if follower is None:
                points.append(TrackPoint(time_s=photo.time_s, raw=fix))
            else:
                points.append(follower.step(photo.time_s, fix))
    if not points:
        raise SkyPartError(f"none of the {frames.skipped} frames could be read; copy the video or photos again")
    if len(errors) == len(points):
        raise errors[0]
    if follower is None or not options.smooth:
        return with_map_error(points)
    first = len(points) - len(follower.steps)
    points[first:] = smoothed(points[first:], follower.steps, options, follower.frame)
    return with_own_fixes(with_map_error(points), options.max_speed, follower.frame)


def with_map_error(points: Sequence[TrackPoint]) -> list[TrackPoint]:
    """Points whose radius holds the map's own error too, which no number of photos averages out."""
    error = max((point.raw.map_error_m for point in points if point.raw is not None), default=0.0)
    return [
        point if point.radius_m is None else replace(point, radius_m=math.hypot(point.radius_m, error))
        for point in points
    ]


def with_own_fixes(points: Sequence[TrackPoint], max_speed: float, frame: LocalFrame) -> list[TrackPoint]:
    """Points of which the lost ones keep their photo's own fix where a drone could have flown there.

    Photos far apart in time leave the filter too much room to confirm one by another. A fix stays out if it cannot be
    reached at `max_speed` (m/s) from the positions told before and after it, or from most of the fixes between them.
    """
    own, result = raw_points(points), list(points)
    told = [i for i, point in enumerate(points) if point.latitude is not None]
    for before, after in pairwise([-1, *told, len(points)]):
        found = [i for i in range(before + 1, after) if math.isfinite(own[i].radius_m or math.inf)]
        ends = [points[i] for i in (before, after) if 0 <= i < len(points)]
        for number in _flown([own[i] for i in found], ends, max_speed, frame) if found else ():
            result[found[number]] = own[found[number]]
    return result


def _flown(
    fixes: Sequence[TrackPoint], ends: Sequence[TrackPoint], max_speed: float, frame: LocalFrame
) -> Sequence[int]:
    """Numbers of the most fixes that can be flown one after the other between the ends; none if more cannot."""
    every = [*fixes, *ends]
    rows = [(point.latitude, point.longitude, point.time_s, point.radius_m) for point in every]
    latitude, longitude, times, radii = np.array(rows, dtype=np.float64).T
    places = np.stack(frame.to_metres(latitude=latitude, longitude=longitude), axis=1)

    def near(number: int) -> NDArray[np.bool_]:
        """(n,) which points can be flown to from one, or from which it can."""
        away = np.linalg.norm(places - places[number], axis=1)
        return np.asarray(away <= max_speed * np.abs(times - times[number]) + radii + radii[number])

    count = len(fixes)
    best, back = np.zeros(count), np.full(count, -1)
    for i, fix in enumerate(fixes):
        reached = near(i)
        if reached[count:].all():
            earlier = np.where(reached[:i], best[:i], 0.0)
            if earlier.any():
                back[i] = int(np.argmax(earlier))
            best[i] = 1.0 + fix.confidence / (count + 1) + (best[back[i]] if back[i] >= 0 else 0.0)
    chain: list[int] = []
    number = int(np.argmax(best)) if best.any() else -1
    while number >= 0:
        chain.append(number)
        number = int(back[number])
    return chain if len(chain) + len(ends) > count - len(chain) else ()


def _around(fix: Fix, options: TrackOptions) -> TrackFilter | None:
    """A filter around the first place that a fix names, None if it names none."""
    if fix.latitude is not None and fix.longitude is not None:
        return TrackFilter(options, LocalFrame(latitude=fix.latitude, longitude=fix.longitude))
    return None
