"""DJI's .SRT captions: flight data that the drone writes beside a video, in the variants of its models.

Bracketed: `[latitude: 48.1] [longitude: 16.3] [rel_alt: 99.2 abs_alt: 300.1] [gb_yaw: 12.3 gb_pitch: -89.9 gb_roll:
0]` (Mini, Air, Mavic 2 and 3; Mavic 2 writes `longtitude` and a space before the colon). Enterprise models add the
airframe's direction: `[Drone: Yaw:12.3, Pitch:1.0, Roll:0.2]` or `[drone_yaw: 12.3 ...] [drone_speedx: 1.0 ...]`. A
bare `[altitude: 300.1]` (Mavic 2, Air 2) is above the sea in some files, so it is not taken for a height. Plain:
`GPS(16.3,48.1,19) BAROMETER:99.2` (Phantom 4, Mavic Pro, Inspire), and `GPS (16.3, 48.1, 19), D 10.1m, H 99.2m, H.S
3.0m/s, F.PRY (..), G.PRY (..)` (Mavic Air, Phantom 4 RTK). Plain positions have the longitude first.
"""

import math
import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.telemetry.record import Sample, Telemetry, require_values

_NUMBER = r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?nan)"
_TIMES = re.compile(r"(?<!\d)(\d{1,3}):(\d\d):(\d\d)[,.](\d{1,3})\s*-->")
_CLOCK = re.compile(r"(\d{4})[-.](\d\d)[-.](\d\d)\s+(\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,3}))?")
_NAMED = re.compile(rf"\b([a-z_]+)\s*:\s*{_NUMBER}", re.IGNORECASE)
_GPS = re.compile(rf"\bGPS\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}", re.IGNORECASE)
_RTK = re.compile(rf"\bRTK\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}", re.IGNORECASE)
_BAROMETER = re.compile(rf"\bBAROMETER\s*:\s*{_NUMBER}", re.IGNORECASE)
_HEIGHT = re.compile(rf"(?<![\w.])H\s+{_NUMBER}\s*m\b")
_SPEED = re.compile(rf"\bH\.S\s+{_NUMBER}\s*m/s", re.IGNORECASE)
_ANGLES = rf"PRY\s*\(\s*{_NUMBER}[^,]{{0,8}},\s*{_NUMBER}[^,]{{0,8}},\s*{_NUMBER}"
_GROUP = re.compile(r"\[\s*(drone|gimbal)\s*:([^\[\]]*)\]", re.IGNORECASE)
_GIMBAL = re.compile(rf"\bG\.{_ANGLES}")
_FLIGHT = re.compile(rf"\bF\.{_ANGLES}")


def read_srt(path: Path) -> Telemetry:
    """Read a caption file. Its clock begins with the video."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise SkyPartError(f"{path}: cannot be read ({error.strerror}); copy it again from the drone") from error
    samples: list[Sample] = []
    start: datetime | None = None
    times = list(_TIMES.finditer(text))
    for number, match in enumerate(times):
        hours, minutes, seconds, part = match.groups()
        time_s = 3600.0 * int(hours) + 60.0 * int(minutes) + int(seconds) + int(part.ljust(3, "0")) / 1000.0
        body = text[match.end() : times[number + 1].start() if number + 1 < len(times) else len(text)]
        body = re.sub(r"<[^<>]*>", " ", body)
        if start is None:
            clock = _read_clock(body)
            with suppress(OverflowError):  # before the year 1
                start = None if clock is None else clock - timedelta(seconds=time_s)
        samples.append(_read_caption(time_s, body))
    if not samples:
        raise SkyPartError(f"{path}: no captions in it; give the .SRT file that the drone wrote beside the video")
    found = Telemetry(samples, source=path.name, start=start)
    return require_values(found, "switch on video captions in the DJI app")


def _read_clock(text: str) -> datetime | None:
    match = _CLOCK.search(text)
    if match is None:
        return None
    part = (match[7] or "0").ljust(3, "0")
    try:
        year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
        return datetime(year, month, day, hour, minute, second, int(part) * 1000)
    except ValueError:
        return None


def _read_caption(time_s: float, text: str) -> Sample:
    named = {name.lower(): float(value) for name, value in _NAMED.findall(text)}
    longitude, latitude = named.get("longitude", named.get("longtitude")), named.get("latitude")
    for pattern in (_RTK, _GPS):
        if latitude is None and (place := pattern.search(text)):
            longitude, latitude = float(place[1]), float(place[2])
            if abs(latitude) > 90.0 >= abs(longitude):
                longitude, latitude = latitude, longitude
    for group, values in _GROUP.findall(text):
        prefix = "gb" if group.lower() == "gimbal" else "drone"
        named |= {f"{prefix}_{name.lower()}": float(value) for name, value in _NAMED.findall(values)}
    height = named.get("rel_alt")
    if height is None and (found := _BAROMETER.search(text) or _HEIGHT.search(text)):
        height = float(found[1])
    pitch, roll, yaw = named.get("gb_pitch"), named.get("gb_roll"), named.get("gb_yaw")
    if pitch is None and (found := _GIMBAL.search(text)):
        pitch, roll, yaw = (float(found[i]) for i in (1, 2, 3))
    if yaw is None:
        yaw = float(found[3]) if (found := _FLIGHT.search(text)) else named.get("drone_yaw")
    speed = float(found[1]) if (found := _SPEED.search(text)) else None
    if "drone_speedx" in named and "drone_speedy" in named:
        speed = math.hypot(named["drone_speedx"], named["drone_speedy"])
    return Sample(
        time_s=time_s,
        heading_deg=None if yaw is None else yaw % 360.0,
        tilt_deg=None if pitch is None else -pitch,
        roll_deg=roll,
        height_m=height,
        speed=speed,
        latitude=latitude,
        longitude=longitude,
    )
