"""Follow a flight: locate its photos, filter their fixes into a track, then write, score and draw it."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart import progress
from skypart.atomic import check_writable
from skypart.drawing.files import check_figure_path, save_figure
from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.geo.geodesy import LocalFrame, distance_m
from skypart.position.camera import VERTICAL_TILT, hints_from_telemetry, merge_hints
from skypart.position.figures import MapBackground, draw_track
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.follow import FlightLocator
from skypart.position.frames import Frame, Frames, open_frames
from skypart.position.hypotheses import MeasuredVelocity
from skypart.position.locate import Locator
from skypart.position.photos import check_prior_order
from skypart.position.score import TrackScore, Truth, check_truth_covers, read_truth, score_track
from skypart.position.track import TrackOptions, TrackPoint, raw_track
from skypart.position.track_filter import TrackFilter, smooth_track
from skypart.telemetry.record import Telemetry

log = logging.getLogger(__name__)

Locate: TypeAlias = Callable[[Frame], Fix]
"""Locates one photo of a flight."""
Judged: TypeAlias = Callable[[TrackPoint], object]
"""Takes the filter's point of a photo, as soon as there is one."""
DRIVE_HZ = 5.0
"""Velocities used per second between photos."""
VELOCITY_NOISE, VELOCITY_DRIFT = 0.3, 0.3
"""m/s; standard deviations of a velocity of the flight data: of its noise, and of the error shared for a while."""
MIN_AREA_KM2 = 0.01
"""Area assumed for a map that is hardly larger than a point."""


class TrackOutput(Protocol):
    """Where a track is written, such as `skypart.bridge.formats.TrackFile`."""

    @property
    def path(self) -> Path:
        """The file."""

    def write(self, points: Sequence[TrackPoint], start: datetime | None) -> None:
        """Write a track. start: when the flight began."""


@dataclass(frozen=True, kw_only=True)
class Flight:
    """The result of following a flight.

    skipped: frames that could not be read. written: the files. scores: of the raw fixes and of the track, if the truth
    is known.
    """

    points: list[TrackPoint]
    skipped: int
    written: list[Path]
    scores: dict[str, TrackScore]

    def summary(self) -> str:
        """One line for the terminal."""
        states = [point.state for point in self.points]
        text = f"{len(states)} photos: {states.count('tracking')} with a fix, {states.count('coasting')} carried on"
        text += f", {states.count('lost')} without a position"
        return text + (f"; {self.skipped} frames could not be read" if self.skipped else "")

    def report(self) -> str:
        """Several lines for the terminal: summary, scores and files."""
        scores = [f"{name}: {score.summary()}" for name, score in self.scores.items()]
        return "\n".join([self.summary(), *scores, *(f"wrote {path}" for path in self.written)])


def follow_flight(
    locator: Locator,
    source: Path,
    output: TrackOutput,
    options: TrackOptions | None = None,
    *,
    rate_hz: float = 1.0,
    interval_s: float = 1.0,
    truth: Path | None = None,
    figure: Path | None = None,
    prior: Prior | None = None,
    telemetry: Telemetry | None = None,
    hints: Hints | None = None,
) -> Flight:
    """Follow a flight over the maps of an index and write its track; see `run_flight` for the other arguments.

    prior: where to search for every frame. telemetry: flight data, whose attitude and height become hints and whose
    velocity the filter uses. hints: about the camera; they take precedence over the photos' metadata.
    """
    index = locator.index
    check_prior_order(prior, index.bounds)
    options = replace(options or TrackOptions(), area_km2=max(area_km2(index.bounds), MIN_AREA_KM2))
    background = MapBackground(index.bounds, lambda part: index.render(box=part)) if index.sources else None

    flight = FlightLocator(locator)

    def locate(photo: Frame) -> Fix:
        known = merge_hints(hints or Hints(), photo.hints or Hints())
        if telemetry is not None:
            known = merge_hints(known, hints_from_telemetry(telemetry.at(photo.time_s)))
        return flight.locate(photo, known, prior)

    return run_flight(
        source,
        output,
        locate,
        options=options,
        frame=index.bounds.frame,
        rate_hz=rate_hz,
        interval_s=interval_s,
        truth=truth,
        figure=figure,
        background=background,
        telemetry=telemetry,
        judged=flight.judge,
    )


