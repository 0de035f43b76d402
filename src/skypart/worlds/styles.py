"""The styles of procedural regions, and what they consist of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skypart.worlds.built_land import houses, perimeter, slabs
from skypart.worlds.industry import car_park, halls
from skypart.worlds.open_land import bare, field, orchard, park, sports, square, wood
from skypart.worlds.plan import Plan
from skypart.worlds.polygons import Polygon

LandUse = Callable[[Plan, Polygon, np.random.Generator], None]


@dataclass(frozen=True)
class Style:
    """What a region of this style consists of.

    block: area of a block in square metres. roads: widths in metres of main and side streets. bend: metres by which
    streets wander. relief: metres. uses: land uses with their weights. water: chance of a river; coast: a sea.
    """

    block: float
    roads: tuple[float, float]
    bend: float
    relief: float
    uses: tuple[tuple[LandUse, float], ...]
    water: float = 0.25
    coast: bool = False
    skew: float = 0.08


STYLES: dict[str, Style] = {
    "town": Style(
        5200,
        (18, 10),
        10,
        4,
        ((perimeter, 10), (slabs, 2), (square, 1.6), (park, 1.4), (car_park, 1), (sports, 0.5), (houses, 1)),
    ),
    "suburb": Style(
        9000,
        (14, 8),
        26,
        6,
        ((houses, 10), (park, 1.2), (slabs, 1), (sports, 1), (car_park, 0.8), (wood, 0.6), (square, 0.3)),
    ),
    "industry": Style(
        21000,
        (18, 11),
        6,
        2,
        ((halls, 9), (car_park, 2), (bare, 1.4), (field, 0.6), (slabs, 0.7), (houses, 0.7)),
        skew=0.04,
    ),
    "farmland": Style(
        26000, (8, 5), 34, 14, ((field, 9), (wood, 1.6), (orchard, 2), (houses, 1.1), (bare, 0.4)), 0.45, skew=0.16
    ),
    "campus": Style(
        14000,
        (14, 8),
        16,
        5,
        ((slabs, 7), (sports, 2), (park, 2), (car_park, 1.6), (square, 1), (houses, 0.6), (wood, 0.5)),
    ),
    "coast": Style(
        9000,
        (14, 8),
        24,
        7,
        (
            (houses, 5),
            (slabs, 2),
            (perimeter, 1.6),
            (park, 1.4),
            (car_park, 1),
            (halls, 0.8),
            (bare, 0.6),
            (square, 0.5),
        ),
        0.0,
        True,
    ),
}
