"""Fixes and track points as plain values that every format can hold: no NaN, no infinity, no invalid characters."""

import dataclasses
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from skypart.position.fix import Fix
from skypart.position.track import TrackPoint

_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_FIX_FIELDS = (
    "photo",
    "latitude",
    "longitude",
    "radius_m",
    "confidence",
    "heading_deg",
    "reason",
    "refined",
    "calibrated",
    "ground_m",
    "drone_latitude",
    "drone_longitude",
    "seconds",
)
_POINT_FIELDS = ("time_s", "latitude", "longitude", "radius_m", "confidence", "state")
_MORE_POINT_FIELDS = (
    "source",
    "anchor_age_s",
    "protection_m",
    "velocity_east",
    "velocity_north",
    "heading_deg",
    "of",
)


def clean_text(text: str) -> str:
    """Text that is valid in XML, JSON and UTF-8: invalid characters become question marks."""
    return _INVALID.sub("?", text)


def to_plain(value: Any) -> Any:
    """Convert to dictionaries, lists, text, numbers and None; a number that is not finite becomes None."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    number = float(value)
    return number if math.isfinite(number) else None


def fix_values(fix: Fix) -> dict[str, Any]:
    """The values of a fix for a table or a map, in column order."""
    values = {name: to_plain(getattr(fix, name)) for name in _FIX_FIELDS}
    if values["latitude"] is None or values["longitude"] is None:
        values["latitude"] = values["longitude"] = values["radius_m"] = None
    return values


def point_values(point: TrackPoint, start: datetime | None) -> dict[str, Any]:
    """The values of a track point for a table or a map, in column order. start: when the flight began."""
    values = {name: to_plain(getattr(point, name)) for name in _POINT_FIELDS}
    values["time"] = None if start is None else timestamp(point, start)
    raw = point.raw
    values["photo"] = None if raw is None else clean_text(raw.photo)
    values["raw_latitude"] = None if raw is None else to_plain(raw.latitude)
    values["raw_longitude"] = None if raw is None else to_plain(raw.longitude)
    values |= {name: to_plain(getattr(point, name)) for name in _MORE_POINT_FIELDS}
    covariance = point.covariance or (None, None, None)
    values |= {f"covariance_{name}": to_plain(each) for name, each in zip(("ee", "en", "nn"), covariance, strict=True)}
    return values


def timestamp(point: TrackPoint, start: datetime | None) -> str:
    """The time of a point as ISO 8601: in UTC with a Z, or local without one if `start` has no time zone.

    Without a start, the flight begins on 1 January 1970.
    """
    begin = start or datetime(1970, 1, 1, tzinfo=UTC)
    begin = begin if begin.tzinfo is None else begin.astimezone(UTC)
    return (begin + timedelta(seconds=point.time_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
