"""Follow a flight while it happens: frames and flight data in, a report of the position several times a second out.

`LiveTracker` holds the logic and has no threads; `fly` feeds it from a stream or a file and passes its reports on.
"""

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.images.decode import RgbImage
from skypart.position.camera import ground_width, hints_from_telemetry, merge_hints
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.flight import VELOCITY_DRIFT, VELOCITY_NOISE, Judged, clock_note, join_by_fixes
from skypart.position.flow import TURN_ERROR_DEG, FlowTracker, HeadingFilter, ImageMotion, ground_velocity
from skypart.position.frames import Frame, open_frames
from skypart.position.hypotheses import MeasuredVelocity
from skypart.position.live_video import LiveVideo, is_stream, wait_for_start
from skypart.position.track import TrackOptions, TrackPoint
from skypart.position.track_filter import Inside, TrackFilter
from skypart.progress import console
from skypart.telemetry.record import Sample, Telemetry

FLYING = TrackOptions(min_confidence=0.99, lost_after=4, smooth=False)
"""The filter's options in flight: three fixes must agree before a position is said, and four that contradict end it."""
GPS_PRIOR_M = 500.0
"""Search radius around the receiver's position with `near_gps`."""
NO_HEADING_AFTER_S = 8.0
"""Seconds without a fix after which every other frame is located without the compass, which may be wrong."""
TRACKING_S = 2.0
"""Between frames the state stays `tracking` for this many seconds after a frame whose fix was used."""
VELOCITY_PROBLEM = "the measured velocity contradicts the fixes and is left out; check --offset, lens and height"
LATE_PROBLEM = (
    "the flight data come {:.1f} s late by the fixes, so their velocity is trusted little; send them faster, or "
    "lower --latency"
)
COMPASS_JITTER_DEG = 1.0
"""Noise of the difference of two headings of the flight data."""
NODDING_DEG = 3.0
"""Change of the tilt between two looks from which the camera moves up or down."""
BUFFER_S = 120.0
"""Velocities that are kept for frames still being located, in seconds."""


