"""The streets of a procedural region: blocks cut apart by roads, with their markings and cars."""

import math

import numpy as np
from numpy.typing import NDArray

from skypart.worlds.plan import Plan
from skypart.worlds.polygons import Polygon, area, halve, rectangle

Road = tuple[NDArray[np.float64], float]
"""(n, 2) points of a bent centre line, and the road's width in metres."""
MAIN_LEVELS = 4
"""The first cuts are main roads."""


def cut_blocks(
    plan: Plan, extent: float, block: float, widths: tuple[float, float], skew: float, rng: np.random.Generator
) -> tuple[list[Polygon], list[Road]]:
    """Cut the square of `extent` metres into blocks of about `block` square metres; also the main roads.

    widths: of main roads and of side streets, metres. skew: deviation of cuts from the right angle, radians.
    """
    outline = rectangle((extent / 2, extent / 2), extent * 1.5, extent * 1.5, rng.uniform(0, math.pi))
    blocks: list[Polygon] = []
    roads: list[Road] = []
    pieces = [(outline, 0)]
    while pieces:
        piece, level = pieces.pop()
        if len(piece) < 3 or _outside(piece, extent):
            continue
        if area(piece) < block * rng.uniform(1.0, 2.3):
            blocks.append(piece)
            continue
        width = widths[0] if level < MAIN_LEVELS else widths[1]
        halves = halve(piece, rng, width, skew)
        if all(len(half) >= 3 for half in halves):
            start, end = _road_ends(halves, width)
            if level < MAIN_LEVELS:
                count = max(int(np.hypot(*(end - start)) / 8), 2)
                roads.append((plan.warp.points(np.linspace(start, end, count)), width))
            _add_markings(plan, start, end, width, extent)
            pieces += [(half, level + 1) for half in halves]
    return blocks, roads


def _outside(piece: Polygon, extent: float, slack: float = 60.0) -> bool:
    low, high = piece.min(axis=0), piece.max(axis=0)
    return bool((high < -slack).any() or (low > extent + slack).any())


def _road_ends(halves: tuple[Polygon, Polygon], width: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the centre line of the road between two halves."""
    gaps = ((halves[0][:, None] - halves[1][None]) ** 2).sum(axis=2)
    near = np.argsort(gaps, axis=None, kind="stable")
    pairs = np.stack(np.unravel_index(near, gaps.shape), axis=1)
    middles = (halves[0][pairs[:, 0]] + halves[1][pairs[:, 1]]) / 2
    apart = np.hypot(*(middles - middles[0]).T) > 2 * width
    return middles[0], middles[int(np.argmax(apart))]


def _add_markings(
    plan: Plan, start: NDArray[np.float64], end: NDArray[np.float64], width: float, extent: float
) -> None:
    """Add dashes on wide roads, moving cars, and cars at the kerb."""
    length = float(np.hypot(*(end - start)))
    ahead, angle = (end - start) / max(length, 1e-6), math.atan2(*(end - start)[::-1])
    aside = np.array([-ahead[1], ahead[0]])

    def spots(first: float, pace: float, offset: float) -> NDArray[np.float64]:
        points = start + np.arange(first, max(length - 2, first), pace)[:, None] * ahead + aside * offset
        inside = ((points > -40) & (points < extent + 40)).all(axis=1)
        chosen: NDArray[np.float64] = points[inside]
        return chosen

    if width >= 10:
        for spot in spots(2.0, 9.0, 0.0):
            plan.add_line(np.stack([spot, spot + ahead * 4.5]), 0.3, (214, 212, 200))
    for lane in (width / 4, -width / 4) if width >= 7 else (0.0,):
        for spot in spots(6.0, 11.0, lane):
            plan.add_bay((float(spot[0]), float(spot[1])), angle, 0.07)
    for kerb in (width / 2 - 1.3, 1.3 - width / 2) if width >= 9 else ():
        for spot in spots(3.0, 6.2, kerb):
            plan.add_bay((float(spot[0]), float(spot[1])), angle, 0.22)
