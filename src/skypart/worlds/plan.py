"""The plan of a procedural region: all objects and their positions, before it is painted for a date."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from skypart.worlds.ground import FloatMap
from skypart.worlds.polygons import Polygon

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Patch:
    """A surface: polygon, material, colour shift, and stripes (angle, period in metres, strength) or None."""

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
    """A box with a roof. length is along angle (radians, x east to y south); height is that of the eaves."""

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
    """A parking space and the probability that there is a car."""

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

    def directions(self, centres: NDArray[np.float64], angles: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bend (n,) directions (radians) at (n, 2) points."""
        ahead = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 4.0
        chord = self.points(centres + ahead) - self.points(centres - ahead)
        return np.arctan2(chord[:, 1], chord[:, 0])


@dataclass
class Plan:
    """All objects of a region in metres; straight until `bend` is called, once, at the end."""

    warp: Warp
    patches: list[Patch] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    buildings: list[Building] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    bays: list[Bay] = field(default_factory=list)

    def add_patch(
        self,
        polygon: Polygon,
        material: str,
        rng: np.random.Generator,
        spread: float = 5.0,
        stripes: tuple[float, float, float] | None = None,
        crop: bool = False,
    ) -> None:
        """Add a surface whose colour varies slightly from its material's."""
        if len(polygon) < 3:
            return
        grey, hue = rng.normal(0, spread), rng.normal(0, spread / 3, 3)
        tone = (float(grey + hue[0]), float(grey + hue[1]), float(grey + hue[2]))
        self.patches.append(Patch(polygon, material, tone, stripes, crop))

    def add_line(self, points: NDArray[np.float64], width: float, colour: Colour, closed: bool = False) -> None:
        """Add a painted line."""
        self.lines.append(Line(np.asarray(points, dtype=float), width, colour, closed))

    def add_building(self, building: Building) -> None:
        """Add a building."""
        self.buildings.append(building)

    def add_tree(self, point: NDArray[np.float64], rng: np.random.Generator, size: float = 1.0) -> None:
        """Add a tree of random size and green."""
        radius = float(np.clip(rng.lognormal(0.9, 0.35), 1.2, 6.0)) * size
        shade = rng.normal(0, 9)
        colour = (62 + shade + rng.normal(0, 8), 84 + shade + rng.normal(0, 6), 44 + shade + rng.normal(0, 5))
        height = radius * rng.uniform(1.7, 2.9) + 1.5
        self.trees.append(Tree((float(point[0]), float(point[1])), radius, float(height), colour))

    def add_bay(self, centre: tuple[float, float], angle: float, chance: float) -> None:
        """Add a parking space."""
        self.bays.append(Bay(centre, angle, chance))

    def bend(self) -> None:
        """Apply the warp to all objects."""
        polygons = self._bend_outlines([(patch.polygon, True) for patch in self.patches])
        lines = self._bend_outlines([(line.points, line.closed) for line in self.lines])
        self.patches = [replace(patch, polygon=bent) for patch, bent in zip(self.patches, polygons, strict=True)]
        self.lines = [replace(line, points=bent) for line, bent in zip(self.lines, lines, strict=True)]
        self.buildings = [
            replace(each, centre=centre, angle=angle)
            for each, (centre, angle) in zip(self.buildings, self._bend_poses(self.buildings), strict=True)
        ]
        self.bays = [
            replace(each, centre=centre, angle=angle)
            for each, (centre, angle) in zip(self.bays, self._bend_poses(self.bays), strict=True)
        ]
        if self.trees:
            moved = self.warp.points(np.array([tree.centre for tree in self.trees]))
            self.trees = [
                replace(tree, centre=(float(x), float(y))) for tree, (x, y) in zip(self.trees, moved, strict=True)
            ]

    def _bend_outlines(self, outlines: list[tuple[NDArray[np.float64], bool]]) -> list[NDArray[np.float64]]:
        """Bend many outlines at once."""
        dense = [_densify(points, closed) for points, closed in outlines]
        if not dense:
            return []
        moved = self.warp.points(np.concatenate(dense))
        return np.split(moved, np.cumsum([len(part) for part in dense])[:-1])

    def _bend_poses(self, objects: Sequence[Building | Bay]) -> list[tuple[tuple[float, float], float]]:
        """Bent centres and directions of many objects at once."""
        if not objects:
            return []
        centres, angles = np.array([each.centre for each in objects]), np.array([each.angle for each in objects])
        moved, turned = self.warp.points(centres), self.warp.directions(centres, angles)
        return [((float(x), float(y)), float(angle)) for (x, y), angle in zip(moved, turned, strict=True)]


def _densify(points: NDArray[np.float64], closed: bool, step: float = 8.0) -> NDArray[np.float64]:
    """Points at most `step` metres apart along the outline, so that it can bend."""
    ends = np.roll(points, -1, axis=0) if closed else points[1:]
    pieces = []
    for start, end in zip(points if closed else points[:-1], ends, strict=True):
        count = max(int(np.hypot(*(end - start)) / step), 1)
        pieces.append(start + (end - start) * (np.arange(count) / count)[:, None])
    if not closed:
        pieces.append(points[-1:])
    return np.concatenate(pieces)