@dataclass(frozen=True, kw_only=True)
class FlyOptions:
    """How a flight is followed.

    rate_hz: frames located per second at most. out_hz: reports per second. ask_after: lost frames after which an
    operator is asked. stop_after_s: loss after which the output stops. near_gps: search around the receiver's position.
    flow: measure velocity by optical flow where the flight data have none. start_s: how long a stream may take to
    start. realtime: play a file at its own speed. latency_s: of the camera. hints: known about the camera for all
    frames.
    """

    rate_hz: float = 2.0
    out_hz: float = 5.0
    ask_after: int = 3
    stop_after_s: float = 30.0
    near_gps: bool = False
    flow: bool = True
    start_s: float = 20.0
    realtime: bool = False
    latency_s: float = 0.0
    hints: Hints = Hints()  # noqa: RUF009

    def __post_init__(self) -> None:
        """Raise if a value is out of range."""
        for name in ("rate_hz", "out_hz", "ask_after", "stop_after_s", "start_s"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0):
                raise SkyPartError(f"fly option {name} must be a positive number, not {getattr(self, name)}")
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise SkyPartError(f"fly option latency_s must be 0 or more seconds, not {self.latency_s}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is known at one moment of a flight.

    time: UTC of the position. point: the position. captured: UTC of the exposure of the last located frame. fix_age_s:
    from the exposure of the last located frame until now. processing_s: what locating it took. lost_frames: located
    frames in a row without a position. ask_operator: after FlyOptions.ask_after of them. stopped: the loss has lasted
    so long that nothing is sent. problem: what does not work, or empty. height_m: above take-off, if known.
    clock_offset_s: of the flight data in use, see Telemetry.offset_s. fix: the answer for the last frame.
    """

    time: datetime
    point: TrackPoint
    captured: datetime | None = None
    fix_age_s: float | None = None
    processing_s: float | None = None
    lost_frames: int = 0
    ask_operator: bool = False
    stopped: bool = False
    problem: str = ""
    height_m: float | None = None
    clock_offset_s: float | None = None
    seen: int = 0
    dropped: int = 0
    located: int = 0
    fix: Fix | None = None


LocateLive: TypeAlias = Callable[[Frame, Hints, Prior | None], Fix]
"""Locates one frame with hints and, if asked for, a prior."""


class Sink(Protocol):
    """Where reports go, such as those of `skypart.bridge.sinks`. A sink never raises out of `send`: see `problem`."""

    problem: str

    def send(self, report: Report) -> None:
        """Pass a report on."""

    def close(self) -> None:
        """Finish, for instance write a file whole."""


class LiveTracker:
    """Filter, heading and optical flow of one flight. All times are seconds since its start."""

    def __init__(
        self,
        options: FlyOptions,
        track: TrackOptions,
        frame: LocalFrame,
        inside: Inside | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.options, self.telemetry = options, telemetry
        self.filter = TrackFilter(track, frame, inside, record=False)
        self.heading = HeadingFilter()
        self.points: list[TrackPoint] = []
        self.lost_frames = 0
        self.located = 0
        self.last_fix: Fix | None = None
        self.last_capture: float | None = None
        self._lost_since: float | None = None
        self._flow = FlowTracker()
        self._ground_m: float | None = None
        self._ground_height_m: float | None = None  # of the drone when _ground_m was measured
        self._velocities: deque[tuple[float, MeasuredVelocity]] = deque()
        self._ahead: TrackFilter | None = None  # the filter, driven on by velocities since its last step
        self._sight: tuple[float, float, float] | None = None  # time, heading and tilt of the last look
        self._without_heading = False
        self.judged: Judged | None = None  # is told what became of each located frame
        self.clock_joined = False  # whether fixes have corrected the flight data's clock

    def look(self, time_s: float, image: RgbImage | None) -> None:
        """Take the flight data of this time and, if there is one, the motion that a new frame shows."""
        sample = self.telemetry.at(time_s) if self.telemetry else Sample(time_s=time_s)
        if sample.heading_deg is not None:
            self.heading.compass(time_s, sample.heading_deg)
        velocity = _telemetry_velocity(sample)
        motion = self._flow.add(time_s, image) if image is not None and self.options.flow else None
        if motion is not None and sample.heading_deg is None:
            self.heading.turn(time_s, motion.camera_turn(self._hints(sample).tilt_deg or 90.0))
        heading = self.heading.heading_deg
        seen = self._seen_velocity(time_s, sample, motion)
        if velocity is not None and self.filter.options.follow == "ground":
            velocity = self._ground_sweep(time_s, velocity, sample, motion, sign=1.0)
        velocity = seen if velocity is None else replace(velocity, instead=seen)
        tilt_now = self._hints(sample).tilt_deg
        self._sight = None if tilt_now is None or heading is None else (time_s, heading, tilt_now)
        if velocity is not None and (not self._velocities or time_s > self._velocities[-1][0]):
            self._velocities.append((time_s, velocity))
            if self._ahead is not None:
                self._drive_ahead(time_s, velocity)
            while self._velocities and self._velocities[0][0] < time_s - BUFFER_S:
                self._velocities.popleft()

    def _seen_velocity(self, time_s: float, sample: Sample, motion: ImageMotion | None) -> MeasuredVelocity | None:
        """The velocity of what is followed, by optical flow; None if too little is known."""
        heading, hints = self.heading.heading_deg, self._hints(sample)
        ground_m = self._ground_width(hints)
        if motion is None or heading is None or ground_m is None:
            return None
        tilt = hints.tilt_deg or 90.0
        middle = heading - motion.camera_turn(tilt) / 2  # the heading half way between the two frames
        velocity = ground_velocity(motion, ground_m=ground_m, heading_deg=middle, tilt_deg=tilt)
        if self.filter.options.follow == "ground":
            return velocity
        return self._ground_sweep(time_s, velocity, sample, motion, sign=-1.0)

    def _drive_ahead(self, time_s: float, velocity: MeasuredVelocity) -> None:
        ahead = self._ahead
        if ahead is not None and (ahead.time_s is None or time_s > ahead.time_s):
            ahead.drive(time_s, velocity)

    def _ground_width(self, hints: Hints) -> float | None:
        """Metres of ground across the image: of the last match, or of height and lens where that is unknown.

        A match measures it; if the height has changed since, it is scaled with it.
        """
        if self._ground_m is None:
            return ground_width(hints)
        if hints.altitude_m is None or self._ground_height_m is None:
            return self._ground_m
        return self._ground_m * min(max(hints.altitude_m / self._ground_height_m, 0.1), 10.0)

    def _ground_sweep(
        self, time_s: float, velocity: MeasuredVelocity, sample: Sample, motion: ImageMotion | None, sign: float
    ) -> MeasuredVelocity | None:
        """A velocity plus `sign` times that of the ground at the photo's centre relative to the drone.

        The camera's turn is that of the images, if they show one; a compass is too noisy for it. None if the camera
        moves up or down, or too little is known.
        """
        hints = self._hints(sample)
        tilt, height, heading = hints.tilt_deg, hints.altitude_m, self.heading.heading_deg
        if tilt is None or tilt >= 89.0:
            return velocity
        if height is None or heading is None or tilt < 15.0:
            return None
        ahead = height / math.tan(math.radians(tilt))
        before = self._sight
        if motion is not None:
            seconds, turned = motion.seconds, motion.camera_turn(tilt)
            jitter = TURN_ERROR_DEG
        elif before is not None and 0.0 < time_s - before[0] <= 1.0:
            seconds, turned = time_s - before[0], (heading - before[1] + 180.0) % 360.0 - 180.0
            jitter = COMPASS_JITTER_DEG
        else:
            return None
        if before is not None and time_s - before[0] <= 1.0 and abs(tilt - before[2]) > NODDING_DEG:
            return None
        middle, rate = math.radians(heading - turned / 2), math.radians(turned) / seconds
        sweep = ahead * rate * np.array([math.cos(middle), -math.sin(middle)])
        noise = math.hypot(velocity.deviation, 0.1 * abs(ahead * rate), ahead * math.radians(jitter) / seconds)
        return replace(velocity, velocity=velocity.velocity + sign * sweep, deviation=noise)

    def _hints(self, sample: Sample) -> Hints:
        return merge_hints(self.options.hints, hints_from_telemetry(sample))

    def _hints_at(self, time_s: float) -> Hints:
        """What is known about the camera at a time, with the corrected heading."""
        hints = self._hints(self.telemetry.at(time_s) if self.telemetry else Sample(time_s=time_s))
        if self.options.hints.heading_deg is not None or self.heading.heading_deg is None:
            return hints
        return replace(hints, heading_deg=self.heading.heading_deg)

    def hints(self, frame: Frame) -> tuple[Hints, Prior | None]:
        """What is known about the camera of a frame, and where to search with `near_gps`."""
        sample = self.telemetry.at(frame.time_s) if self.telemetry else Sample(time_s=frame.time_s)
        hints = merge_hints(merge_hints(self.options.hints, hints_from_telemetry(sample)), frame.hints)
        if sample.heading_deg is not None and self.options.hints.heading_deg is None:
            hints = replace(hints, heading_deg=self.heading.heading_deg)
            last = self.filter.time_s
            waiting = last is not None and (self.lost_frames > 0 and self.located > 0)
            if waiting and self._lost_since is not None and frame.time_s - self._lost_since > NO_HEADING_AFTER_S:
                self._without_heading = not self._without_heading
                if self._without_heading:
                    hints = replace(hints, heading_deg=None)
        prior = None
        if self.options.near_gps and sample.latitude is not None and sample.longitude is not None:
            prior = Prior(latitude=sample.latitude, longitude=sample.longitude, radius_m=GPS_PRIOR_M)
        return hints, prior

    def locate_done(self, time_s: float, fix: Fix) -> TrackPoint:
        """Take the answer for the frame exposed at `time_s`; frames come in order of time."""
        latest: MeasuredVelocity | None = None
        while self._velocities and self._velocities[0][0] <= time_s:
            moment, velocity = self._velocities.popleft()
            if self.filter.time_s is None or moment > self.filter.time_s:
                if moment < time_s:
                    self.filter.drive(moment, velocity)
                else:
                    latest = velocity
        self._ahead = None
        hints = self._hints_at(time_s)
        point = self._finish(self.filter.step(time_s, fix, latest, hints))
        self.located += 1
        self.last_fix, self.last_capture = fix, time_s
        if point.state == "tracking":
            if fix.ground_m is not None:
                self._ground_m, self._ground_height_m = fix.ground_m, hints.altitude_m
            if fix.heading_deg is not None:
                self.heading.match(time_s, fix.heading_deg)
        self.lost_frames = self.lost_frames + 1 if point.state == "lost" else 0
        self.points.append(point)
        if self.judged is not None:
            self.judged(point)
        if self.telemetry is not None and join_by_fixes(self.filter, self.telemetry):
            self.clock_joined = True
            self._velocities.clear()
            self._ahead = None
        return point

    def _finish(self, point: TrackPoint) -> TrackPoint:
        """A point with the map's own error in its radius, and the heading."""
        if point.radius_m is None:
            return point
        radius = math.hypot(point.radius_m, self.filter.map_error_m)
        return replace(point, radius_m=radius, heading_deg=self.heading.heading_deg)

    def report(self, time_s: float, start: datetime, *, problem: str = "", seen: int = 0, dropped: int = 0) -> Report:
        """What is known now, at `time_s`."""
        if self._ahead is None:  # kept until the next fix, so that a long outage does not make reports slow
            self._ahead = self.filter.branch()
            for moment, velocity in self._velocities:
                self._drive_ahead(moment, velocity)
        point = self._finish(self._ahead.peek(time_s))
        matched = bool(self.points) and self.points[-1].state == "tracking"
        if point.state == "coasting" and matched and time_s - self.points[-1].time_s <= TRACKING_S:
            point = replace(point, state="tracking")
        if point.state != "lost":
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = time_s
        lost_s = 0.0 if self._lost_since is None else time_s - self._lost_since
        sample = self.telemetry.at(time_s) if self.telemetry else None
        late_s = self.filter.clock_offset_s
        said = [] if self.filter.velocity_passes else [VELOCITY_PROBLEM]
        said += [] if late_s is None or late_s <= 0.0 else [LATE_PROBLEM.format(late_s)]
        problem = "; ".join([*([problem] if problem else []), *said])
        return Report(
            time=start + timedelta(seconds=point.time_s),
            point=point,
            captured=None if self.last_capture is None else start + timedelta(seconds=self.last_capture),
            fix_age_s=None if self.last_capture is None else time_s - self.last_capture,
            processing_s=None if self.last_fix is None else self.last_fix.seconds,
            lost_frames=self.lost_frames,
            ask_operator=self.lost_frames >= self.options.ask_after,
            stopped=lost_s >= self.options.stop_after_s,
            problem=problem,
            height_m=None if sample is None else sample.height_m,
            clock_offset_s=None if self.telemetry is None else self.telemetry.offset_s,
            seen=seen,
            dropped=dropped,
            located=self.located,
            fix=self.last_fix,
        )


def _telemetry_velocity(sample: Sample) -> MeasuredVelocity | None:
    if sample.velocity_east is None or sample.velocity_north is None:
        return None
    velocity = np.array([sample.velocity_east, sample.velocity_north])
    return MeasuredVelocity(velocity, VELOCITY_NOISE, VELOCITY_DRIFT, own_clock=True)


def flight_clock() -> Callable[[], float]:
    """Seconds since this call, by a clock that never jumps."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


@dataclass(frozen=True, kw_only=True)
class FlightEnd:
    """How a flight ended: its track, frames seen, dropped and located, reconnections, and problems of the sinks."""

    points: list[TrackPoint]
    start: datetime
    seen: int
    dropped: int
    located: int
    reconnections: int
    problems: tuple[str, ...]

    def summary(self) -> str:
        """One line for the terminal."""
        states = [point.state for point in self.points]
        text = f"{self.seen} frames, {self.dropped} dropped, {self.located} located: "
        text += f"{states.count('tracking')} with a fix, {states.count('coasting')} carried on, "
        text += f"{states.count('lost')} without a position"
        text += f"; the stream came back {self.reconnections} times" if self.reconnections else ""
        return "; ".join([text, *self.problems])


def fly(
    source: str,
    tracker: LiveTracker,
    locate: LocateLive,
    sinks: Sequence[Sink],
    *,
    stop: threading.Event | None = None,
    clock: Callable[[], float] | None = None,
) -> FlightEnd:
    """Follow a flight until its file ends or `stop` is set (Ctrl-C); the sinks are closed whatever happens.

    A stream, and a file with `realtime`, runs by the clock: frames that come while one is located are dropped. A file
    without it runs frame by frame, as fast as they are located. clock: seconds of the flight, shared with live flight
    data; by default it begins now.
    """
    stop, clock = stop or threading.Event(), clock or flight_clock()
    try:
        if is_stream(source) or tracker.options.realtime:
            end = _fly_live(source, tracker, locate, sinks, stop, clock)
        else:
            end = _fly_file(Path(source), tracker, locate, sinks, stop)
    finally:
        problems = _close(sinks)
    notes = [clock_note(tracker.telemetry.offset_s)] if tracker.telemetry and tracker.clock_joined else []
    return replace(end, problems=(*end.problems, *notes, *problems))


def _close(sinks: Iterable[Sink]) -> list[str]:
    problems = []
    for sink in sinks:
        try:
            sink.close()
        except (SkyPartError, OSError) as error:
            problems.append(str(error))
        if sink.problem:
            problems.append(sink.problem)
    return problems


def _send(sinks: Iterable[Sink], report: Report) -> None:
    for sink in sinks:
        sink.send(report)


def _locate_safely(locate: LocateLive, frame: Frame, hints: Hints, prior: Prior | None) -> Fix:
    try:
        return locate(frame, hints, prior)
    except SkyPartError as error:  # for example, a map on the network did not respond
        return Fix(photo=frame.name, reason=str(error))


def _fly_file(
    path: Path, tracker: LiveTracker, locate: LocateLive, sinks: Sequence[Sink], stop: threading.Event
) -> FlightEnd:
    """Every frame of a file at `rate_hz` in order; reports between them at `out_hz` of the flight's own time."""
    frames = open_frames(path, rate_hz=max(tracker.options.out_hz, tracker.options.rate_hz))
    start = _in_utc(frames.start)
    seen, next_fix, speaker = 0, -math.inf, _Speaker()
    for frame in frames:
        if stop.is_set():
            break
        seen += 1
        tracker.look(frame.time_s, frame.image)
        if frame.time_s >= next_fix - 1e-6:
            next_fix = frame.time_s + 1.0 / tracker.options.rate_hz
            fix = _locate_safely(locate, frame, *tracker.hints(frame))
            tracker.locate_done(frame.time_s, fix)
        problem = _problem(None, tracker.telemetry, sinks)
        speaker.say(problem)
        _send(sinks, tracker.report(frame.time_s, start, problem=problem, seen=seen))
    return FlightEnd(
        points=tracker.points,
        start=start,
        seen=seen,
        dropped=0,
        located=tracker.located,
        reconnections=0,
        problems=(f"{frames.skipped} frames could not be read",) if frames.skipped else (),
    )


def _in_utc(start: datetime | None) -> datetime:
    if start is None:
        return datetime.now(UTC)
    return start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)


