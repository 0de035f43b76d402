"""Regions: boxes of degrees that are the partitions of a collection, so that an area searches few of them."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from skypart.geo.footprint import Bounds

_SLACK = 1e-9
"""Degrees by which an interval is widened, against rounding."""
Spans: TypeAlias = Sequence[tuple[float, float]]
"""Intervals of longitude, (west, east) in -180..180."""


def meridian(longitude: float) -> float:
    """A longitude in -180..180."""
    return (longitude + 180.0) % 360.0 - 180.0


def region(latitude: float, longitude: float, size: int) -> str:
    """The partition of a place, named by row and column. size: degrees per partition."""
    return f"region_{int((latitude + 90) // size)}_{int((meridian(longitude) + 180) // size)}"


def meridian_spans(west: float, east: float) -> Spans:
    """The interval from west to east as one or two intervals in -180..180, a little larger."""
    if east - west >= 360:
        return [(-180.0, 180.0)]
    low, high = meridian(west) - _SLACK, meridian(east) + _SLACK
    if low <= high and (east - west) % 360 <= high - low + 1e-6:
        return [(low, high)]
    return [(low, 180.0), (-180.0, high)]


def touches(partition: str, size: int, box: Bounds, spans: Spans) -> bool:
    """Whether a partition can hold views in a box. spans: the longitudes of the box."""
    match = re.fullmatch(r"region_(\d+)_(\d+)", partition)
    if match is None:
        return False
    south, west = int(match[1]) * size - 90, int(match[2]) * size - 180
    return (
        south <= box.north
        and south + size >= box.south
        and any(west <= high and west + size >= low for low, high in spans)
    )