def run_flight(
    source: Path,
    output: TrackOutput,
    locate: Locate,
    *,
    options: TrackOptions | None = None,
    frame: LocalFrame | None = None,
    rate_hz: float = 1.0,
    interval_s: float = 1.0,
    truth: Path | None = None,
    figure: Path | None = None,
    background: MapBackground | None = None,
    telemetry: Telemetry | None = None,
    judged: Judged | None = None,
) -> Flight:
    """Follow the flight of `source`, a video or a folder of photos; write its track, and a figure over `background`.

    frame: metric frame of the map. rate_hz: frames per second that are used of a video. interval_s: seconds between
    photos without a time. truth: a CSV of true positions to score the track against. Invalid arguments are reported
    before the first photo is located.
    """
    if figure is not None:
        check_figure_path(figure)
        check_writable(figure)
        if background is None:
            raise SkyPartError(f"{figure}: drawing the track needs the index's map; put it back in its place")
    frames = open_frames(source, rate_hz=rate_hz, interval_s=interval_s)
    known: Truth | None = None
    if truth is not None:
        known = read_truth(truth, frames.times, frames.fps)
        check_truth_covers(truth, known, frames, rate_hz)
    if frames.note:
        log.warning("%s", frames.note)
    points = track_frames(frames, locate, options, frame, telemetry, judged)
    output.write(points, frames.start)
    written, scores = [output.path], {}
    if figure is not None and background is not None:
        title = f"{source.name}: {len(points)} {'photos' if source.is_dir() else 'frames'}"
        save_figure(draw_track(background, points, known, title), figure)
        written.append(figure)
    if known is not None:
        scores = {"raw fixes": score_track(raw_track(points), known), "track": score_track(points, known)}
    return Flight(points=points, skipped=frames.skipped, written=written, scores=scores)


def area_km2(bounds: Bounds) -> float:
    """Area of a box in square kilometres."""
    edges = distance_m(
        latitude=[bounds.south, bounds.south],
        longitude=[bounds.west, bounds.west],
        to_latitude=[bounds.north, bounds.south],
        to_longitude=[bounds.west, bounds.east],
    )
    return float(edges[0] * edges[1]) / 1e6


def track_frames(
    frames: Frames,
    locate: Locate,
    options: TrackOptions | None = None,
    frame: LocalFrame | None = None,
    telemetry: Telemetry | None = None,
    judged: Judged | None = None,
) -> list[TrackPoint]:
    """The track of a flight, one point per photo.

    frame: metric frame of the map; by default around the first fix. telemetry: its velocity moves the track between
    photos, if it is that of what the track follows: of the drone, or of the ground below a camera that looks down.
    judged: is told of every photo what the filter made of it, before the next one is located.
    """
    options = options or TrackOptions()
    track_filter = TrackFilter(options, frame) if frame else None
    points: list[TrackPoint] = []
    errors: list[SkyPartError] = []
    with closing(progress.with_progress(frames, "locating", len(frames) or None)) as shown:
        for photo in shown:
            try:
                fix = locate(photo)
            except SkyPartError as error:  # for example, a map on the network did not respond
                errors.append(error)
                fix = Fix(photo=photo.name, reason=str(error))
            if track_filter is None and fix.latitude is not None and fix.longitude is not None:
                track_filter = TrackFilter(options, LocalFrame(latitude=fix.latitude, longitude=fix.longitude))
            if track_filter is None:
                points.append(TrackPoint(time_s=photo.time_s, raw=fix))
            else:
                points.append(_step(track_filter, photo, fix, telemetry))
            if judged is not None:
                judged(points[-1])
    if not points:
        raise SkyPartError(f"none of the {frames.skipped} frames could be read; copy the video or photos again")
    if len(errors) == len(points):
        raise errors[0]
    if track_filter is None or not options.smooth:
        return add_map_error(points)
    first = len(points) - sum(step.photo for step in track_filter.steps)
    points[first:] = smooth_track(points[first:], track_filter.steps, options, track_filter.frame)
    return restore_raw_fixes(add_map_error(points), options.max_speed, track_filter.frame)


def _step(track_filter: TrackFilter, photo: Frame, fix: Fix, telemetry: Telemetry | None) -> TrackPoint:
    """The filter's step at a photo, after the velocities that were measured since the last one."""
    last, time_s, hints = track_filter.time_s, photo.time_s, photo.hints or Hints()
    if telemetry is None or last is None:
        return track_filter.step(time_s, fix)
    count = max(1, math.ceil((time_s - last) * DRIVE_HZ))
    for number in range(1, count):
        moment = last + (time_s - last) * number / count
        velocity = _velocity_at(telemetry, moment, track_filter.options.follow)
        if velocity is not None:
            track_filter.drive(moment, velocity)
    hints = merge_hints(hints, hints_from_telemetry(telemetry.at(time_s)))
    point = track_filter.step(time_s, fix, _velocity_at(telemetry, time_s, track_filter.options.follow), hints)
    if join_by_fixes(track_filter, telemetry):
        log.warning("%s", clock_note(telemetry.offset_s))
    return point