def _fly_live(
    source: str,
    tracker: LiveTracker,
    locate: LocateLive,
    sinks: Sequence[Sink],
    stop: threading.Event,
    clock: Callable[[], float],
) -> FlightEnd:
    """By the clock: one thread reads frames, one locates the newest, this one reports."""
    now = clock
    start = datetime.now(UTC) - timedelta(seconds=now())
    video = LiveVideo(source, now, latency_s=tracker.options.latency_s)
    jobs: queue.Queue[tuple[Frame, Hints, Prior | None] | None] = queue.Queue(maxsize=1)
    answers: queue.Queue[tuple[float, Fix]] = queue.Queue()
    failures: list[BaseException] = []

    def work() -> None:
        while (job := jobs.get()) is not None:
            try:
                answers.put((job[0].time_s, _locate_safely(locate, *job)))
            except BaseException as error:  # a bug must end the flight, not hang it
                failures.append(error)
                return

    worker = threading.Thread(target=work, name="locate", daemon=True)
    worker.start()
    busy, next_fix, speaker = False, -math.inf, _Speaker()
    period = 1.0 / tracker.options.out_hz
    try:
        frame: Frame | None = _first_frame(video, tracker, sinks, stop, start, now)
        due = now()
        while not stop.is_set():
            while not answers.empty():
                tracker.locate_done(*answers.get())
                busy = False
            if failures:
                raise failures[0]
            moment = now()
            if frame is not None:
                tracker.look(frame.time_s, frame.image)
                if not busy and frame.time_s >= next_fix:
                    jobs.put((frame, *tracker.hints(frame)))
                    busy, next_fix = True, frame.time_s + 1.0 / tracker.options.rate_hz
            else:
                tracker.look(moment, None)
            problem = _problem(video, tracker.telemetry, sinks)
            speaker.say(problem)
            _send(sinks, tracker.report(moment, start, problem=problem, seen=video.seen, dropped=video.dropped))
            if video.ended and not busy:
                break
            due = max(due + period, moment)
            frame = _newest_until(video, due, now, stop)
    finally:
        video.close()
        while not jobs.empty():
            jobs.get_nowait()
        jobs.put(None)
        worker.join(60.0)
        while not answers.empty():
            tracker.locate_done(*answers.get())
    return FlightEnd(
        points=tracker.points,
        start=start,
        seen=video.seen,
        dropped=video.dropped,
        located=tracker.located,
        reconnections=video.reconnections,
        problems=(),
    )


