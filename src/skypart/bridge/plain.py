"""Fixes and track points as plain values that any format can hold: no NaN, no infinity, no unwritable letters."""

import dataclasses
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from skypart.position.fix import Fix
from skypart.position.track_point import TrackPoint

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def plain_text(text: str) -> str:
    """Text that XML, JSON and UTF-8 can hold: a letter that they cannot becomes a question mark."""
    return _UNWRITABLE.sub("?", text)


def plain(value: Any) -> Any:
    """A value of dictionaries, lists, text, numbers and None alone; a number that is not finite becomes None."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    number = float(value)
    return number if math.isfinite(number) else None


def fix_values(fix: Fix) -> dict[str, Any]:
    """What is told of a fix in a table or on a map, in this order."""
    names = ("photo", "latitude", "longitude", "radius_m", "confidence", "heading_deg", "reason", "refined")
    values = {name: plain(getattr(fix, name)) for name in names}
    values.update({name: plain(getattr(fix, name)) for name in ("calibrated", "ground_m")})
    values.update({name: plain(getattr(fix, name)) for name in ("drone_latitude", "drone_longitude", "seconds")})
    if values["latitude"] is None or values["longitude"] is None:
        values["latitude"] = values["longitude"] = values["radius_m"] = None
    return values


def point_values(point: TrackPoint, start: datetime | None) -> dict[str, Any]:
    """What is told of a track point in a table or on a map, in this order."""
    names = ("time_s", "latitude", "longitude", "radius_m", "confidence", "state")
    values = {name: plain(getattr(point, name)) for name in names}
    values["time"] = None if start is None else moment(point, start)
    raw = point.raw
    values["photo"] = None if raw is None else plain_text(raw.photo)
    values["raw_latitude"] = None if raw is None else plain(raw.latitude)
    values["raw_longitude"] = None if raw is None else plain(raw.longitude)
    return values


def moment(point: TrackPoint, start: datetime | None) -> str:
    """When a point was, as ISO 8601: in UTC, with a Z, or by the clock of a start without zone, without one.

    Without a start the clock is set to the first of January 1970.
    """
    begin = start or datetime(1970, 1, 1, tzinfo=UTC)
    begin = begin if begin.tzinfo is None else begin.astimezone(UTC)
    return (begin + timedelta(seconds=point.time_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