def clock_note(offset_s: float) -> str:
    """What is said after the flight data's clock was corrected."""
    return f"the fixes show another clock of the flight data; it was corrected to --offset {offset_s:.1f}"


def join_by_fixes(track_filter: TrackFilter, telemetry: Telemetry) -> bool:
    """Correct the flight data's clock if fixes have shown how far it is off; whether that was done.

    Live data that come late cannot be corrected: those of now are not there yet.
    """
    found = track_filter.clock_offset_s
    if found is None or (found > 0.0 and telemetry.live):
        return False
    telemetry.offset_s += found
    track_filter.join_clock(found)
    return True


def _velocity_at(telemetry: Telemetry, time_s: float, follow: str) -> MeasuredVelocity | None:
    sample = telemetry.at(time_s)
    if sample.velocity_east is None or sample.velocity_north is None:
        return None
    if follow == "ground" and (sample.tilt_deg is None or sample.tilt_deg < VERTICAL_TILT - 4.0):
        return None  # the ground at the centre of an oblique photo moves otherwise than the drone
    velocity = np.array([sample.velocity_east, sample.velocity_north])
    return MeasuredVelocity(velocity, VELOCITY_NOISE, VELOCITY_DRIFT, own_clock=True)


def add_map_error(points: Sequence[TrackPoint]) -> list[TrackPoint]:
    """Points whose radius includes the map's own error, which no number of photos averages out."""
    error = max((point.raw.map_error_m for point in points if point.raw is not None), default=0.0)
    return [
        point if point.radius_m is None else replace(point, radius_m=math.hypot(point.radius_m, error))
        for point in points
    ]


def restore_raw_fixes(points: Sequence[TrackPoint], max_speed: float, frame: LocalFrame) -> list[TrackPoint]:
    """Give lost points their photo's own fix, where a drone could have flown there.

    If photos are far apart in time, the filter cannot confirm one by another. A fix is left out if it cannot be reached
    at `max_speed` (m/s) from the positions reported before and after it, or from most of the fixes between them.
    """
    raw, result = raw_track(points), list(points)
    reported = [i for i, point in enumerate(points) if point.latitude is not None]
    for before, after in pairwise([-1, *reported, len(points)]):
        fixed = [i for i in range(before + 1, after) if math.isfinite(raw[i].radius_m or math.inf)]
        ends = [points[i] for i in (before, after) if 0 <= i < len(points)]
        for number in _reachable_chain([raw[i] for i in fixed], ends, max_speed, frame) if fixed else ():
            result[fixed[number]] = raw[fixed[number]]
    return result


def _reachable_chain(
    fixes: Sequence[TrackPoint], ends: Sequence[TrackPoint], max_speed: float, frame: LocalFrame
) -> Sequence[int]:
    """Indices of the longest chain of fixes that can be flown one after the other between the ends.

    Empty if the fixes outside the chain outnumber the chain and the ends.
    """
    rows = [(point.latitude, point.longitude, point.time_s, point.radius_m) for point in (*fixes, *ends)]
    latitude, longitude, times, radii = np.array(rows, dtype=np.float64).T
    places = np.stack(frame.to_metres(latitude=latitude, longitude=longitude), axis=1)

    def reachable_from(number: int) -> NDArray[np.bool_]:
        """(n,) which points a drone can fly to, or from, in the time between."""
        distance = np.linalg.norm(places - places[number], axis=1)
        return np.asarray(distance <= max_speed * np.abs(times - times[number]) + radii + radii[number])

    count = len(fixes)
    best, previous = np.zeros(count), np.full(count, -1)
    for i, fix in enumerate(fixes):
        reachable = reachable_from(i)
        if reachable[count:].all():
            earlier = np.where(reachable[:i], best[:i], 0.0)
            if earlier.any():
                previous[i] = int(np.argmax(earlier))
            best[i] = 1.0 + fix.confidence / (count + 1) + (best[previous[i]] if previous[i] >= 0 else 0.0)
    chain: list[int] = []
    number = int(np.argmax(best)) if best.any() else -1
    while number >= 0:
        chain.append(number)
        number = int(previous[number])
    return chain if len(chain) + len(ends) > count - len(chain) else ()