def _first_frame(
    video: LiveVideo,
    tracker: LiveTracker,
    sinks: Sequence[Sink],
    stop: threading.Event,
    start: datetime,
    now: Callable[[], float],
) -> Frame | None:
    """The first frame. Sinks hear of the wait once; Ctrl-C ends it."""
    _send(sinks, tracker.report(now(), start, problem=f"{video.name}: waiting for the first frame"))
    end = now() + tracker.options.start_s
    while not stop.is_set():
        left = end - now()
        if left <= 0.5 or video.ended:
            return wait_for_start(video, max(left, 0.1), tracker.options.start_s)
        frame = video.take(0.2)
        if frame is not None:
            return frame
    return None


def _newest_until(video: LiveVideo, due: float, now: Callable[[], float], stop: threading.Event) -> Frame | None:
    """The newest frame once `due` is reached."""
    wait = due - now()
    if wait > 0:
        stop.wait(wait)
    return video.take(0.0)


def _problem(video: LiveVideo | None, telemetry: Telemetry | None, sinks: Iterable[Sink]) -> str:
    """What does not work just now."""
    broken = video is not None and video.broken and not video.ended
    said = [f"{video.name}: {video.broken}; trying again"] if broken and video is not None else []
    said += [getattr(telemetry, "problem", ""), *(sink.problem for sink in sinks)]
    return "; ".join(each for each in said if each)


class _Speaker:
    """Prints a problem once, when it comes."""

    def __init__(self) -> None:
        self._last = ""

    def say(self, problem: str) -> None:
        if problem and problem != self._last:
            console.print(problem, style="yellow", markup=False, highlight=False, soft_wrap=True)
        self._last = problem
