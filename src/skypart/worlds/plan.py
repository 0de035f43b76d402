"""The plan of a procedural region: what stands where, before it is painted at a date."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from skypart.worlds.ground import FloatMap
from skypart.worlds.polygons import Polygon

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Patch:
    """A surface: polygon, material, shift of its colour, stripes (angle, period in metres, strength) or none."""

    polygon: Polygon
    material: str
    tone: Colour = (0.0, 0.0, 0.0)
    stripes: tuple[float, float, float] | None = None
    crop: bool = False


@dataclass(frozen=True)
class Line:
    """A painted line of `width` metres: markings, paths, rails."""

    points: NDArray[np.float64]
    width: float
    colour: Colour
    closed: bool = False


@dataclass(frozen=True)
class Building:
    """A box with a roof; length runs along angle (radians, x east to y south); height is that of the eaves."""

    centre: tuple[float, float]
    length: float
    width: float
    angle: float
    height: float
    roof: str
    roof_colour: Colour
    wall_colour: Colour
    pitch: float = 0.6
    windows: bool = True
    fixed: bool = False
    detail: int = 0


@dataclass(frozen=True)
class Tree:
    """A crown of `radius` metres, `height` metres high."""

    centre: tuple[float, float]
    radius: float
    height: float
    colour: Colour


@dataclass(frozen=True)
class Bay:
    """A place for a car and the chance that one stands there."""

    centre: tuple[float, float]
    angle: float
    chance: float


@dataclass
class Warp:
    """A smooth bend of the whole plan, so that roads curve; `dx`, `dy` are metres on a grid of `cell` metres."""

    dx: FloatMap
    dy: FloatMap
    cell: float

    def points(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bend (n, 2) points."""
        grid = np.clip(points / self.cell, 0, np.array(self.dx.shape[::-1]) - 1.001)
        column, row = grid[:, 0].astype(int), grid[:, 1].astype(int)
        u, v = grid[:, 0] - column, grid[:, 1] - row
        moved = points.copy()
        for axis, shift in enumerate((self.dx, self.dy)):
            top = shift[row, column] * (1 - u) + shift[row, column + 1] * u
            bottom = shift[row + 1, column] * (1 - u) + shift[row + 1, column + 1] * u
            moved[:, axis] += top * (1 - v) + bottom * v
        return moved

    def place(self, centre: tuple[float, float], angle: float) -> tuple[tuple[float, float], float]:
        """Bend a centre and the direction there."""
        ahead = np.array([math.cos(angle), math.sin(angle)]) * 4.0
        here = np.asarray(centre)
        moved = self.points(np.stack([here, here + ahead, here - ahead]))
        turned = math.atan2(moved[1, 1] - moved[2, 1], moved[1, 0] - moved[2, 0])
        return (float(moved[0, 0]), float(moved[0, 1])), turned


@dataclass
class Plan:
    """Everything of a region, in metres; `add` bends what it is given."""

    warp: Warp
    patches: list[Patch] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    buildings: list[Building] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    bays: list[Bay] = field(default_factory=list)

    def patch(
        self, polygon: Polygon, material: str, rng: np.random.Generator, spread: float = 5.0, **more: object
    ) -> None:
        """Add a surface whose colour differs a little from its material's."""
        if len(polygon) < 3:
            return
        grey, hue = rng.normal(0, spread), rng.normal(0, spread / 3, 3)
        tone = (float(grey + hue[0]), float(grey + hue[1]), float(grey + hue[2]))
        self.patches.append(replace(Patch(self.warp.points(_dense(polygon, True)), material, tone), **more))  # type: ignore[arg-type]

    def line(self, points: NDArray[np.float64], width: float, colour: Colour, closed: bool = False) -> None:
        """Add a painted line."""
        self.lines.append(
            Line(self.warp.points(_dense(np.asarray(points, dtype=float), closed)), width, colour, closed)
        )

    def building(self, building: Building) -> None:
        """Add a building, turned and moved with the plan."""
        centre, angle = self.warp.place(building.centre, building.angle)
        self.buildings.append(replace(building, centre=centre, angle=angle))

    def tree(self, point: NDArray[np.float64], rng: np.random.Generator, size: float = 1.0) -> None:
        """Add a tree of random size and green."""
        radius = float(np.clip(rng.lognormal(0.9, 0.35), 1.2, 6.0)) * size
        shade = rng.normal(0, 9)
        colour = (62 + shade + rng.normal(0, 8), 84 + shade + rng.normal(0, 6), 44 + shade + rng.normal(0, 5))
        moved = self.warp.points(np.asarray(point)[None])[0]
        height = radius * rng.uniform(1.7, 2.9) + 1.5
        self.trees.append(Tree((float(moved[0]), float(moved[1])), radius, float(height), colour))

    def bay(self, centre: tuple[float, float], angle: float, chance: float) -> None:
        """Add a place for a car."""
        moved, turned = self.warp.place(centre, angle)
        self.bays.append(Bay(moved, turned, chance))


def _dense(points: NDArray[np.float64], closed: bool, step: float = 8.0) -> NDArray[np.float64]:
    """Points at most `step` metres apart along the outline, so that it can bend."""
    ends = np.roll(points, -1, axis=0) if closed else points[1:]
    pieces = []
    for start, end in zip(points if closed else points[:-1], ends, strict=True):
        count = max(int(np.hypot(*(end - start)) / step), 1)
        pieces.append(start + (end - start) * (np.arange(count) / count)[:, None])
    if not closed:
        pieces.append(points[-1:])
    return np.concatenate(pieces)
