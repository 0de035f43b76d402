"""Open land uses: parks, sports, fields, woods, orchards and squares; each fills one convex block of the plan."""

import math

import numpy as np

from skypart.worlds.built_land import DARK_ROOFS, FLAT_ROOFS, HALL_ROOFS, TILE_ROOFS, WALLS, pick_colour
from skypart.worlds.industry import parking_rows
from skypart.worlds.plan import Building, Colour, Plan
from skypart.worlds.polygons import Polygon, area, inner_rectangle, inset, rectangle, round_corners, scatter, split

WHITE: Colour = (228, 228, 224)


def park(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Lawn with winding paths, groups of trees and sometimes a pond."""
    plan.add_patch(block, "sidewalk", rng)
    lawn = inset(block, 2)
    plan.add_patch(lawn, str(rng.choice(["grass", "lawn", "meadow"])), rng, 8)
    if len(lawn) < 3:
        return
    if rng.random() < 0.35:
        centre, size = lawn.mean(axis=0), math.sqrt(area(lawn)) * rng.uniform(0.1, 0.22)
        turn = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        reach = size * (1 + 0.25 * np.sin(2 * turn + rng.uniform(0, 6)) + 0.15 * np.sin(3 * turn + rng.uniform(0, 6)))
        plan.add_patch(centre + reach[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1), "water", rng, 6)
    for _ in range(int(rng.integers(1, 3))):
        points = scatter(lawn, 3, rng)[:2]
        ends = lawn[rng.permutation(len(lawn))[:2]]
        plan.add_line(
            round_corners(np.concatenate([ends[:1], points, ends[1:]])), rng.uniform(1.8, 3.5), (188, 176, 152)
        )
    for group in scatter(lawn, int(area(lawn) / 900) + 2, rng):
        for point in group + rng.normal(0, 7, (int(rng.integers(1, 7)), 2)):
            plan.add_tree(point, rng, 1.15)


def sports(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """A football ground with or without a track, or courts."""
    plan.add_patch(block, "sidewalk", rng)
    plan.add_patch(inset(block, 2), "grass", rng, 7)
    room = inner_rectangle(inset(block, 5))
    if room is None:
        return
    centre, length, width, angle = room
    if length > 95 and width > 55:
        if rng.random() < 0.6:
            _track(plan, centre, min(length, 175), min(width, 92), angle, rng)
        _pitch(plan, centre, min(length * 0.62, 104), min(width * 0.62, 66), angle, rng)
    else:
        surface = str(rng.choice(["court_green", "court_blue", "track"]))
        cos, sin = math.cos(angle), math.sin(angle)
        for along in np.arange(-length / 2 + 10, length / 2 - 8, 20):
            for across in np.arange(-width / 2 + 19, width / 2 - 17, 38):
                place = (centre[0] + along * cos - across * sin, centre[1] + along * sin + across * cos)
                plan.add_patch(rectangle(place, 17, 35, angle), surface, rng, 4)
                plan.add_line(rectangle(place, 11, 24, angle), 0.35, WHITE, closed=True)
                plan.add_line(rectangle(place, 11, 12, angle), 0.3, WHITE, closed=True)
    for corner in block:
        for point in corner + rng.normal(0, 5, (4, 2)):
            plan.add_tree(point + 0.06 * (block.mean(axis=0) - point), rng)


def _track(
    plan: Plan, centre: tuple[float, float], length: float, width: float, angle: float, rng: np.random.Generator
) -> None:
    """A running track: two half circles and two straights."""
    for shrink, material in ((0.0, "track"), (9.0, "pitch")):
        radius, half = width / 2 - shrink, length / 2 - width / 2
        turn = np.linspace(-np.pi / 2, np.pi / 2, 16)
        right = np.stack([half + radius * np.cos(turn), radius * np.sin(turn)], axis=1)
        oval = np.concatenate([right, -right])
        spin = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        plan.add_patch(oval @ spin + np.asarray(centre), material, rng, 4)


def _pitch(
    plan: Plan, centre: tuple[float, float], length: float, width: float, angle: float, rng: np.random.Generator
) -> None:
    """A mown pitch with its lines."""
    field = rectangle(centre, length, width, angle)
    plan.add_patch(field, "pitch", rng, 7, stripes=(angle, length / 9, 9.0))
    plan.add_line(field, 0.5, WHITE, closed=True)
    plan.add_line(rectangle(centre, 0.1, width, angle), 0.5, WHITE, closed=True)
    turn = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    plan.add_line(np.asarray(centre) + 9.1 * np.stack([np.cos(turn), np.sin(turn)], axis=1), 0.5, WHITE, closed=True)
    for side in (-1, 1):
        place = side * (length / 2 - 8)
        box = (centre[0] + place * math.cos(angle), centre[1] + place * math.sin(angle))
        plan.add_line(rectangle(box, 16, min(40, width * 0.6), angle), 0.5, WHITE, closed=True)


def field(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Strips of crops with rows, hedges and occasionally a farm."""
    plan.add_patch(block, "grass", rng)
    for strip in split(inset(block, 3), rng, rng.uniform(4000, 26000), gap=rng.choice([0.0, 2.0, 4.0]), skew=0.1):
        crop = str(rng.choice(["crop", "wheat", "soil", "meadow", "crop", "stubble"]))
        angle = math.atan2(*(strip[1] - strip[0])[::-1]) + rng.choice([0.0, math.pi / 2])
        stripes = (angle, rng.uniform(2.5, 14), rng.uniform(3, 10))
        plan.add_patch(strip, crop, rng, 12, stripes=stripes, crop=True)
        if rng.random() < 0.5:
            _hedge(plan, strip[0], strip[1], rng)
    if rng.random() < 0.3:
        farm(plan, rectangle(tuple(block.mean(axis=0)), 70, 55, rng.uniform(0, 3)), rng)


def _hedge(plan: Plan, start: np.ndarray, end: np.ndarray, rng: np.random.Generator) -> None:
    count = int(np.hypot(*(end - start)) / rng.uniform(4, 14))
    for share in rng.random(count):
        plan.add_tree(start + share * (end - start) + rng.normal(0, 0.8, 2), rng, rng.uniform(0.6, 1.1))


def farm(plan: Plan, room: Polygon, rng: np.random.Generator) -> None:
    """A yard with a house, barns and trees."""
    plan.add_patch(room, str(rng.choice(["gravel", "soil", "concrete"])), rng, 8)
    for part in split(room, rng, 900, gap=6):
        inner = inner_rectangle(inset(part, 2))
        if inner is None or rng.random() < 0.15:
            continue
        big = rng.random() < 0.6
        roof = pick_colour(HALL_ROOFS + TILE_ROOFS if big else TILE_ROOFS + DARK_ROOFS, rng)
        scale = 0.95 if big else 0.6
        plan.add_building(
            Building(
                inner[0],
                inner[1] * scale,
                inner[2] * scale * 0.8,
                inner[3],
                5.5 if big else 4.0,
                "gable",
                roof,
                pick_colour(WALLS, rng),
                0.45,
                windows=not big,
            )
        )
    for point in scatter(rectangle(tuple(room.mean(axis=0)), 95, 80, 0), 14, rng):
        plan.add_tree(point, rng, 1.1)


def wood(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Dense trees with a clearing or a track."""
    plan.add_patch(block, "grass", rng)
    plan.add_patch(inset(block, 3), "forest", rng)
    clear = scatter(block, int(rng.integers(1, 4)), rng)
    for point in scatter(inset(block, 2), int(area(block) / rng.uniform(22, 40)), rng):
        if len(clear) and np.hypot(*(clear - point).T).min() < 18:
            continue
        plan.add_tree(point, rng, 1.2)
    ends = block[rng.permutation(len(block))[:2]]
    plan.add_line(np.stack([ends[0], block.mean(axis=0), ends[1]]), 3.0, (158, 140, 108))


def orchard(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Trees in rows, or greenhouses."""
    ground = inset(block, 3)
    plan.add_patch(block, "grass", rng)
    room = inner_rectangle(ground)
    plan.add_patch(ground, str(rng.choice(["meadow", "grass", "soil"])), rng, 10)
    if room is None:
        return
    centre, length, width, angle = room
    cos, sin = math.cos(angle), math.sin(angle)
    glass = rng.random() < 0.3
    pace_x, pace_y = (36.0, 11.5) if glass else (rng.uniform(4, 8), rng.uniform(5, 9))
    for along in np.arange(-length / 2 + pace_x / 2, length / 2 - pace_x / 3, pace_x):
        for across in np.arange(-width / 2 + pace_y / 2, width / 2 - pace_y / 3, pace_y):
            place = (centre[0] + along * cos - across * sin, centre[1] + along * sin + across * cos)
            if glass:
                plan.add_building(
                    Building(place, 33, 9.5, angle, 3.2, "gable", (206, 216, 218), (186, 200, 202), 0.35, windows=False)
                )
            elif rng.random() < 0.93:
                plan.add_tree(np.asarray(place) + rng.normal(0, 0.3, 2), rng, 0.65)


def square(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """A paved square with a landmark: a church with its tower, a round hall or a high-rise."""
    plan.add_patch(block, "sidewalk", rng)
    paved = inset(block, 2.5)
    plan.add_patch(paved, "plaza", rng, 12, stripes=(rng.uniform(0, 3), rng.uniform(2, 6), 5.0))
    room = inner_rectangle(inset(block, 8))
    for point in scatter(inset(block, 4), 14, rng):
        plan.add_tree(point, rng, 0.8)
    if room is None:
        return
    centre, length, width, angle = room
    wall = pick_colour(WALLS, rng)
    kind = rng.random()
    if kind < 0.4:
        long, wide = min(length * 0.6, 55), min(width * 0.35, 20)
        roof = pick_colour(TILE_ROOFS + DARK_ROOFS, rng)
        plan.add_building(Building(centre, long, wide, angle, 12, "gable", roof, wall, 1.1, fixed=True))
        end = (centre[0] + long / 2 * math.cos(angle), centre[1] + long / 2 * math.sin(angle))
        plan.add_building(Building(end, 8, 8, angle, 32, "hip", roof, wall, 2.2, fixed=True))
    elif kind < 0.65:
        size = min(width * 0.7, 46)
        plan.add_building(
            Building(centre, size, size, angle, 9, "tank", pick_colour(FLAT_ROOFS, rng), wall, fixed=True)
        )
    else:
        size = min(width * 0.5, 26)
        plan.add_building(
            Building(
                centre,
                size * 1.3,
                size,
                angle,
                rng.uniform(28, 60),
                "flat",
                pick_colour(FLAT_ROOFS, rng),
                wall,
                fixed=True,
                detail=int(rng.integers(1, 1 << 30)),
            )
        )
        parking_rows(
            plan,
            rectangle(
                (centre[0] + size * math.cos(angle) * 1.4, centre[1] + size * math.sin(angle) * 1.4),
                22,
                width * 0.7,
                angle,
            ),
            rng,
        )


def bare(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Waste land or a building site."""
    plan.add_patch(block, str(rng.choice(["soil", "gravel", "meadow"])), rng, 10)
    for spot in scatter(block, 6, rng):
        plan.add_patch(
            rectangle((spot[0], spot[1]), rng.uniform(8, 40), rng.uniform(6, 25), rng.uniform(0, 3)),
            str(rng.choice(["soil", "gravel", "sand", "grass"])),
            rng,
            10,
        )
    for point in scatter(block, 10, rng):
        plan.add_tree(point, rng, 0.6)
