"""Follow a flight: locate its photos one by one and filter their fixes into a track."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

from skypart import progress
from skypart.errors import SkyPartError
from skypart.maps.local_frame import LocalFrame
from skypart.position.fix import Fix, Prior
from skypart.position.frame import Frame
from skypart.position.frames import Frames
from skypart.position.smooth import smoothed
from skypart.position.track_filter import TrackFilter
from skypart.position.track_options import TrackOptions
from skypart.position.track_point import TrackPoint

Locate: TypeAlias = Callable[[Frame, Prior | None], Fix]
"""From a photo of the flight and a prior to a fix."""
_FREE_EVERY = 4
"""With `use_prior`, every such photo is still searched for on the whole map, or a wrong track would never end."""


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
    with closing(progress.track(frames, "locating", len(frames) or None)) as shown:
        for index, photo in enumerate(shown):
            prior = follower.prior(photo.time_s) if follower and options.use_prior and index % _FREE_EVERY else None
            try:
                fix = locate(photo, prior)
            except SkyPartError as error:  # as when a map on the network does not answer for once
                errors.append(error)
                fix = Fix(photo=photo.name, reason=str(error))
            if follower is None:
                follower = _around(fix, options)
            if follower is None:
                points.append(TrackPoint(time_s=photo.time_s, raw=fix))
            else:
                searched = math.pi * prior.radius_m**2 if prior else None
                points.append(follower.step(photo.time_s, fix, searched))
    if not points:
        raise SkyPartError(f"none of the {frames.skipped} frames could be read; copy the video or photos again")
    if len(errors) == len(points):
        raise errors[0]
    if follower is not None and options.smooth:
        first = len(points) - len(follower.steps)
        points[first:] = smoothed(points[first:], follower.steps, options, follower.frame)
    return with_map_error(points)


def with_map_error(points: Sequence[TrackPoint]) -> list[TrackPoint]:
    """Points whose radius holds the map's own error too, which no number of photos averages out."""
    error = max((point.raw.map_error_m for point in points if point.raw is not None), default=0.0)
    return [
        point if point.radius_m is None else replace(point, radius_m=math.hypot(point.radius_m, error))
        for point in points
    ]


def _around(fix: Fix, options: TrackOptions) -> TrackFilter | None:
    """A filter around the first place that a fix names, None if it names none."""
    if fix.latitude is not None and fix.longitude is not None:
        return TrackFilter(options, LocalFrame(latitude=fix.latitude, longitude=fix.longitude))
    if options.doubtful and fix.peaks:
        return TrackFilter(options, LocalFrame(latitude=fix.peaks[0].latitude, longitude=fix.peaks[0].longitude))
    return None
