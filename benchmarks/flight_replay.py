"""Fly the rendered flights of benchmarks/flight_rendered.py again, as `skypart fly` does, with the fixes it kept."""

import math
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from benchmarks.flight_frames import ALTITUDE, EXTENT, FLIGHTS, MAP_EXTENT, STYLES, TILT, RenderedFlight
from benchmarks.flight_rendered import LENS, SLOW_S, read_rows, telemetry_of, to_fix
from benchmarks.flight_simulation import RATE_HZ, Floats
from numpy.typing import NDArray
from pyproj import Transformer

from skypart.geo.geodesy import LocalFrame, offset
from skypart.images.decode import RgbImage, read_rgb
from skypart.position.confidence import default_calibration
from skypart.position.fix import Fix
from skypart.position.live import FLYING, FlyOptions, LiveTracker, Report
from skypart.worlds.procedural import EPSG, ORIGIN

Velocity = Literal["none", "flow", "odometry"]
ANSWER_S = 1.0
"""Time that locating a frame takes in a replay."""
AREA_KM2 = len(STYLES) * (MAP_EXTENT / 1000.0) ** 2
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Replay:
    """What was said at each step of the flights, (n,): metres of error and 95 % radius, NaN while lost.

    fix_error: metres between the position of a located frame and the truth on the map, without the map's error. Steps
    are RATE_HZ a second.
    """

    error: Floats
    radius: Floats
    protection: Floats
    state: NDArray[np.str_]
    source: NDArray[np.str_]
    inside: NDArray[np.bool_]
    outage: NDArray[np.bool_]
    turning: NDArray[np.bool_]
    located: NDArray[np.bool_]
    found: NDArray[np.bool_]
    fix_error: Floats
    guess_error: Floats
    lost_after: list[float]
    ask_after: list[float]

    @property
    def said(self) -> NDArray[np.bool_]:
        """Whether there was a position."""
        return np.isfinite(self.error)


@cache
def _to_degrees() -> Transformer:
    return Transformer.from_crs(f"EPSG:{EPSG}", "EPSG:4326", always_xy=True)


def truth_of(flight: RenderedFlight) -> tuple[LocalFrame, Floats]:
    """The metric frame of a flight's map, around its middle, and the drone's (n, 2) metres in it."""
    east = ORIGIN[0] + 2 * EXTENT * flight.number + EXTENT / 2 + flight.path.places[:, 0]
    north = ORIGIN[1] - EXTENT / 2 + flight.path.places[:, 1]
    longitude, latitude = _to_degrees().transform(east, north)
    x, y = ORIGIN[0] + 2 * EXTENT * flight.number + EXTENT / 2, ORIGIN[1] - EXTENT / 2
    middle = _to_degrees().transform(x, y)
    frame = LocalFrame(latitude=float(middle[1]), longitude=float(middle[0]))
    metres = frame.to_metres(latitude=latitude, longitude=longitude)
    return frame, np.stack([np.asarray(metres.x), np.asarray(metres.y)], axis=1)


def map_shift(number: int) -> Floats:
    """(2,) metres by which the map of a flight is wrong, as real maps are.

    Their lengths are spread evenly over a law of which 95 % lie within the map error that the calibration assumes.
    """
    deviation = default_calibration().sources.map_m / math.sqrt(-2.0 * math.log(0.05))
    length = deviation * math.sqrt(-2.0 * math.log(1.0 - (number + 0.5) / len(FLIGHTS)))
    angle = number * math.pi * (3.0 - math.sqrt(5.0))
    return length * np.array([math.cos(angle), math.sin(angle)])


def sight_errors(flight: RenderedFlight, count: int) -> Floats:
    """(count,) metres by which each step's position is too far ahead, from a wrong tilt and from unknown relief.

    Their 95 % limits are those that the calibration assumes. The tilt is wrong for a whole flight, spread evenly over
    its law; the relief changes along the path. Errors that the flight data have anyway come on top.
    """
    assumed, tilt = default_calibration().sources, math.radians(TILT)
    quantile = ((5 * FLIGHTS.index(flight) + 2) % len(FLIGHTS) + 0.5) / len(FLIGHTS)
    turned = math.radians(assumed.camera_deg / 2.0) * NormalDist().inv_cdf(quantile)
    rng = np.random.default_rng([17, FLIGHTS.index(flight)])
    kept, relief, now = math.exp(-1.0 / RATE_HZ / SLOW_S), np.empty(count), rng.normal()
    for step in range(count):
        relief[step] = now
        now = kept * now + math.sqrt(1.0 - kept**2) * rng.normal()
    return relief * assumed.height_m / 2.0 / math.tan(tilt) + ALTITUDE * turned / math.sin(tilt) ** 2


