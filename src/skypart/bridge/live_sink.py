"""What all sinks of a live flight share: a rate limit, a dry run, and errors that do not end the flight."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from skypart.bridge.values import to_plain
from skypart.position.live import Report

DRY_RUN_EVERY_S = 1.0
"""How often a dry run prints what it would send, in seconds of the flight."""


def report_values(report: Report) -> dict[str, Any]:
    """A report as plain values, for JSON and the page. Times are UTC; a position that is unknown is null."""
    point = report.point
    values: dict[str, Any] = {
        "time": _utc(report.time),
        "captured": None if report.captured is None else _utc(report.captured),
        "time_s": point.time_s,
        "state": point.state,
        "source": point.source,
        "of": point.of,
        "latitude": point.latitude,
        "longitude": point.longitude,
        "radius_m": point.radius_m,
        "protection_m": point.protection_m,
        "covariance_m2": point.covariance,
        "velocity_east": point.velocity_east,
        "velocity_north": point.velocity_north,
        "heading_deg": point.heading_deg,
        "confidence": point.confidence,
        "anchor_age_s": point.anchor_age_s,
        "fix_age_s": report.fix_age_s,
        "processing_s": report.processing_s,
        "height_m": report.height_m,
        "clock_offset_s": report.clock_offset_s,
        "lost_frames": report.lost_frames,
        "ask_operator": report.ask_operator,
        "stopped": report.stopped,
        "problem": report.problem,
        "seen": report.seen,
        "dropped": report.dropped,
        "located": report.located,
    }
    plain: dict[str, Any] = to_plain(values)
    return plain


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RateLimit:
    """Lets at most `rate_hz` reports per second through, by the time of the reports."""

    def __init__(self, rate_hz: float) -> None:
        self._period = 1.0 / rate_hz if rate_hz > 0 else 0.0
        self._next = -math.inf

    def allows(self, moment: datetime) -> bool:
        """Whether a report of this time may pass."""
        now = moment.timestamp()
        if now < self._next - 1e-3:
            return False
        self._next = max(self._next + self._period, now) if now - self._next < self._period else now + self._period
        return True


class GuardedSink:
    """A sink to an autopilot or a line: nothing leaves it unless armed; after an error it tries again.

    say: prints a line of the dry run. problem: why nothing is sent; empty while it works.
    """

    def __init__(self, name: str, *, armed: bool, rate_hz: float, say: Callable[[str], None]) -> None:
        self.name, self.armed, self.problem = name, armed, ""
        self.sent = 0
        self._limit = RateLimit(rate_hz if armed else min(rate_hz, 1.0 / DRY_RUN_EVERY_S))
        self._say = say

    def send(self, report: Report) -> None:
        """Send a report, or print what would be sent; nothing after prolonged loss."""
        if report.stopped or not self._limit.allows(report.time):
            return
        if not self.armed:
            for line in self.describe(report):
                self._say(f"would send to {self.name}: {line}")
            return
        try:
            self.transmit(report)
            self.problem = ""
            self.sent += 1
        except Exception as error:  # sockets and pyserial raise many kinds
            self.problem = f"{self.name}: cannot send ({error})"

    def describe(self, report: Report) -> list[str]:
        """What `transmit` would send, one line per message."""
        raise NotImplementedError

    def transmit(self, report: Report) -> None:
        """Send a report; may raise."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the line."""
