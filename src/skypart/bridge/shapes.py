"""Circles and lines in degrees, cut in two where they cross the antimeridian."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skypart.geo.geodesy import distance_m, offset, wrap_longitude

_CORNERS = 64


class Place(NamedTuple):
    """A point in WGS 84 degrees."""

    latitude: float
    longitude: float


def circle(*, latitude: float, longitude: float, radius_m: float) -> list[list[Place]]:
    """Closed rings, anticlockwise, around the points within `radius_m`: one, or one each side of the antimeridian.

    None where the circle holds a pole, which no ring can enclose.
    """
    pole = distance_m(latitude=latitude, longitude=longitude, to_latitude=np.array([90.0, -90.0]), to_longitude=0.0)
    if not 0 < radius_m < float(pole.min()):
        return []
    bearing = np.linspace(360.0, 0.0, _CORNERS + 1)
    spots = offset(latitude=latitude, longitude=longitude, bearing=bearing, metres=radius_m)
    east = wrap_longitude(spots.longitude, longitude)
    ring = [Place(*map(float, pair)) for pair in zip(spots.latitude, east, strict=True)]
    parts = [_clipped(ring, edge, side) for edge in (180.0, -180.0) for side in (1, -1) if _crosses(ring, edge)]
    rings = [part for part in parts if len(part) >= 4] or [ring]
    return [[Place(place.latitude, longitude) for place, longitude in _home(each)] for each in rings]


def lines(places: Sequence[Place | None]) -> list[list[Place]]:
    """A path as one or more lines: one ends where no place is known, and where the antimeridian is crossed."""
    parts: list[list[Place]] = [[]]
    for place in places:
        if place is None:
            parts.append([])
            continue
        if parts[-1]:
            last = parts[-1][-1]
            beyond = float(wrap_longitude(place.longitude, last.longitude))
            if abs(beyond) > 180.0:
                edge = 180.0 if beyond > 0 else -180.0
                share = (edge - last.longitude) / (beyond - last.longitude)
                latitude = last.latitude + share * (place.latitude - last.latitude)
                parts[-1].append(Place(latitude, edge))
                parts.append([Place(latitude, -edge)])
        parts[-1].append(place)
    return [part for part in parts if len(part) > 1]


def place_of(latitude: float | None, longitude: float | None) -> Place | None:
    """A place, or None where nothing is known."""
    return None if latitude is None or longitude is None else Place(latitude, longitude)


def _crosses(ring: list[Place], edge: float) -> bool:
    return min(place.longitude for place in ring) < edge < max(place.longitude for place in ring)


def _clipped(ring: list[Place], edge: float, side: int) -> list[Place]:
    """The part of a closed ring west (side 1) or east (-1) of a meridian, closed again."""
    kept: list[Place] = []
    for first, second in pairwise(ring):
        here, there = side * (edge - first.longitude), side * (edge - second.longitude)
        if here >= 0:
            kept.append(first)
        if (here > 0) != (there > 0) and here != there:
            share = here / (here - there)
            kept.append(Place(first.latitude + share * (second.latitude - first.latitude), edge))
    return [*kept, kept[0]] if kept else []


def _home(ring: list[Place]) -> list[tuple[Place, float]]:
    """Places of a ring with their longitudes moved to -180..180, all by the same turn."""
    middle = sum(place.longitude for place in ring) / len(ring)
    turn = float(wrap_longitude(middle)) - middle
    return [(place, min(180.0, max(-180.0, place.longitude + turn))) for place in ring]
