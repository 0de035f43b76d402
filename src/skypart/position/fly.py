"""`skypart fly` on an index: join its locator, the flight data and the terrain into a live tracker."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from skypart.errors import SkyPartError
from skypart.geo.footprint import Bounds
from skypart.position.fix import Fix, Hints, Place, Prior
from skypart.position.flight import MIN_AREA_KM2, area_km2
from skypart.position.flow import FlowTracker
from skypart.position.follow import FlightLocator
from skypart.position.frames import Frame, open_frames
from skypart.position.live import FLYING, FlyOptions, LiveTracker, LocateLive
from skypart.position.locate import Locator
from skypart.position.terrain import Terrain, add_terrain
from skypart.position.track_filter import Inside
from skypart.progress import with_progress
from skypart.telemetry.clocks import estimate_offset, turn_rate
from skypart.telemetry.mavlink import LiveTelemetry, wait_for_message, wait_for_values
from skypart.telemetry.record import Telemetry

Follow = Literal["auto", "ground", "drone"]
WAIT_FOR_LINK_S = 5.0
"""How long a live link may take until its first message."""
SETTLE_S = 3.0
"""How long the camera's tilt and the height may take to come after that."""
FLOW_HZ = 5.0
"""Frames per second that are compared to join clocks."""


def is_inside(boxes: Sequence[Bounds]) -> Inside:
    """Whether a place lies in one of these boxes."""

    def inside(latitude: float, longitude: float) -> bool:
        return any(
            box.south <= latitude <= box.north and (longitude - box.west) % 360.0 <= box.degrees_wide for box in boxes
        )

    return inside


def choose_follow(follow: Follow, hints: Hints, telemetry: Telemetry | None) -> Literal["ground", "drone"]:
    """Whose track is followed: with `auto` the drone's if the tilt of its camera is known, and its height or lens."""
    known = telemetry.known if telemetry is not None else []
    tilt = hints.tilt_deg is not None or "tilt_deg" in known
    distance = hints.fov_deg is not None or hints.altitude_m is not None or "height_m" in known
    straight_down = hints.tilt_deg is not None and hints.tilt_deg >= 89.0
    if follow == "drone" and not (tilt and (distance or straight_down)):
        raise SkyPartError(
            "the drone's own position needs the camera's tilt and the lens or the height: give --tilt 90 and --fov, or "
            "flight data that have them (--telemetry)"
        )
    if follow != "auto":
        return follow
    return "drone" if tilt and distance else "ground"


def open_tracker(
    locator: Locator,
    options: FlyOptions,
    *,
    telemetry: Telemetry | None = None,
    follow: Follow = "auto",
    max_speed: float = 25.0,
) -> LiveTracker:
    """A tracker over the maps of an index."""
    index = locator.index
    if isinstance(telemetry, LiveTelemetry):
        if not wait_for_message(telemetry, WAIT_FOR_LINK_S):
            raise SkyPartError(
                f"{telemetry.source}: no MAVLink message within {WAIT_FOR_LINK_S:.0f} s; check the address and that "
                "the autopilot sends to it"
            )
        if follow != "ground":
            wait_for_values(telemetry, ("tilt_deg", "height_m"), SETTLE_S)
    track = replace(
        FLYING,
        max_speed=max_speed,
        area_km2=max(area_km2(index.bounds), MIN_AREA_KM2),
        follow=choose_follow(follow, options.hints, telemetry),
    )
    inside = is_inside([entry.bounds for entry in index.manifest.maps])
    return LiveTracker(options, track, index.bounds.frame, inside, telemetry)


def locate_with(
    locator: Locator,
    terrain: Terrain | None = None,
    takeoff: Place | None = None,
    *,
    tracker: LiveTracker | None = None,
) -> LocateLive:
    """Locates frames in an index, with the drone's position over `terrain` if there is one.

    tracker: of the flight. While it uses the fixes, each frame is looked for around the match before first; without a
    tracker every frame is searched anew.
    """
    flight = FlightLocator(locator)
    if tracker is not None:
        tracker.judged = flight.judge
    takeoff_m: float | None = None
    if terrain is not None and takeoff is not None:
        takeoff_m = terrain.height(*takeoff)
        if math.isnan(takeoff_m):
            raise SkyPartError(f"--takeoff {takeoff.latitude},{takeoff.longitude}: is not on the raster of heights")

    def locate(frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
        fix = flight.locate(frame, hints, prior)
        return fix if terrain is None else add_terrain(fix, hints, terrain, takeoff_m)

    return locate


def offset_seconds(offset: str) -> float:
    """The seconds of `--offset`."""
    try:
        seconds = float(offset)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise SkyPartError(f"--offset {offset}: give seconds, or auto for a video file with recorded flight data")
    return seconds


def join_clocks(video: Path, telemetry: Telemetry, offset: str) -> float:
    """Set the telemetry's offset: seconds, or `auto` from the turns that video and flight data both have seen."""
    if offset != "auto":
        telemetry.offset_s = offset_seconds(offset)
        return telemetry.offset_s
    heading = telemetry.series["heading_deg"]
    if len(heading.times) < 2:
        raise SkyPartError(f"{telemetry.source}: has no heading to join the clocks by; give --offset in seconds")
    flow = FlowTracker()
    times, rates = [], []
    frames = open_frames(video, rate_hz=FLOW_HZ)
    for frame in with_progress(frames, "joining clocks", len(frames) or None):
        motion = flow.add(frame.time_s, frame.image)
        if motion is not None:
            times.append(motion.time_s - motion.seconds / 2)
            rates.append(-motion.turn_deg / motion.seconds)
    found = estimate_offset(times, rates, *turn_rate(heading.times, heading.values))
    if found is None:
        raise SkyPartError(
            f"{telemetry.source}: its turns and those of {video.name} do not tell how their clocks differ; give "
            "--offset in seconds"
        )
    telemetry.offset_s = found
    return found