def replay_flight(
    work: Path,
    fixes: str,
    flight: RenderedFlight,
    velocity: Velocity,
    *,
    exact_map: bool = False,
    window: bool = True,
) -> Replay:
    """Fly one flight. exact_map: without errors of map and sight, and no allowance for the map. window: align photos
    together.
    """
    rows = {int(row["step"]): row for row in read_rows(work, fixes, flight)}
    if not rows:
        raise ValueError(f"{flight.name}: no fixes; run benchmarks/flight_rendered.py")
    frame, places = truth_of(flight)
    count = max(rows) + 1
    track = replace(FLYING, area_km2=AREA_KM2, follow="drone", window_s=FLYING.window_s if window else 0.0)
    half = MAP_EXTENT / 2

    def inside(latitude: float, longitude: float) -> bool:
        metres = frame.to_metres(latitude=latitude, longitude=longitude)
        return max(abs(float(metres.x)), abs(float(metres.y))) <= half

    options = FlyOptions(flow=velocity == "flow", hints=LENS)
    tracker = LiveTracker(options, track, frame, inside, telemetry_of(flight, velocity))
    ahead = np.zeros(count) if exact_map else sight_errors(flight, count)
    waiting: deque[tuple[float, float, Fix]] = deque()
    reports: list[Report] = []
    for step in range(count):
        now = step / RATE_HZ
        while waiting and waiting[0][0] <= now:
            _, captured, fix = waiting.popleft()
            tracker.locate_done(captured, fix)
        tracker.look(now, _frame(work, flight, step) if velocity == "flow" else None)
        if step in rows:
            fix = _exact(to_fix(rows[step])) if exact_map else _moved(to_fix(rows[step]), flight, step, ahead[step])
            waiting.append((now + ANSWER_S, now, fix))
        reports.append(tracker.report(now, BEGIN))
    shift = np.zeros(2) if exact_map else map_shift(FLIGHTS.index(flight))
    return _judge(flight, frame, places[:count], shift, reports, rows)


def _frame(work: Path, flight: RenderedFlight, step: int) -> RgbImage | None:
    file = flight.frame_file(work, step)
    return read_rgb(file) if file.is_file() else None


def _exact(fix: Fix) -> Fix:
    """A fix that allows for no error of the map."""
    if fix.radius_m is None:
        return fix
    return replace(fix, radius_m=math.sqrt(max(fix.radius_m**2 - fix.map_error_m**2, 0.0)), map_error_m=0.0)


def _moved(fix: Fix, flight: RenderedFlight, step: int, ahead: float) -> Fix:
    """A fix whose drone is `ahead` metres further along its heading."""
    if fix.drone_latitude is None or fix.drone_longitude is None:
        return fix
    moved = offset(
        latitude=fix.drone_latitude,
        longitude=fix.drone_longitude,
        bearing=float(flight.headings[step]),
        metres=float(ahead),
    )
    return replace(fix, drone_latitude=float(moved.latitude), drone_longitude=float(moved.longitude))


def _judge(
    flight: RenderedFlight,
    frame: LocalFrame,
    places: Floats,
    shift: Floats,
    reports: list[Report],
    rows: dict[int, dict[str, Any]],
) -> Replay:
    """Compare what was said with the truth, and fixes with the map. shift: (2,) metres from the map to the truth."""
    count, path = len(places), flight.path

    def away(latitude: float | None, longitude: float | None, place: Floats) -> float:
        if latitude is None or longitude is None:
            return math.nan
        metres = frame.to_metres(latitude=latitude, longitude=longitude)
        return math.dist((float(metres.x), float(metres.y)), place)

    points = [report.point for report in reports]
    fix_error, guess_error = np.full(count, np.nan), np.full(count, np.nan)
    for step, row in rows.items():
        fix_error[step] = away(row["drone_latitude"], row["drone_longitude"], places[step])
        if row["guess"] is not None:
            target = _ground(flight, frame, step)
            metres = frame.to_metres(latitude=row["guess"][0], longitude=row["guess"][1])
            guess_error[step] = math.dist((float(metres.x), float(metres.y)), target)
    state = np.array([point.state for point in points])
    inside = path.inside[:count]
    lost, ask = [], []
    for start in (np.flatnonzero(np.diff(inside.astype(int)) == -1) + 1).tolist():
        later = [step for step in range(start, count) if state[step] == "lost"]
        back = np.flatnonzero(inside[start:])
        if (int(back[0]) if len(back) else count - start) / RATE_HZ <= 5.0:
            continue
        lost.append((later[0] - start) / RATE_HZ if later else math.inf)
        asked = [step for step in range(start, count) if reports[step].ask_operator]
        ask.append((asked[0] - start) / RATE_HZ if asked else math.inf)
    return Replay(
        error=np.array(
            [away(each.latitude, each.longitude, place) for each, place in zip(points, places + shift, strict=True)]
        ),
        radius=np.array([math.nan if point.radius_m is None else point.radius_m for point in points]),
        protection=np.array([math.inf if point.protection_m is None else point.protection_m for point in points]),
        state=state,
        source=np.array([point.source for point in points]),
        inside=inside,
        outage=path.outage[:count],
        turning=path.turning[:count],
        located=np.array([step in rows for step in range(count)]),
        found=np.array([step in rows and rows[step]["latitude"] is not None for step in range(count)]),
        fix_error=fix_error,
        guess_error=guess_error,
        lost_after=lost,
        ask_after=ask,
    )


def _ground(flight: RenderedFlight, frame: LocalFrame, step: int) -> tuple[float, float]:
    """The ground at the photo's centre, metres of the flight's frame."""
    x, y = flight.pose(step).target
    place = _to_degrees().transform(ORIGIN[0] + 2 * EXTENT * flight.number + x, ORIGIN[1] + y)
    metres = frame.to_metres(latitude=place[1], longitude=place[0])
    return float(metres.x), float(metres.y)


def replay_all(
    work: Path, fixes: str, velocity: Velocity, *, exact_map: bool = False, window: bool = True
) -> list[Replay]:
    """All flights that have fixes."""
    known = [flight for flight in FLIGHTS if read_rows(work, fixes, flight)]
    return [replay_flight(work, fixes, flight, velocity, exact_map=exact_map, window=window) for flight in known]
