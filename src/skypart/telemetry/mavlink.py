"""Flight data from an autopilot's MAVLink messages, live or from a .tlog file."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from skypart.errors import SkyPartError
from skypart.telemetry.mavlink_link import MavlinkLink, load_pymavlink
from skypart.telemetry.record import Sample, Telemetry, require_values, unix_time

SILENT_S = 3.0
"""Seconds without a message after which a link counts as silent."""
_BODY_FRAMES = {8, 12}  # MAV_FRAME_BODY_NED, MAV_FRAME_BODY_FRD
_LOCAL_NED, _LOCAL_ENU = 1, 4  # MAV_FRAME_LOCAL_NED, MAV_FRAME_LOCAL_ENU
_YAW_IN_EARTH = 64  # GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME
_YAW_IN_VEHICLE = 32
_YAW_LOCK = 16


class MessageReader:
    """Turns messages into samples. It keeps the last attitude, because odometry and gimbals are relative to it.

    fixed_tilt: tilt in degrees of a camera without a gimbal, bolted to the airframe; its own pitch and roll are added.
    """

    def __init__(self, fixed_tilt: float | None = None) -> None:
        self.fixed_tilt = fixed_tilt
        self._yaw: float | None = None
        self._has_gimbal = False

    def read(self, message: Any, time_s: float) -> Sample | None:
        """The sample of a message that arrived at `time_s`; None for other messages."""
        handler: Callable[[Any, float], Sample | None] | None = getattr(self, f"_{message.get_type().lower()}", None)
        return None if handler is None else handler(message, time_s)

    def _attitude(self, message: Any, time_s: float) -> Sample:
        self._yaw = message.yaw
        if self._has_gimbal:
            return Sample(time_s=time_s)
        tilt = None if self.fixed_tilt is None else self.fixed_tilt - math.degrees(message.pitch)
        return Sample(time_s=time_s, heading_deg=math.degrees(message.yaw) % 360.0, tilt_deg=tilt)

    def _gimbal_device_attitude_status(self, message: Any, time_s: float) -> Sample | None:
        if not _is_rotation(message.q):  # NaN or zeros: the gimbal does not know
            return None
        roll, pitch, yaw = euler_angles(message.q)
        flags = int(message.flags)
        in_earth = bool(flags & _YAW_IN_EARTH) or (not flags & _YAW_IN_VEHICLE and bool(flags & _YAW_LOCK))
        if not in_earth:
            if self._yaw is None:
                return None
            yaw += self._yaw
        self._has_gimbal = True
        return Sample(
            time_s=time_s,
            heading_deg=math.degrees(yaw) % 360.0,
            tilt_deg=-math.degrees(pitch),
            roll_deg=math.degrees(roll),
        )

    def _mount_orientation(self, message: Any, time_s: float) -> Sample:
        yaw = getattr(message, "yaw_absolute", math.nan)
        self._has_gimbal = self._has_gimbal or math.isfinite(yaw)
        return Sample(
            time_s=time_s,
            heading_deg=yaw % 360.0 if math.isfinite(yaw) else None,
            tilt_deg=-message.pitch,
            roll_deg=message.roll,
        )

    def _altitude(self, message: Any, time_s: float) -> Sample:
        return Sample(time_s=time_s, height_m=message.altitude_relative)

    def _global_position_int(self, message: Any, time_s: float) -> Sample:
        """Relative height; the position is truth, and the velocity is left out because GPS is in it."""
        return Sample(
            time_s=time_s,
            height_m=message.relative_alt / 1000.0,
            latitude=message.lat / 1e7,
            longitude=message.lon / 1e7,
        )

    def _gps_raw_int(self, message: Any, time_s: float) -> Sample | None:
        if message.fix_type < 3:
            return None
        return Sample(time_s=time_s, latitude=message.lat / 1e7, longitude=message.lon / 1e7)

    def _local_position_ned(self, message: Any, time_s: float) -> Sample:
        return Sample(time_s=time_s, velocity_north=message.vx, velocity_east=message.vy)

    def _odometry(self, message: Any, time_s: float) -> Sample | None:
        forward, right, down = message.vx, message.vy, message.vz
        child = message.child_frame_id
        if child in _BODY_FRAMES and getattr(message, "frame_id", _LOCAL_NED) == _LOCAL_NED and _is_rotation(message.q):
            north, east = rotate_to_ned(message.q, (forward, right, down))
        elif child in (_LOCAL_NED, _LOCAL_ENU):
            north, east = (forward, right) if child == _LOCAL_NED else (right, forward)
        else:
            return None  # a frame whose x does not point north
        return Sample(time_s=time_s, velocity_north=north, velocity_east=east)


def _is_rotation(q: Sequence[float]) -> bool:
    """Whether a quaternion has length 1."""
    return abs(math.fsum(part * part for part in q) - 1.0) < 0.1


def euler_angles(q: Sequence[float]) -> tuple[float, float, float]:
    """Roll, pitch and yaw in radians of a quaternion (w, x, y, z)."""
    w, x, y, z = q
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(min(1.0, max(-1.0, 2 * (w * y - z * x)))) if all(map(math.isfinite, q)) else math.nan
    return roll, pitch, math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def rotate_to_ned(q: Sequence[float], vector: Sequence[float]) -> tuple[float, float]:
    """North and east parts of a vector in the body's frame (forward, right, down)."""
    w, x, y, z = q
    forward, right, down = vector
    north = (1 - 2 * (y * y + z * z)) * forward + 2 * (x * y - w * z) * right + 2 * (x * z + w * y) * down
    east = 2 * (x * y + w * z) * forward + (1 - 2 * (x * x + z * z)) * right + 2 * (y * z - w * x) * down
    return north, east


