"""Where a flight really was, from a table."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skypart.errors import SkyPartError
from skypart.geo.geodesy import FloatArray
from skypart.position.labelled import FILE, LATITUDE, LONGITUDE

TIME = ("time_s", "time", "seconds", "t")
FRAME = ("frame", "video_frame", "frame_number")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Known positions of a flight: seconds from its start, rising, and WGS 84 degrees; (n,) each."""

    time_s: FloatArray
    latitude: FloatArray
    longitude: FloatArray


def read_truth(path: Path, times: Mapping[str, float] | None = None, fps: float | None = None) -> Truth:
    """Read a CSV with latitude, longitude and one of time_s, frame (needs fps), file (needs times by file name)."""
    if not path.is_file():
        raise SkyPartError(f"{path}: no such file; give a CSV with columns time_s, latitude, longitude")
    by_name = {**{Path(name).name: seconds for name, seconds in (times or {}).items()}, **(times or {})}
    rows: list[tuple[float, float, float]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for number, raw in enumerate(csv.DictReader(stream), start=2):
                row = {(key or "").strip().lower(): value or "" for key, value in raw.items() if isinstance(value, str)}
                rows.append(_row(path, number, row, by_name, fps))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SkyPartError(f"{path}: not a CSV file ({error}); save it as CSV in UTF-8") from error
    if not rows:
        raise SkyPartError(f"{path}: lists no position; give a CSV with columns time_s, latitude, longitude")
    table = np.array(sorted(row for row in rows if math.isfinite(row[0])))
    if len(table) == 0:
        raise SkyPartError(f"{path}: names none of the flight's photos; correct its column file")
    _, first = np.unique(table[:, 0], return_index=True)
    return Truth(time_s=table[first, 0], latitude=table[first, 1], longitude=table[first, 2])


def _row(
    path: Path, number: int, row: Mapping[str, str], by_name: Mapping[str, float], fps: float | None
) -> tuple[float, float, float]:
    """Seconds, latitude, longitude of a line; infinite seconds for a photo that the flight does not have."""

    def column(names: Sequence[str]) -> str | None:
        return next((row[name].strip() for name in names if row.get(name, "").strip()), None)

    time, frame, file = column(TIME), column(FRAME), column(FILE)
    latitude, longitude = column(LATITUDE), column(LONGITUDE)
    try:
        if latitude is None or longitude is None:
            raise ValueError("no latitude or longitude")
        north, east = float(latitude), float(longitude)
        if not (abs(north) <= 90 and abs(east) <= 180):
            raise ValueError(f"{north}, {east} is not on the earth")
        if time is not None:
            seconds = float(time)
        elif frame is not None and fps:
            seconds = float(frame) / fps
        elif file is not None:
            seconds = by_name.get(file, by_name.get(Path(file).name, math.inf))
        else:
            raise ValueError("none of time_s, frame (of a video), file")
    except ValueError as error:
        raise SkyPartError(f"{path}, line {number}: {error}; give time_s, latitude, longitude") from error
    return seconds, north, east
