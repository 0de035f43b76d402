"""MAVLink to an autopilot: GPS_INPUT, GLOBAL_POSITION_SENSOR, MAV_CMD_EXTERNAL_POSITION_ESTIMATE, ODOMETRY."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from skypart.bridge.live_sink import GuardedSink
from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.position.hypotheses import RADIUS_95
from skypart.position.live import Report
from skypart.telemetry.mavlink_link import MavlinkLink, load_pymavlink

MESSAGES = ("gps_input", "global_position_sensor", "external_estimate", "odometry")
NO_FIX, FIX_3D = 1, 3
GPS_EPOCH = datetime(1980, 1, 6, tzinfo=UTC)
LEAP_SECONDS = 18
"""GPS time is ahead of UTC by this."""
_IGNORE_ALT, _IGNORE_VDOP, _IGNORE_VERTICAL_VELOCITY, _IGNORE_VERTICAL_ACCURACY = 1, 4, 16, 128
_VISION, _EXTERNAL_ESTIMATE = 2, 43003
_LOCAL_NED, _GLOBAL_FRAME, _ESTIMATOR_VISION = 1, 0, 2
WRAP_S = 36_000.0
"""The time of an external estimate wraps here, so that a 32-bit float has milliseconds."""
UNKNOWN_YAW = 0
"""The heading of a report is the camera's, not that of the airframe, which GPS_INPUT means."""
SATELLITES = 10
"""Autopilots ignore a GPS with fewer than six; there are none here."""


class MavlinkEncoder:
    """Reports as MAVLink messages.

    kinds: of MESSAGES. origin: of the local frame of ODOMETRY. declare_no_fix: say so while lost; else say nothing.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        *,
        origin: LocalFrame | None = None,
        declare_no_fix: bool = True,
        target: tuple[int, int] = (1, 1),
        gps_id: int = 0,
    ) -> None:
        unknown = [kind for kind in kinds if kind not in MESSAGES]
        if unknown:
            raise SkyPartError(f"unknown MAVLink message {unknown[0]!r}; choose among {', '.join(MESSAGES)}")
        if "odometry" in kinds and origin is None:
            raise SkyPartError("ODOMETRY needs the origin of its local frame; give --origin LAT,LON")
        load_pymavlink()
        from pymavlink.dialects.v20 import common

        self.kinds, self.origin, self.declare_no_fix = tuple(kinds), origin, declare_no_fix
        self.target, self.gps_id = target, gps_id
        self._encode: Any = common.MAVLink(None)
        self._was_lost, self._resets = True, 0

    def heartbeat(self) -> Any:
        """Of an onboard controller without an autopilot, active."""
        return self._encode.heartbeat_encode(18, 8, 0, 0, 4)

    def messages(self, report: Report) -> list[Any]:
        """The messages of a report, in the order of `kinds`; none while lost, but GPS_INPUT's declared no-fix."""
        found = report.point.latitude is not None and report.point.radius_m is not None
        if found and self._was_lost:
            self._resets += 1
        self._was_lost = not found
        made = [getattr(self, f"_{kind}")(report) for kind in self.kinds] if found else []
        if not found and self.declare_no_fix and "gps_input" in self.kinds:
            made.append(self._no_fix(report))
        return made

    def _gps_input(self, report: Report) -> Any:
        point = report.point
        assert point.latitude is not None and point.longitude is not None and point.radius_m is not None
        week, in_week = gps_time(report.time)
        speed = _velocity_accuracy(report)
        return self._encode.gps_input_encode(
            _microseconds(report.time),
            self.gps_id,
            _IGNORE_ALT | _IGNORE_VDOP | _IGNORE_VERTICAL_VELOCITY | _IGNORE_VERTICAL_ACCURACY,
            in_week,
            week,
            FIX_3D,
            round(point.latitude * 1e7),
            round(point.longitude * 1e7),
            0.0,
            max(0.5, point.radius_m / RADIUS_95 / 5.0),
            0.0,
            point.velocity_north or 0.0,
            point.velocity_east or 0.0,
            0.0,
            speed,
            point.radius_m,
            0.0,
            SATELLITES,
            UNKNOWN_YAW,
        )

    def _no_fix(self, report: Report) -> Any:
        week, in_week = gps_time(report.time)
        everything = 255
        return self._encode.gps_input_encode(
            _microseconds(report.time), self.gps_id, everything, in_week, week, NO_FIX, 0, 0, *(0.0,) * 9, 0, 0
        )

    def _global_position_sensor(self, report: Report) -> Any:
        point = report.point
        assert point.latitude is not None and point.longitude is not None and point.radius_m is not None
        return self._encode.global_position_sensor_encode(
            *self.target,
            self.gps_id,
            _microseconds(report.time),
            round((report.processing_s or 0.0) * 1e6),
            _VISION,
            0,
            round(point.latitude * 1e7),
            round(point.longitude * 1e7),
            math.nan,
            math.nan,
            point.radius_m / RADIUS_95,
            math.nan,
        )

    def _external_estimate(self, report: Report) -> Any:
        point = report.point
        assert point.latitude is not None and point.longitude is not None and point.radius_m is not None
        return self._encode.command_int_encode(
            *self.target,
            _GLOBAL_FRAME,
            _EXTERNAL_ESTIMATE,
            0,
            0,
            report.time.timestamp() % WRAP_S,
            report.processing_s or 0.0,
            point.radius_m / RADIUS_95,
            0.0,
            round(point.latitude * 1e7),
            round(point.longitude * 1e7),
            math.nan,
        )

    def _odometry(self, report: Report) -> Any:
        point = report.point
        assert point.latitude is not None and point.longitude is not None and self.origin is not None
        metres = self.origin.to_metres(latitude=point.latitude, longitude=point.longitude)
        east_east, east_north, north_north = point.covariance or (math.nan,) * 3
        pose, speed = [math.nan] * 21, [math.nan] * 21
        pose[0], pose[1], pose[6] = north_north, east_north, east_east  # upper triangle, rows of 6, x is north
        speed[0] = speed[6] = _velocity_accuracy(report) ** 2
        return self._encode.odometry_encode(
            _microseconds(report.time),
            _LOCAL_NED,
            _LOCAL_NED,
            float(metres.y),
            float(metres.x),
            math.nan if report.height_m is None else -report.height_m,
            [math.nan] * 4,  # the airframe's attitude is not known, only the camera's heading
            point.velocity_north or 0.0,
            point.velocity_east or 0.0,
            math.nan,
            math.nan,
            math.nan,
            math.nan,
            pose,
            speed,
            self._resets % 256,
            _ESTIMATOR_VISION,
            round(100 * point.confidence),
        )


