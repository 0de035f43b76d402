"""Flight data from a CSV with named columns."""

import csv
import math
from datetime import UTC, datetime
from pathlib import Path

from skypart.errors import SkyPartError
from skypart.telemetry.record import Sample, Telemetry, require_values, unix_time

COLUMNS: dict[str, tuple[str, ...]] = {
    "heading_deg": ("heading_deg", "heading", "yaw", "yaw_deg", "gimbal_heading(degrees)", "compass_heading(degrees)"),
    "tilt_deg": ("tilt_deg", "tilt"),
    "roll_deg": ("roll_deg", "camera_roll"),
    "height_m": ("height_m", "height", "relative_altitude_m", "rel_alt", "height_above_takeoff(meters)"),
    "velocity_east": ("velocity_east", "v_east", "ve", "vy_ned"),
    "velocity_north": ("velocity_north", "v_north", "vn", "vx_ned"),
    "speed": ("speed", "speed_ms", "speed(m/s)"),
    "latitude": ("latitude", "lat"),
    "longitude": ("longitude", "lon", "lng"),
}
"""Names of a column, by quantity; upper and lower case are the same."""
_PITCH = ("pitch_deg", "gimbal_pitch", "gimbal_pitch_deg", "gimbal_pitch(degrees)")
_SECONDS = ("time_s", "time", "seconds", "t")
_MILLISECONDS = ("time_ms", "time(millisecond)")


def read_csv(path: Path) -> Telemetry:
    """Read a CSV: seconds in `time_s`, or ISO 8601 or Unix time, and any of COLUMNS. Empty cells are unknown.

    An absolute clock is counted from its first row.
    """
    rows: list[tuple[float, dict[str, str]]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            names = {(name or "").strip().lower() for name in reader.fieldnames or ()}
            if not names & {*_SECONDS, *_MILLISECONDS}:
                raise SkyPartError(f"{path}: has no column of time; name one time_s, in seconds")
            for number, raw in enumerate(reader, start=2):
                row = {
                    (key or "").strip().lower(): value.strip() for key, value in raw.items() if isinstance(value, str)
                }
                rows.append((_seconds(path, number, row), row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{path}: not a CSV file ({error}); save it as CSV in UTF-8") from error
    rows = [(seconds, row) for seconds, row in rows if math.isfinite(seconds)]
    if not rows:
        raise SkyPartError(f"{path}: lists no row with a time; fill the column time_s")
    first = min(seconds for seconds, _ in rows)
    absolute = first > 1e8
    samples = [
        _sample(seconds - first if absolute else seconds, row) for seconds, row in sorted(rows, key=lambda r: r[0])
    ]
    found = Telemetry(samples, source=path.name, start=unix_time(first))
    return require_values(found, f"name its columns, for example {', '.join(COLUMNS)}")


def _seconds(path: Path, number: int, row: dict[str, str]) -> float:
    for names, scale in ((_SECONDS, 1.0), (_MILLISECONDS, 1e-3)):
        text = next((row[name] for name in names if row.get(name)), "")
        if text:
            try:
                return float(text) * scale
            except ValueError:
                pass
            try:
                moment = datetime.fromisoformat(text)
            except ValueError as error:
                raise SkyPartError(f"{path}, line {number}: {text!r} is not a time; give seconds") from error
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return math.nan


def _sample(time_s: float, row: dict[str, str]) -> Sample:
    values = {name: _number(row, names) for name, names in COLUMNS.items()}
    if values["tilt_deg"] is None and (pitch := _number(row, _PITCH)) is not None:
        values["tilt_deg"] = -pitch
    return Sample(time_s=time_s, **values)


def _number(row: dict[str, str], names: tuple[str, ...]) -> float | None:
    text = next((row[name] for name in names if row.get(name)), "")
    try:
        return float(text) if text else None
    except ValueError:
        return math.nan  # counted as impossible
