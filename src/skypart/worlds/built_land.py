"""Built-up land uses: each fills one convex block of the plan."""

import math

import numpy as np

from skypart.worlds.plan import Building, Colour, Plan
from skypart.worlds.polygons import Polygon, area, inner_rectangle, inset, rectangle, scatter, split

TILE_ROOFS: tuple[Colour, ...] = ((152, 84, 62), (134, 72, 56), (168, 104, 78), (120, 78, 66))
DARK_ROOFS: tuple[Colour, ...] = ((84, 80, 78), (104, 98, 92), (70, 72, 78), (122, 110, 98), (96, 84, 72))
FLAT_ROOFS: tuple[Colour, ...] = (
    (168, 166, 162),
    (142, 140, 138),
    (196, 194, 190),
    (122, 122, 124),
    (178, 168, 150),
    (214, 214, 212),
    (104, 108, 112),
)
HALL_ROOFS: tuple[Colour, ...] = (
    (206, 208, 210),
    (176, 182, 190),
    (150, 160, 172),
    (226, 226, 224),
    (132, 150, 168),
    (172, 120, 102),
    (128, 142, 126),
)
WALLS: tuple[Colour, ...] = (
    (206, 196, 178),
    (188, 176, 160),
    (214, 210, 204),
    (164, 120, 98),
    (176, 150, 124),
    (150, 146, 142),
    (198, 178, 140),
)


def pick_colour(colours: tuple[Colour, ...], rng: np.random.Generator, spread: float = 7.0) -> Colour:
    """One of `colours`, slightly varied."""
    base = np.asarray(colours[int(rng.integers(len(colours)))]) + rng.normal(0, spread) + rng.normal(0, spread / 2, 3)
    return float(base[0]), float(base[1]), float(base[2])


