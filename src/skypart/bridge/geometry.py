"""Circles and lines in degrees, split where they cross the antimeridian."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from skypart.geo.geodesy import distance_m, offset, wrap_longitude
from skypart.position.fix import Place

_CORNERS = 64


def circle_rings(centre: Place, radius_m: float) -> list[list[Place]]:
    """The circle of radius `radius_m` metres as closed rings, anticlockwise.

    There are two rings if the circle crosses the antimeridian. There are none if it contains a
    pole, which no ring can enclose.
    """
    latitude, longitude = centre
    pole = distance_m(latitude=latitude, longitude=longitude, to_latitude=np.array([90.0, -90.0]), to_longitude=0.0)
    if not 0 < radius_m < float(pole.min()):
        return []
    bearing = np.linspace(360.0, 0.0, _CORNERS + 1)
    points = offset(latitude=latitude, longitude=longitude, bearing=bearing, metres=radius_m)
    east = wrap_longitude(points.longitude, longitude)
    ring = [Place(*map(float, pair)) for pair in zip(points.latitude, east, strict=True)]
    parts = [_clip(ring, edge, side) for edge in (180.0, -180.0) for side in (1, -1) if _crosses(ring, edge)]
    rings = [part for part in parts if len(part) >= 4] or [ring]
    return [_wrap_ring(each) for each in rings]


def split_path(places: Sequence[Place | None]) -> list[list[Place]]:
    """A path as lines of two or more places, split where a place is unknown and at the antimeridian."""
    lines: list[list[Place]] = [[]]
    for place in places:
        if place is None:
            lines.append([])
            continue
        if lines[-1]:
            last = lines[-1][-1]
            longitude = float(wrap_longitude(place.longitude, last.longitude))
            if abs(longitude) > 180.0:
                edge = 180.0 if longitude > 0 else -180.0
                share = (edge - last.longitude) / (longitude - last.longitude)
                latitude = last.latitude + share * (place.latitude - last.latitude)
                lines[-1].append(Place(latitude, edge))
                lines.append([Place(latitude, -edge)])
        lines[-1].append(place)
    return [line for line in lines if len(line) > 1]


def place_or_none(latitude: float | None, longitude: float | None) -> Place | None:
    """A place, or None if a coordinate is unknown."""
    return None if latitude is None or longitude is None else Place(latitude, longitude)


def _crosses(ring: list[Place], edge: float) -> bool:
    return min(place.longitude for place in ring) < edge < max(place.longitude for place in ring)


def _clip(ring: list[Place], edge: float, side: int) -> list[Place]:
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


def _wrap_ring(ring: list[Place]) -> list[Place]:
    """A ring with longitudes moved into -180..180, all by the same number of turns."""
    middle = sum(place.longitude for place in ring) / len(ring)
    turn = float(wrap_longitude(middle)) - middle
    return [Place(place.latitude, min(180.0, max(-180.0, place.longitude + turn))) for place in ring]