class BootClock:
    """Maps an autopilot's time since boot to our clock, by the fastest message so far; restarts after a reboot."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._last = -math.inf

    def to_ours(self, message: Any, arrived: float) -> float:
        """Our time at which a message was measured; its arrival if it has no time stamp."""
        stamp = getattr(message, "time_boot_ms", None)
        seconds = stamp / 1e3 if stamp else getattr(message, "time_usec", 0) / 1e6
        if not seconds or seconds > 1e9:  # none, or Unix time: another clock
            return arrived
        if seconds < self._last - 5.0:
            self._offset = None
        self._last = seconds
        delay = arrived - seconds
        self._offset = delay if self._offset is None else min(self._offset + 1e-5, delay)
        return seconds + self._offset


class LiveTelemetry(Telemetry):
    """Flight data of an autopilot that is connected. A thread reads it until `close`.

    clock: our time in seconds. address: as pymavlink writes it, such as udpin:0.0.0.0:14550 or /dev/ttyACM0,57600.
    """

    live = True

    def __init__(
        self, address: str, clock: Callable[[], float], *, fixed_tilt: float | None = None, source_system: int = 255
    ) -> None:
        super().__init__(source=address)
        self.link = MavlinkLink(address, system=source_system)
        self._clock, self._reader, self._boot = clock, MessageReader(fixed_tilt), BootClock()
        self.messages = 0
        self._arrived = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mavlink", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self.link.receive(0.2)
            except OSError:  # said by `problem`, and opened again
                self._stop.wait(0.2)
                continue
            if message is None or message.get_type() == "BAD_DATA":
                continue
            self._arrived = self._clock()
            self.messages += 1
            sample = self._reader.read(message, self._boot.to_ours(message, self._arrived))
            if sample is not None:
                self.add(sample)

    @property
    def problem(self) -> str:
        """Why nothing comes in; empty while messages come."""
        silent = self._clock() - self._arrived
        if self.link.broken:
            return f"{self.source}: the link is broken ({self.link.broken}); trying again"
        return f"{self.source}: no message for {silent:.0f} s" if silent > SILENT_S else ""

    def close(self) -> None:
        """Stop the thread and close the link."""
        self._stop.set()
        self._thread.join(2.0)
        self.link.close()


def read_tlog(path: Path, *, fixed_tilt: float | None = None) -> Telemetry:
    """Read a .tlog file of a ground station; its clock begins with its first message."""
    mavutil = load_pymavlink()
    try:
        log = mavutil.mavlink_connection(str(path.absolute()), dialect="common")
    except Exception as error:
        raise SkyPartError(f"{path}: not a MAVLink log ({error}); give a .tlog file") from error
    reader, first, samples = MessageReader(fixed_tilt), None, []
    while True:
        try:
            message = log.recv_match()
        except Exception:  # a truncated end
            break
        if message is None:
            break
        stamp = float(getattr(message, "_timestamp", math.nan))
        if message.get_type() == "BAD_DATA" or not math.isfinite(stamp):
            continue
        first = stamp if first is None else first
        sample = reader.read(message, stamp - first)
        if sample is not None:
            samples.append(sample)
    with contextlib.suppress(Exception):
        log.close()
    start = None if first is None else unix_time(first)
    found = Telemetry(sorted(samples, key=lambda each: each.time_s), source=path.name, start=start)
    return require_values(found, "record ATTITUDE and GLOBAL_POSITION_INT")


def wait_for_message(telemetry: LiveTelemetry, seconds: float) -> bool:
    """Whether a message arrived within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not telemetry.messages:
        time.sleep(0.02)
    return telemetry.messages > 0


def wait_for_values(telemetry: LiveTelemetry, names: Iterable[str], seconds: float) -> bool:
    """Whether all of these quantities arrived within `seconds`; an autopilot sends each at its own rate."""
    end, wanted = time.monotonic() + seconds, set(names)
    while time.monotonic() < end and not wanted <= set(telemetry.known):
        time.sleep(0.02)
    return wanted <= set(telemetry.known)
