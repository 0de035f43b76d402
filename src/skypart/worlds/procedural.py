"""Procedural regions: a style, a seed and an extent give a World with two or three dates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.worlds.built import car_park, halls, houses, perimeter, pick, slabs
from skypart.worlds.ground import ByteMap, FloatMap, Ground, World
from skypart.worlds.noise import fractal
from skypart.worlds.open_land import bare, field, orchard, park, sports, square, wood
from skypart.worlds.paint import Canvas, paint_cars, paint_lines, paint_patches, paint_trees, textures, tree_stamps
from skypart.worlds.plan import Building, Plan, Warp
from skypart.worlds.polygons import Polygon, area, halve, rectangle
from skypart.worlds.roofs import paint_building

LandUse = Callable[[Plan, Polygon, np.random.Generator], None]


@dataclass(frozen=True)
class Style:
    """What a kind of region is made of.

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
        42000, (8, 5), 34, 14, ((field, 9), (wood, 1.6), (orchard, 2), (houses, 1.1), (bare, 0.4)), 0.45, skew=0.16
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
EPSG = 32632
ORIGIN = (470_000.0, 5_330_000.0)


@dataclass(frozen=True)
class Region:
    """One procedural map: its number and style decide everything, with the seed.

    extent: edge in metres. gsd: metres a pixel. changes: share by which dates differ (1 = usual). dates: 2 or 3.
    """

    seed: int
    number: int
    style: str
    extent: float = 900.0
    gsd: float = 0.3
    changes: float = 1.0
    dates: int = 2

    def __post_init__(self) -> None:
        """Refuse an unknown style."""
        if self.style not in STYLES:
            raise SkyPartError(f"unknown style {self.style!r}; choose from {', '.join(STYLES)}")

    @property
    def name(self) -> str:
        """Name of its map."""
        return f"{self.number:03d}_{self.style}"

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height in metres."""
        return self.extent, self.extent

    def load(self) -> World:
        """Make the region."""
        return make_region(self)


def make_region(region: Region) -> World:
    """A World of `region.extent` metres; the same region gives the same bytes."""
    style = STYLES[region.style]
    rng = np.random.default_rng([region.seed, region.number, 1])
    cells = round(region.extent / region.gsd)
    shape = (cells, cells)
    terrain = fractal(shape, 260 / region.gsd, rng, 2) * np.float32(style.relief / 2)
    plan, roads = _layout(region, style, rng)
    water, sand = _water(region, style, shape, rng)
    terrain -= cv2.GaussianBlur(water.astype(np.float32), (0, 0), 4 / region.gsd / 2) * np.float32(2.5)
    texture = textures(shape, region.gsd, rng)
    stamps = tree_stamps(rng)
    dry = _dry(water, region.gsd)
    plan.buildings = [each for each in plan.buildings if dry(each.centre)]
    plan.trees = [each for each in plan.trees if dry(each.centre)]
    plan.bays = [each for each in plan.bays if dry(each.centre)]
    dates = [
        _paint(region, plan, Canvas(terrain.copy(), region.gsd, texture), (water, sand), roads, stamps, date)
        for date in range(region.dates)
    ]
    columns = 32
    origin = (
        ORIGIN[0] + 2 * region.extent * (region.number % columns),
        ORIGIN[1] - 2 * region.extent * (region.number // columns),
    )
    valid: NDArray[np.bool_] | None = water == 0 if water.any() else None
    return World(region.name, dates, origin, EPSG, 1.0, valid)


def _layout(
    region: Region, style: Style, rng: np.random.Generator
) -> tuple[Plan, list[tuple[NDArray[np.float64], float]]]:
    """Cut the region into blocks by roads and give each a land use; also the main roads with their widths."""
    extent = region.extent
    grid = 40.0
    count = int(extent / grid) + 3
    bend = [fractal((count, count), 5, rng, 2) * np.float32(style.bend * 0.6) for _ in range(2)]
    plan = Plan(Warp(bend[0], bend[1], grid))
    outline = rectangle((extent / 2, extent / 2), extent * 1.5, extent * 1.5, rng.uniform(0, math.pi))
    roads: list[tuple[NDArray[np.float64], float]] = []
    uses, weights = zip(*style.uses, strict=True)
    chance = np.asarray(weights) / sum(weights)
    pieces = [(outline, 0)]
    while pieces:
        piece, level = pieces.pop()
        if len(piece) < 3 or _outside(piece, extent):
            continue
        if area(piece) < style.block * rng.uniform(1.0, 2.3):
            uses[int(rng.choice(len(uses), p=chance))](plan, piece, rng)
            continue
        width = style.roads[0] if level < 4 else style.roads[1]
        halves = halve(piece, rng, width, style.skew)
        if all(len(half) >= 3 for half in halves):
            _mark(plan, halves, width, level, roads)
            pieces += [(half, level + 1) for half in halves]
    return plan, roads


def _outside(piece: Polygon, extent: float, slack: float = 60.0) -> bool:
    low, high = piece.min(axis=0), piece.max(axis=0)
    return bool((high < -slack).any() or (low > extent + slack).any())


def _mark(
    plan: Plan,
    halves: tuple[Polygon, Polygon],
    width: float,
    level: int,
    roads: list[tuple[NDArray[np.float64], float]],
) -> None:
    """The centre line of the road between two halves: kept for bridges, and painted on wide roads; cars drive on it."""
    gaps = ((halves[0][:, None] - halves[1][None]) ** 2).sum(axis=2)
    near = np.argsort(gaps, axis=None)
    first = np.unravel_index(near[0], gaps.shape)
    start = (halves[0][first[0]] + halves[1][first[1]]) / 2
    for pick_next in near[1:]:
        pair = np.unravel_index(pick_next, gaps.shape)
        end = (halves[0][pair[0]] + halves[1][pair[1]]) / 2
        if np.hypot(*(end - start)) > 2 * width:
            break
    way = np.stack([start, end])
    if level < 4:
        roads.append((plan.warp.points(np.linspace(start, end, max(int(np.hypot(*(end - start)) / 8), 2))), width))
    length = float(np.hypot(*(end - start)))
    ahead, angle = (end - start) / max(length, 1e-6), math.atan2(*(end - start)[::-1])
    aside = np.array([-ahead[1], ahead[0]])
    if width >= 10:
        for place in np.arange(0, length, 9.0):
            plan.line(start + ahead * np.array([[place], [min(place + 4.5, length)]]), 0.3, (214, 212, 200))
    lanes = (width / 4, -width / 4) if width >= 7 else (0.0,)
    for place in np.arange(6, length, 11.0):
        for lane in lanes:
            spot = way[0] + ahead * place + aside * lane
            plan.bay((float(spot[0]), float(spot[1])), angle, 0.07)
    if width >= 9:
        for place in np.arange(3, length, 6.2):
            for side in (-1, 1):
                spot = way[0] + ahead * place + aside * side * (width / 2 - 1.3)
                plan.bay((float(spot[0]), float(spot[1])), angle, 0.22)


def _water(region: Region, style: Style, shape: tuple[int, int], rng: np.random.Generator) -> tuple[ByteMap, ByteMap]:
    """Masks (1 = yes) of water and of sand beside it."""
    water, sand = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=np.uint8)
    extent, gsd = region.extent, region.gsd
    if style.coast:
        angle = rng.uniform(0, 2 * math.pi)
        axis = (np.arange(shape[0], dtype=np.float32) + 0.5) * np.float32(gsd) - np.float32(extent / 2)
        reach = axis[None] * np.float32(math.cos(angle)) + axis[:, None] * np.float32(math.sin(angle))
        reach = reach + fractal(shape, 150 / gsd, rng, 3) * 14 - np.float32(extent * rng.uniform(0.16, 0.3))
        water, sand = (reach > 0).astype(np.uint8), ((reach > -rng.uniform(10, 30)) & (reach <= 0)).astype(np.uint8)
    elif rng.random() < style.water:
        angle, width = rng.uniform(0, math.pi), rng.uniform(10, 42)
        along = np.linspace(-0.8, 0.8, 40) * extent
        wander = np.cumsum(rng.normal(0, 9, 40)) + 30 * np.sin(np.linspace(0, rng.uniform(3, 9), 40))
        middle = extent / 2 + rng.uniform(-0.2, 0.2, 2) * extent
        spin = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        points = np.stack([along, wander], axis=1) @ spin + middle
        cells = np.round(points / gsd * 16).astype(np.int32)
        cv2.polylines(sand, [cells], False, 1, round((width + 8) / gsd), cv2.LINE_8, shift=4)
        cv2.polylines(water, [cells], False, 1, round(width / gsd), cv2.LINE_8, shift=4)
        sand[water > 0] = 0
    return water, sand


def _dry(water: ByteMap, gsd: float) -> Callable[[tuple[float, float]], bool]:
    wide = cv2.dilate(water, np.ones((2 * int(5 / gsd) + 1,) * 2, np.uint8)) if water.any() else water

    def dry(point: tuple[float, float]) -> bool:
        row, column = int(point[1] / gsd), int(point[0] / gsd)
        inside = 0 <= row < water.shape[0] and 0 <= column < water.shape[1]
        return inside and not wide[row, column]

    return dry


def _paint(
    region: Region,
    plan: Plan,
    canvas: Canvas,
    masks: tuple[ByteMap, ByteMap],
    roads: list[tuple[NDArray[np.float64], float]],
    stamps: list[tuple[FloatMap, FloatMap]],
    date: int,
) -> Ground:
    """The plan at one date: other crops, other cars, and a few other buildings and trees."""
    rng = np.random.default_rng([region.seed, region.number, 2, date])
    style = STYLES[region.style]
    paint_patches(canvas, plan.patches, "grass" if style.roads[1] < 6 else "asphalt", rng)
    if style.roads[1] < 6:
        for road, width in roads:
            cv2.polylines(canvas.rgb, [canvas.cells(road)], False, (112, 110, 108), round(width / canvas.gsd), shift=4)
    paint_lines(canvas, plan)
    _flood(canvas, masks, [] if style.coast else roads)
    for building in _changed(plan.buildings, region.changes, rng):
        paint_building(canvas, building)
    gone = 0.02 * region.changes
    paint_trees(canvas, [tree for tree in plan.trees if rng.random() >= gone], stamps)
    paint_cars(canvas, plan.bays, rng)
    return canvas.ground()


def _flood(canvas: Canvas, masks: tuple[ByteMap, ByteMap], roads: list[tuple[NDArray[np.float64], float]]) -> None:
    """Paint water and its banks, and carry the main roads over it."""
    water, sand = (mask > 0 for mask in masks)
    if not water.any():
        return
    tone = canvas.texture[0][:, :, None] * 5 + canvas.texture[1][:, :, None] * 2
    canvas.rgb = np.where(sand[:, :, None], np.array([184, 170, 132], np.float32) + tone * 1.5, canvas.rgb)
    canvas.rgb = np.where(water[:, :, None], np.array([54, 80, 90], np.float32) + tone, canvas.rgb)
    canvas.vegetation[water | sand] = 0
    deck = np.zeros(water.shape, dtype=np.uint8)
    for road, width in roads:
        cv2.polylines(deck, [canvas.cells(road)], False, 1, round(width * 0.8 / canvas.gsd), cv2.LINE_8, shift=4)
    bridge = (deck > 0) & water
    if bridge.mean() < 0.02:
        canvas.rgb[bridge] = np.array([124, 122, 120], np.float32)
        canvas.heights[bridge] += np.float32(3.0)


def _changed(buildings: list[Building], changes: float, rng: np.random.Generator) -> list[Building]:
    """The buildings at a later date: a few gone, a few with a new roof or another storey."""
    kept = []
    for building in buildings:
        draw, shift = rng.random(), rng.normal(0, 1.0)
        if changes and not building.fixed:
            if draw < 0.015 * changes:
                continue
            if draw < 0.05 * changes:
                building = replace(building, roof_colour=pick((building.roof_colour,), rng, 32))
            elif draw < 0.065 * changes:
                building = replace(building, height=building.height + 3.2 * abs(shift))
        kept.append(building)
    return kept
