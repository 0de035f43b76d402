"""Convex polygons in metres: cutting, shrinking, splitting into blocks and lots, and a rectangle inside."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

Polygon = NDArray[np.float64]
"""(n, 2) corners of a convex polygon, x east and y south in metres."""


def area(polygon: Polygon) -> float:
    """Area in square metres."""
    x, y = polygon[:, 0], polygon[:, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def rectangle(centre: tuple[float, float], length: float, width: float, angle: float) -> Polygon:
    """Corners of a rectangle whose `length` runs along `angle` (radians)."""
    along = np.array([math.cos(angle), math.sin(angle)]) * length / 2
    across = np.array([-math.sin(angle), math.cos(angle)]) * width / 2
    corners: Polygon = np.asarray(centre) + np.array([along + across, -along + across, -along - across, along - across])
    return corners


def clip(polygon: Polygon, normal: NDArray[np.float64], offset: float) -> Polygon:
    """The part with `normal` . p <= offset; may be empty."""
    kept: list[NDArray[np.float64]] = []
    side = polygon @ normal - offset
    for index in range(len(polygon)):
        following = (index + 1) % len(polygon)
        if side[index] <= 0:
            kept.append(polygon[index])
        if (side[index] < 0 < side[following]) or (side[following] < 0 < side[index]):
            share = side[index] / (side[index] - side[following])
            kept.append(polygon[index] + share * (polygon[following] - polygon[index]))
    return np.array(kept).reshape(-1, 2)


def inset(polygon: Polygon, distance: float) -> Polygon:
    """The polygon with every edge moved inwards; empty when nothing is left."""
    centre = polygon.mean(axis=0)
    shrunk = polygon
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        normal = np.array([end[1] - start[1], start[0] - end[0]])
        size = float(np.hypot(*normal))
        if size < 1e-6:
            continue
        normal = normal / size
        if float(normal @ (centre - start)) > 0:
            normal = -normal
        shrunk = clip(shrunk, normal, float(normal @ start) - distance)
        if len(shrunk) < 3:
            return np.zeros((0, 2))
    return shrunk


def main_axis(polygon: Polygon) -> tuple[float, float, float]:
    """Angle (radians), length and width of the smallest enclosing rectangle."""
    (_, (width, height), angle) = cv2.minAreaRect(polygon.astype(np.float32))
    turned = math.radians(angle)
    return (turned, width, height) if width >= height else (turned + math.pi / 2, height, width)


def halve(polygon: Polygon, rng: np.random.Generator, gap: float = 0.0, skew: float = 0.08) -> tuple[Polygon, Polygon]:
    """Cut across the longer side near the middle, leaving a `gap` for a road."""
    angle, _, _ = main_axis(polygon)
    angle += rng.normal(0.0, skew)
    normal = np.array([math.cos(angle), math.sin(angle)])
    reach = polygon @ normal
    place = reach.min() + (reach.max() - reach.min()) * rng.uniform(0.38, 0.62)
    return clip(polygon, normal, place - gap / 2), clip(polygon, -normal, -place - gap / 2)


def split(
    polygon: Polygon, rng: np.random.Generator, target: float, gap: float = 0.0, skew: float = 0.08
) -> list[Polygon]:
    """Cut into pieces of about `target` square metres."""
    if len(polygon) < 3:
        return []
    if area(polygon) < target * rng.uniform(1.1, 1.9):
        return [polygon]
    return [piece for half in halve(polygon, rng, gap, skew) for piece in split(half, rng, target, gap, skew)]


def inner_rectangle(polygon: Polygon) -> tuple[tuple[float, float], float, float, float] | None:
    """Centre, length, width and angle of a large rectangle inside the polygon, along its main axis."""
    if len(polygon) < 3 or area(polygon) < 4:
        return None
    angle, length, width = main_axis(polygon)
    centre = polygon.mean(axis=0)
    outline = polygon.astype(np.float32)
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        corners = rectangle((centre[0], centre[1]), length * middle, width * middle, angle)
        inside = all(cv2.pointPolygonTest(outline, (float(x), float(y)), False) >= 0 for x, y in corners)
        low, high = (middle, high) if inside else (low, middle)
    if low * width < 2:
        return None
    return (float(centre[0]), float(centre[1])), length * low, width * low, angle


def scatter(polygon: Polygon, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """About `count` random points inside, (n, 2)."""
    if len(polygon) < 3:
        return np.zeros((0, 2))
    low, high = polygon.min(axis=0), polygon.max(axis=0)
    box = float(np.prod(np.maximum(high - low, 1e-6)))
    points = rng.uniform(low, high, (max(int(count * box / max(area(polygon), 1e-6)), 1), 2))
    inside = np.ones(len(points), dtype=bool)
    centre = polygon.mean(axis=0)
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        normal = np.array([end[1] - start[1], start[0] - end[0]])
        side = np.sign(float(normal @ (centre - start)))
        inside &= side * ((points - start) @ normal) >= 0
    return points[inside]


def round_corners(points: NDArray[np.float64], times: int = 3) -> NDArray[np.float64]:
    """Smooth an open line by cutting its corners `times` times; the ends stay fixed."""
    for _ in range(times):
        early, late = 0.75 * points[:-1] + 0.25 * points[1:], 0.25 * points[:-1] + 0.75 * points[1:]
        middle = np.stack([early, late], axis=1).reshape(-1, 2)
        points = np.concatenate([points[:1], middle, points[-1:]])
    return points
