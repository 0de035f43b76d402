"""Flight data over time: one series per quantity, cleaned of impossible values, interpolated at any time."""

import bisect
import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from skypart.errors import SkyPartError

MAX_GAP_S = 2.0
"""A value is interpolated between samples at most this far apart, in seconds, and never carried on for longer."""
HOLD_S = 0.5
"""How long, in seconds, the last value of a quantity holds while nothing newer has come."""
CONFIRM_S = 1.0
"""A jump is believed if a second value agrees with it within this time, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Flight data at one time; None where unknown.

    time_s: seconds on the record's clock. heading_deg: compass direction of the camera, of the airframe if the camera's
    own is unknown. tilt_deg: of the camera below the horizon. roll_deg: of the camera, clockwise. height_m: above
    take-off. velocity_east, velocity_north: m/s over the ground, without GPS. speed: m/s, horizontal, for joining
    clocks. latitude, longitude: of a GPS receiver, degrees; truth for scoring, never an input of the filter.
    """

    time_s: float
    heading_deg: float | None = None
    tilt_deg: float | None = None
    roll_deg: float | None = None
    height_m: float | None = None
    velocity_east: float | None = None
    velocity_north: float | None = None
    speed: float | None = None
    latitude: float | None = None
    longitude: float | None = None


QUANTITIES = tuple(field.name for field in fields(Sample) if field.name != "time_s")
_ANGLES = {"heading_deg", "roll_deg", "longitude"}
_LIMITS = {
    "heading_deg": 720.0,
    "tilt_deg": 180.0,
    "roll_deg": 360.0,
    "height_m": 20_000.0,
    "velocity_east": 150.0,
    "velocity_north": 150.0,
    "speed": 150.0,
    "latitude": 90.0,
    "longitude": 180.0,
}
_MAX_RATE = {"height_m": 40.0, "velocity_east": 40.0, "velocity_north": 40.0, "latitude": 0.01, "longitude": 0.05}
"""Change per second above which a value counts as a jump, until another one confirms it."""
_SLACK = {"height_m": 3.0, "velocity_east": 3.0, "velocity_north": 3.0, "latitude": 1e-4, "longitude": 5e-4}
"""Change that is no jump however short the time."""


class Series:
    """One quantity over time. rejected: values that were not numbers, out of range, or unconfirmed jumps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[float] = []
        self.values: list[float] = []
        self.rejected = 0
        self._jump: tuple[float, float] | None = None

    def add(self, time_s: float, value: float) -> None:
        """Add a value later than all before; impossible ones are counted, not stored."""
        if not (math.isfinite(value) and math.isfinite(time_s) and abs(value) <= _LIMITS[self.name]):
            self.rejected += 1
            return
        if self.times and time_s <= self.times[-1]:
            return
        if self._is_jump(time_s, value):
            self.rejected += 1
            self._jump = (time_s, value)
            return
        self._jump = None
        self.times.append(time_s)
        self.values.append(value)

    def _is_jump(self, time_s: float, value: float) -> bool:
        rate = _MAX_RATE.get(self.name)
        if rate is None or not self.times:
            return False

        def agrees(other_time: float, other: float) -> bool:
            return abs(value - other) <= _SLACK[self.name] + rate * abs(time_s - other_time)

        if agrees(self.times[-1], self.values[-1]):
            return False
        confirmed = self._jump is not None and time_s - self._jump[0] <= CONFIRM_S and agrees(*self._jump)
        return not confirmed

    def at(self, time_s: float) -> float | None:
        """The value at a time, linear between samples; None in a gap, or beyond HOLD_S of the first or last."""
        if not self.times:
            return None
        after = bisect.bisect_left(self.times, time_s)
        if after == 0:
            return self.values[0] if self.times[0] - time_s <= HOLD_S else None
        if after == len(self.times):
            return self.values[-1] if time_s - self.times[-1] <= HOLD_S else None
        before = after - 1
        gap = self.times[after] - self.times[before]
        if gap > MAX_GAP_S:
            for index in (before, after):
                if abs(self.times[index] - time_s) <= HOLD_S:
                    return self.values[index]
            return None
        share = (time_s - self.times[before]) / gap
        change = self.values[after] - self.values[before]
        if self.name in _ANGLES:
            change = (change + 180.0) % 360.0 - 180.0
        value = self.values[before] + share * change
        if self.name == "heading_deg":
            return value % 360.0
        return (value + 180.0) % 360.0 - 180.0 if self.name in _ANGLES else value


class Telemetry:
    """Flight data of one flight. Safe to extend in one thread while another reads.

    start: when its clock was 0, if known. source: what it was read from. offset_s: added to a time of the video gives
    the time on this clock. live: whether samples are still coming.
    """

    live = False

    def __init__(
        self, samples: Iterable[Sample] = (), *, source: str = "telemetry", start: datetime | None = None
    ) -> None:
        self.source, self.start, self.offset_s = source, start, 0.0
        self.series = {name: Series(name) for name in QUANTITIES}
        self._lock = threading.Lock()
        self.last_time: float | None = None
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Add a sample. Quantities without a value are left as they are."""
        with self._lock:
            if math.isfinite(sample.time_s):
                self.last_time = sample.time_s if self.last_time is None else max(self.last_time, sample.time_s)
            if sample.latitude == 0.0 and sample.longitude == 0.0:  # a receiver without a fix
                sample = Sample(**{**vars(sample), "latitude": None, "longitude": None})
            for name in QUANTITIES:
                value = getattr(sample, name)
                if value is not None:
                    self.series[name].add(sample.time_s, value)

    def at(self, video_s: float) -> Sample:
        """The values at a time of the video, in seconds; None where nothing is known."""
        time_s = video_s + self.offset_s
        with self._lock:
            return Sample(time_s=time_s, **{name: series.at(time_s) for name, series in self.series.items()})

    @property
    def rejected(self) -> int:
        """Values that were left out because they cannot be right."""
        return sum(series.rejected for series in self.series.values())

    @property
    def known(self) -> list[str]:
        """Names of the quantities that have values."""
        return [name for name, series in self.series.items() if series.times]

    def summary(self) -> str:
        """One line for the terminal."""
        names = ", ".join(self.known) or "nothing"
        text = f"{self.source}: {names}"
        return text + (f"; {self.rejected} impossible values left out" if self.rejected else "")

    def close(self) -> None:
        """Stop reading; a record that was read whole has nothing to stop."""


def unix_time(seconds: float) -> datetime | None:
    """A Unix time as a date; None for times since boot and other clocks, and beyond the year 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 1e8 else None
    except (OverflowError, ValueError, OSError):
        return None


def require_values(telemetry: Telemetry, remedy: str) -> Telemetry:
    """The same telemetry; raises if it has no values."""
    if not telemetry.known:
        raise SkyPartError(f"{telemetry.source}: no flight data in it; {remedy}")
    return telemetry