def houses(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Detached houses with gardens, driveways, pools and trees."""
    plan.add_patch(block, "sidewalk", rng)
    garden = inset(block, 2.0)
    plan.add_patch(garden, "lawn", rng)
    roofs = (TILE_ROOFS, DARK_ROOFS, TILE_ROOFS + DARK_ROOFS)[int(rng.integers(3))]
    size = rng.uniform(420, 900)
    for lot in split(garden, rng, size, skew=0.03):
        plan.add_patch(lot, "lawn" if rng.random() < 0.8 else "meadow", rng, spread=9)
        room = inner_rectangle(inset(lot, 2.5))
        if room is None or rng.random() < 0.04:
            continue
        centre, length, width, angle = room
        length, width = min(length * rng.uniform(0.5, 0.85), 17), min(width * rng.uniform(0.55, 0.9), 11.5)
        if min(length, width) < 4.5:
            continue
        roof = str(rng.choice(["gable", "hip", "gable", "hip", "flat"]))
        colour, wall = pick_colour(roofs, rng), pick_colour(WALLS, rng)
        height = float(rng.choice([3.2, 4.5, 6.2]))
        shift = rng.normal(0, 1.5, 2)
        place = (centre[0] + shift[0], centre[1] + shift[1])
        plan.add_building(Building(place, length, width, angle, height, roof, colour, wall, rng.uniform(0.45, 0.9)))
        _add_wing(plan, rng, place, length, width, angle, height, roof, colour, wall)
        _add_driveway(plan, block, place, rng)
        if rng.random() < 0.14:
            spot = scatter(inset(lot, 3.0), 3, rng)
            if len(spot):
                pool = (float(spot[0, 0]), float(spot[0, 1]))
                plan.add_patch(rectangle(pool, 9.5, 6, angle), "concrete", rng)
                plan.add_patch(rectangle(pool, 7.5, 4, angle), "pool", rng)
        for point in scatter(inset(lot, 1.0), int(rng.integers(0, 5)), rng):
            if np.hypot(*(point - np.asarray(place))) > 0.5 * length:
                plan.add_tree(point, rng, 0.8)


def _add_wing(
    plan: Plan,
    rng: np.random.Generator,
    place: tuple[float, float],
    length: float,
    width: float,
    angle: float,
    height: float,
    roof: str,
    colour: Colour,
    wall: Colour,
) -> None:
    """Sometimes add a wing, so that the house is L- or T-shaped."""
    if rng.random() > 0.5:
        return
    along, across = rng.uniform(-0.3, 0.3) * length, rng.choice([-1.0, 1.0]) * width * 0.55
    x = place[0] + along * math.cos(angle) - across * math.sin(angle)
    y = place[1] + along * math.sin(angle) + across * math.cos(angle)
    plan.add_building(Building((x, y), width * 0.9, length * 0.4, angle + math.pi / 2, height, roof, colour, wall))


def _add_driveway(plan: Plan, block: Polygon, place: tuple[float, float], rng: np.random.Generator) -> None:
    """A paved driveway from the house to the nearest street, with a parking space."""
    here = np.asarray(place)
    best = None
    for start, end in zip(block, np.roll(block, -1, axis=0), strict=True):
        edge = end - start
        share = np.clip((here - start) @ edge / max(float(edge @ edge), 1e-6), 0.05, 0.95)
        foot = start + share * edge
        if best is None or np.hypot(*(foot - here)) < np.hypot(*(best - here)):
            best = foot
    if best is None or np.hypot(*(best - here)) > 40:
        return
    way = best - here
    angle = math.atan2(way[1], way[0])
    middle = here + way * 0.55
    plan.add_patch(rectangle((middle[0], middle[1]), float(np.hypot(*way)) * 0.95, 3.2, angle), "concrete", rng, 9)
    plan.add_bay((float(here[0] + way[0] * 0.72), float(here[1] + way[1] * 0.72)), angle, 0.5)


def perimeter(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Town houses along the streets around a yard."""
    plan.add_patch(block, "sidewalk", rng)
    depth = rng.uniform(10, 14)
    yard = inset(block, depth + 2.5)
    plan.add_patch(inset(block, 2.5), str(rng.choice(["asphalt", "concrete", "lawn", "plaza"])), rng, 8)
    roofs = (TILE_ROOFS, DARK_ROOFS, FLAT_ROOFS, TILE_ROOFS + FLAT_ROOFS)[int(rng.integers(4))]
    flat = 0.85 if roofs is FLAT_ROOFS else 0.15
    storeys = rng.integers(2, 7)
    front = inset(block, 2.5 + depth / 2)
    for start, end in zip(front, np.roll(front, -1, axis=0), strict=True):
        edge = end - start
        total, angle = float(np.hypot(*edge)), math.atan2(edge[1], edge[0])
        done = -depth / 2
        while done < total - 3:
            length = min(rng.uniform(9, 26), total + depth / 2 - done)
            if length > 5 and rng.random() < 0.94:
                middle = start + edge / max(total, 1e-6) * (done + length / 2)
                height = 3.2 * max(int(storeys + rng.integers(-1, 2)), 1) + 0.5
                roof = "flat" if rng.random() < flat else "gable"
                plan.add_building(
                    Building(
                        (middle[0], middle[1]),
                        length,
                        depth,
                        angle,
                        height,
                        roof,
                        pick_colour(FLAT_ROOFS if roof == "flat" else roofs, rng),
                        pick_colour(WALLS, rng),
                        0.7,
                        detail=int(rng.integers(1, 1 << 30)),
                    )
                )
            done += length
    if len(yard) >= 3 and area(yard) > 200:
        for point in scatter(yard, int(area(yard) / 180), rng):
            if rng.random() < 0.5:
                plan.add_tree(point, rng, 0.9)
        room = inner_rectangle(inset(yard, 3))
        if room is not None and rng.random() < 0.6:
            centre, length, width, angle = room
            plan.add_building(
                Building(
                    centre,
                    length * 0.6,
                    width * 0.5,
                    angle,
                    3.5,
                    "flat",
                    pick_colour(FLAT_ROOFS, rng),
                    pick_colour(WALLS, rng),
                )
            )


def slabs(plan: Plan, block: Polygon, rng: np.random.Generator) -> None:
    """Larger buildings of I, L, U and T shape on lawns with paths: campus, flats, schools."""
    plan.add_patch(block, "sidewalk", rng)
    lawn = inset(block, 2.5)
    plan.add_patch(lawn, "lawn", rng, 8)
    roofs = pick_colour(FLAT_ROOFS, rng) if rng.random() < 0.5 else pick_colour(TILE_ROOFS, rng)
    for lot in split(lawn, rng, rng.uniform(2000, 4500), skew=0.05):
        room = inner_rectangle(inset(lot, 5))
        ways = scatter(lot, 4, rng)
        if len(ways) >= 2:
            plan.add_line(np.concatenate([ways[:3], lot[:1]]), rng.uniform(1.6, 3.0), (176, 170, 156))
        for point in scatter(inset(lot, 2), int(rng.integers(3, 14)), rng):
            plan.add_tree(point, rng, 1.1)
        if room is None or room[2] < 11:
            continue
        winged_building(plan, room, roofs, rng)


def winged_building(
    plan: Plan, room: tuple[tuple[float, float], float, float, float], roof: Colour, rng: np.random.Generator
) -> None:
    """One building with several wings inside the rectangle `room`."""
    centre, length, width, angle = room
    deep = min(rng.uniform(11, 18), width)
    height = 3.4 * int(rng.integers(2, 8))
    wall, detail = pick_colour(WALLS, rng), int(rng.integers(1, 1 << 30))
    kind = "flat" if rng.random() < 0.75 else "hip"
    wings = {
        "I": [(0.0, 0.0, 1.0, 0)],
        "L": [(0.0, -0.5, 1.0, 0), (-0.5, 0.0, 1.0, 1)],
        "U": [(0.0, -0.5, 1.0, 0), (-0.5, 0.0, 1.0, 1), (0.5, 0.0, 1.0, 1)],
        "T": [(0.0, -0.5, 1.0, 0), (0.0, 0.0, 1.0, 1)],
        "H": [(0.0, 0.0, 1.0, 0), (-0.5, 0.0, 1.0, 1), (0.5, 0.0, 1.0, 1)],
        "O": [(0.0, -0.5, 1.0, 0), (0.0, 0.5, 1.0, 0), (-0.5, 0.0, 1.0, 1), (0.5, 0.0, 1.0, 1)],
    }[str(rng.choice(list("ILLUUTHO")))]
    free_x, free_y = max(length - deep, 1), max(width - deep, 1)
    for along, across, share, turned in wings:
        x = centre[0] + along * free_x * math.cos(angle) - across * free_y * math.sin(angle)
        y = centre[1] + along * free_x * math.sin(angle) + across * free_y * math.cos(angle)
        size = (width if turned else length) * share
        plan.add_building(
            Building(
                (x, y), size, deep, angle + turned * math.pi / 2, height, kind, roof, wall, 0.5, detail=detail + turned
            )
        )