def gps_time(moment: datetime) -> tuple[int, int]:
    """GPS week, and milliseconds in it."""
    milliseconds = round(((moment - GPS_EPOCH).total_seconds() + LEAP_SECONDS) * 1000)
    week, in_week = divmod(milliseconds, 604_800_000)
    return week, in_week


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _velocity_accuracy(report: Report) -> float:
    """m/s: known to a metre per second or so while there are fixes, less the longer there are none."""
    return min(1.0 + 0.2 * (report.point.anchor_age_s or 0.0), 25.0)


class MavlinkSink(GuardedSink):
    """Sends reports to an autopilot. address: as pymavlink writes it; a heartbeat goes with them once a second."""

    def __init__(
        self,
        address: str,
        encoder: MavlinkEncoder,
        *,
        armed: bool,
        rate_hz: float,
        say: Callable[[str], None],
        system: int = 1,
        component: int = 197,
    ) -> None:
        super().__init__(address, armed=armed, rate_hz=rate_hz, say=say)
        self._encoder = encoder
        self._link = MavlinkLink(address, system=system, component=component) if armed else None
        self._beat = -math.inf

    def describe(self, report: Report) -> list[str]:
        """The messages as text."""
        return [str(message) for message in self._encoder.messages(report)] or ["nothing: the position is lost"]

    def transmit(self, report: Report) -> None:
        """Send the messages."""
        assert self._link is not None  # armed
        now = report.time.timestamp()
        if now - self._beat >= 1.0:
            self._link.send(self._encoder.heartbeat())
            self._beat = now
        for message in self._encoder.messages(report):
            self._link.send(message)

    def close(self) -> None:
        """Close the link."""
        if self._link is not None:
            self._link.close()
