"""Industry and parking: halls, yards, tanks and car parks; each fills one convex block of the plan."""

import math

import numpy as np

from skypart.worlds.built_land import FLAT_ROOFS, HALL_ROOFS, WALLS, pick_colour
from skypart.worlds.plan import Building, Plan
from skypart.worlds.polygons import Polygon, area, inner_rectangle, inset, main_axis, rectangle, split


def halls(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Industry: large halls, yards, containers, tanks and lorry parks."""
    plan.add_patch(block, "asphalt", rng, 8)
    for lot in split(inset(block, 3), rng, rng.uniform(4000, 13000), gap=4.0, skew=0.03):
        plan.add_patch(lot, str(rng.choice(["asphalt", "concrete", "gravel", "concrete"])), rng, 9)
        room = inner_rectangle(inset(lot, 6))
        if room is None or room[2] < 12:
            continue
        centre, length, width, angle = room
        roof = str(rng.choice(["hall", "hall", "gable", "saw"]))
        share = rng.uniform(0.45, 0.8)
        move = (1 - share) * length * rng.choice([-0.5, 0.5])
        place = (centre[0] + move * math.cos(angle), centre[1] + move * math.sin(angle))
        plan.add_building(
            Building(
                place,
                length * share,
                width * rng.uniform(0.7, 1.0),
                angle,
                rng.uniform(6, 14),
                roof,
                pick_colour(HALL_ROOFS, rng),
                pick_colour(HALL_ROOFS, rng),
                0.12,
                windows=False,
                detail=int(rng.integers(1, 1 << 30)),
            )
        )
        free = rectangle(
            (
                centre[0] - move / (1 - share) * share * math.cos(angle),
                centre[1] - move / (1 - share) * share * math.sin(angle),
            ),
            length * (1 - share) * 0.85,
            width * 0.9,
            angle,
        )
        rng.choice(np.array([_yard, _tanks, parking_rows], dtype=object))(plan, free, rng)


def _yard(plan: Plan, room: Polygon, rng: np.random.Generator) -> None:
    """Containers in rows."""
    angle, length, width = main_axis(room)
    centre = room.mean(axis=0)
    for row in np.arange(-width / 2 + 3, width / 2 - 2, rng.uniform(3.2, 7)):
        for place in np.arange(-length / 2 + 4, length / 2 - 3, 7.0):
            if rng.random() < 0.5:
                colour = pick_colour(
                    ((168, 74, 58), (62, 96, 140), (70, 120, 88), (190, 186, 178), (196, 140, 52)), rng, 10
                )
                x = centre[0] + place * math.cos(angle) - row * math.sin(angle)
                y = centre[1] + place * math.sin(angle) + row * math.cos(angle)
                height = 2.6 * int(rng.integers(1, 4))
                plan.add_building(Building((x, y), 6.1, 2.5, angle, height, "plain", colour, colour, windows=False))


def _tanks(plan: Plan, room: Polygon, rng: np.random.Generator) -> None:
    """Round tanks."""
    angle, length, width = main_axis(room)
    centre, size = room.mean(axis=0), rng.uniform(8, 18)
    colour = pick_colour(((222, 222, 218), (186, 190, 192), (168, 150, 120)), rng)
    for row in np.arange(-width / 2 + size / 2, width / 2 - size / 2, size * 1.3):
        for place in np.arange(-length / 2 + size / 2, length / 2 - size / 2, size * 1.3):
            x = centre[0] + place * math.cos(angle) - row * math.sin(angle)
            y = centre[1] + place * math.sin(angle) + row * math.cos(angle)
            plan.add_building(Building((x, y), size, size, angle, size * 0.7, "tank", colour, colour, windows=False))


def parking_rows(plan: Plan, room: Polygon, rng: np.random.Generator) -> None:
    """A car park in the rectangle around the middle of `room`: rows of bays, markings, cars, a few trees."""
    inner = inner_rectangle(room)
    if inner is None:
        return
    centre, length, width, angle = inner
    busy = rng.uniform(0.15, 0.9)
    cos, sin = math.cos(angle), math.sin(angle)

    def at(along: float, across: float) -> tuple[float, float]:
        return centre[0] + along * cos - across * sin, centre[1] + along * sin + across * cos

    for row in np.arange(-width / 2 + 3, width / 2 - 2, 16.5):
        for offset in (0.0, 5.2):
            if row + offset > width / 2 - 2.5:
                continue
            for place in np.arange(-length / 2 + 2, length / 2 - 1, 2.6):
                plan.add_bay(at(place + 1.3, row + offset), angle + math.pi / 2, busy)
                plan.add_line(
                    np.array([at(place, row + offset - 2.5), at(place, row + offset + 2.5)]), 0.18, (206, 206, 200)
                )
        if rng.random() < 0.6:
            for place in np.arange(-length / 2 + 5, length / 2 - 4, rng.uniform(12, 22)):
                plan.add_tree(np.asarray(at(place, row + 2.6)), rng, 0.7)


def car_park(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """A block of parking, sometimes with a supermarket."""
    plan.add_patch(block, "sidewalk", rng)
    plan.add_patch(inset(block, 2), "asphalt", rng, 8)
    parts = split(inset(block, 4), rng, area(block) * 0.45, gap=3)
    for index, part in enumerate(parts):
        room = inner_rectangle(part)
        if index == 0 and room is not None and rng.random() < 0.7:
            plan.add_building(
                Building(
                    room[0],
                    room[1] * 0.85,
                    room[2] * 0.8,
                    room[3],
                    rng.uniform(5, 9),
                    "hall",
                    pick_colour(FLAT_ROOFS, rng),
                    pick_colour(WALLS, rng),
                    windows=False,
                    detail=int(rng.integers(1, 1 << 30)),
                )
            )
        else:
            parking_rows(plan, part, rng)
