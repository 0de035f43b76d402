"""Open flight data by its name: a file, a folder of photos, or the address of a MAVLink link."""

import re
from collections.abc import Callable
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.telemetry.csv_table import read_csv
from skypart.telemetry.mavlink import LiveTelemetry, read_tlog
from skypart.telemetry.photos import read_photos
from skypart.telemetry.record import Telemetry
from skypart.telemetry.srt import read_srt

MAX_BYTES = 256 << 20
"""Flight data are read into memory; hours of flight take a few megabytes."""
_LIVE = re.compile(r"(udp|udpin|udpout|udpbcast|tcp|tcpin|mcast):|/dev/|COM\d", re.IGNORECASE)


def is_live(name: str) -> bool:
    """Whether a name is the address of a MAVLink link."""
    return _LIVE.match(name) is not None


def read_telemetry(path: Path, *, fixed_tilt: float | None = None) -> Telemetry:
    """Read recorded flight data: .srt, .csv, .tlog, or a folder of photos."""
    if path.is_dir():
        return read_photos(path)
    if not path.is_file():
        raise SkyPartError(f"{path}: no such file; give flight data as .srt, .csv or .tlog")
    if path.stat().st_size > MAX_BYTES:
        raise SkyPartError(f"{path}: has more than {MAX_BYTES >> 20} MB; cut out the part of the flight")
    suffix = path.suffix.lower()
    if suffix == ".srt":
        return read_srt(path)
    if suffix == ".csv":
        return read_csv(path)
    if suffix in (".tlog", ".bin", ".mavlink"):
        if suffix == ".bin":
            raise SkyPartError(f"{path}: a dataflash log; give the .tlog of the ground station, or a CSV")
        return read_tlog(path, fixed_tilt=fixed_tilt)
    raise SkyPartError(f"{path}: not a format of flight data; give .srt, .csv or .tlog")


def open_telemetry(name: str, clock: Callable[[], float], *, fixed_tilt: float | None = None) -> Telemetry:
    """Open flight data by its name. clock: our time in seconds, for a live link."""
    if is_live(name):
        return LiveTelemetry(name, clock, fixed_tilt=fixed_tilt)
    return read_telemetry(Path(name), fixed_tilt=fixed_tilt)


def captions_beside(video: Path) -> Path | None:
    """DJI's captions of a video: the file of the same name that ends in .SRT, if there is one."""
    for suffix in (".SRT", ".srt", ".Srt"):
        if video.with_suffix(suffix).is_file():
            return video.with_suffix(suffix)
    return None
