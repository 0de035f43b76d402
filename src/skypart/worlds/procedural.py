"""Procedural regions: a style, a seed and an extent give a World with two or three dates."""

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.errors import SkyPartError
from skypart.worlds.built_land import pick_colour
from skypart.worlds.ground import ByteMap, FloatMap, Ground, World
from skypart.worlds.noise import fractal
from skypart.worlds.paint import Canvas, paint_cars, paint_lines, paint_patches, paint_trees, textures, tree_stamps
from skypart.worlds.plan import Building, Plan, Warp
from skypart.worlds.roofs import paint_building
from skypart.worlds.streets import Road, cut_blocks
from skypart.worlds.styles import STYLES, Style
from skypart.worlds.water import make_dry_test, paint_water, water_masks

EPSG = 32632
ORIGIN = (470_000.0, 5_330_000.0)


@dataclass(frozen=True)
class Region:
    """One procedural map; seed, number and style determine everything.

    extent: edge in metres. gsd: metres per pixel. changes: how much the dates differ (1 = normal). dates: 2 or 3.
    """

    seed: int
    number: int
    style: str
    extent: float = 900.0
    gsd: float = 0.3
    changes: float = 1.0
    dates: int = 2

    def __post_init__(self) -> None:
        """Raise for an unknown style."""
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
    plan, roads = _make_plan(region, style, rng)
    water, sand = water_masks(shape, region.gsd, style.coast, style.water, rng)
    terrain -= cv2.GaussianBlur(water.astype(np.float32), (0, 0), 4 / region.gsd / 2) * np.float32(2.5)
    texture = textures(shape, region.gsd, rng)
    stamps = tree_stamps(rng)
    dry = make_dry_test(water, region.gsd)
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


def _make_plan(region: Region, style: Style, rng: np.random.Generator) -> tuple[Plan, list[Road]]:
    """Divide the region into blocks with a land use each; returns the plan and the main roads."""
    grid = 40.0
    count = int(region.extent / grid) + 3
    bend = [fractal((count, count), 5, rng, 2) * np.float32(style.bend * 0.6) for _ in range(2)]
    plan = Plan(Warp(bend[0], bend[1], grid))
    blocks, roads = cut_blocks(plan, region.extent, style.block, style.roads, style.skew, rng)
    uses, weights = zip(*style.uses, strict=True)
    chosen = rng.choice(len(uses), len(blocks), p=np.asarray(weights) / sum(weights))
    for block, use in zip(blocks, chosen, strict=True):
        uses[int(use)](plan, block, rng)
    plan.bend()
    return plan, roads


def _paint(
    region: Region,
    plan: Plan,
    canvas: Canvas,
    masks: tuple[ByteMap, ByteMap],
    roads: list[Road],
    stamps: list[tuple[FloatMap, FloatMap]],
    date: int,
) -> Ground:
    """Paint the plan for one date: crops and cars differ, and a few buildings and trees."""
    rng = np.random.default_rng([region.seed, region.number, 2, date])
    style = STYLES[region.style]
    paint_patches(canvas, plan.patches, "grass" if style.roads[1] < 6 else "asphalt", rng)
    if style.roads[1] < 6:
        for road, width in roads:
            cv2.polylines(canvas.rgb, [canvas.cells(road)], False, (112, 110, 108), round(width / canvas.gsd), shift=4)
    paint_lines(canvas, plan)
    paint_water(canvas, masks, [] if style.coast else roads)
    for building in _apply_changes(plan.buildings, region.changes, rng):
        paint_building(canvas, building)
    gone = 0.02 * region.changes
    paint_trees(canvas, [tree for tree in plan.trees if rng.random() >= gone], stamps)
    paint_cars(canvas, plan.bays, rng)
    return canvas.ground()


def _apply_changes(buildings: list[Building], changes: float, rng: np.random.Generator) -> list[Building]:
    """The buildings at another date: a few are removed, a few get a new roof or another storey."""
    kept = []
    for building in buildings:
        draw, shift = rng.random(), rng.normal(0, 1.0)
        if changes and not building.fixed:
            if draw < 0.015 * changes:
                continue
            if draw < 0.05 * changes:
                building = replace(building, roof_colour=pick_colour((building.roof_colour,), rng, 32))
            elif draw < 0.065 * changes:
                building = replace(building, height=building.height + 3.2 * abs(shift))
        kept.append(building)
    return kept
