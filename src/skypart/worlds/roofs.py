"""Paint buildings: shapes, colours and details of roofs, and walls."""

import math

import numpy as np
from numpy.typing import NDArray

from skypart.worlds.ground import NO_ANGLE, FloatMap
from skypart.worlds.paint import Canvas
from skypart.worlds.plan import Building

GROW_M = 0.7
"""Walls are painted slightly beyond the footprint, so that rays that hit the edge find them."""


def paint_building(canvas: Canvas, building: Building) -> None:
    """Paint one building wherever it is higher than what is already there."""
    reach = math.hypot(building.length, building.width) / 2 + 1.5
    area = canvas.window(building.centre, reach)
    if area is None:
        return
    along, across = canvas.local(area, building.centre, building.angle)
    half_l, half_w = np.float32(building.length / 2), np.float32(building.width / 2)
    if building.roof == "tank":
        edge = half_w - np.hypot(along, across)
    else:
        edge = np.minimum(half_l - np.abs(along), half_w - np.abs(across))
    base = _base(canvas, building)
    rise, tint = _roof(building, along, across, edge, half_l, half_w)
    top = np.float32(base + building.height) + rise
    inside = (edge > 0) & (top > canvas.heights[area])
    grown = (edge > -GROW_M) & (top >= canvas.heights[area])
    colour = np.asarray(building.roof_colour, dtype=np.float32) + tint
    colour = colour + (canvas.texture[1][area] * 3 + canvas.texture[2][area] * 2.5)[:, :, None]
    canvas.heights[area][inside] = top[inside]
    canvas.rgb[area][inside] = colour[inside]
    canvas.vegetation[area][grown] = np.where(inside, 0, canvas.vegetation[area])[grown]
    canvas.facades[area][grown] = np.clip(np.asarray(building.wall_colour), 20, 245).astype(np.uint8)
    canvas.wall_angle[area][grown] = round(-math.degrees(building.angle)) % 180 if building.windows else NO_ANGLE
    if building.detail and building.roof in ("flat", "hall"):
        _add_roof_details(canvas, building, area, along, across, edge, inside)


def _base(canvas: Canvas, building: Building) -> float:
    """Height of the bare earth at the centre."""
    rows, columns = canvas.terrain.shape
    row = min(max(int(building.centre[1] / canvas.gsd), 0), rows - 1)
    return float(canvas.terrain[row, min(max(int(building.centre[0] / canvas.gsd), 0), columns - 1)])


def _roof(
    building: Building, along: FloatMap, across: FloatMap, edge: FloatMap, half_l: np.float32, half_w: np.float32
) -> tuple[FloatMap, FloatMap]:
    """(h, w) rise above the eaves in metres, and (h, w, 1) shift of the roof's colour."""
    pitch = np.float32(building.pitch)
    flat = np.zeros_like(along)
    if building.roof == "gable":
        ridge = np.abs(across) < 0.25
        rows = np.sin(across * np.float32(2 * math.pi / 0.9)) * 2.5
        return pitch * (half_w - np.abs(across)), (rows + ridge * 12.0 + np.sign(across) * 3.0)[:, :, None]
    if building.roof == "hip":
        ridge = np.abs((half_w - np.abs(across)) - (half_l - np.abs(along))) < 0.25
        return pitch * np.minimum(half_w - np.abs(across), half_l - np.abs(along)), (ridge * 9.0 + flat)[:, :, None]
    if building.roof == "saw":
        phase = np.mod(along + half_l, np.float32(9.0)) / np.float32(9.0)
        return phase * 3.0, np.where(phase > 0.85, -60.0, 0.0)[:, :, None].astype(np.float32)
    if building.roof == "tank":
        rim = (edge < 0.5) * 0.4 + 0.06 * edge
        return rim.astype(np.float32), np.where(edge < 0.6, -16.0, 0.0)[:, :, None].astype(np.float32)
    if building.roof == "flat":
        rim = (edge < 0.5).astype(np.float32)
        return rim * np.float32(0.7), (rim * 18)[:, :, None]
    if building.roof == "hall":
        ribs = np.sin(along * np.float32(2 * math.pi / 3.0)) * 3.5
        return pitch * (half_w - np.abs(across)) * 0.3, ribs[:, :, None]
    return flat, flat[:, :, None]


def _add_roof_details(
    canvas: Canvas,
    building: Building,
    area: tuple[slice, slice],
    along: FloatMap,
    across: FloatMap,
    edge: FloatMap,
    inside: NDArray[np.bool_],
) -> None:
    """Plant rooms, skylights, stains and solar panels on a flat roof, from the building's own number."""
    rng = np.random.default_rng(building.detail)
    rgb, heights = canvas.rgb[area], canvas.heights[area]
    free = inside & (edge > 1.2)
    for _ in range(int(rng.integers(1, 4))):
        zone = _box(along, across, building, rng, (0.2, 0.6)) & free
        rgb[zone] += np.float32(rng.normal(0, 11))
    if building.roof == "hall" and rng.random() < 0.75:
        period, share = rng.uniform(6, 14), rng.uniform(0.1, 0.25)
        lane = (np.mod(along, np.float32(period)) < period * share) & (
            np.abs(across) < building.width * rng.uniform(0.25, 0.42)
        )
        rgb[lane & free] += np.float32(rng.choice([-45.0, 32.0]))
    if rng.random() < 0.28:
        panels = _box(along, across, building, rng, (0.35, 0.8)) & free & (np.mod(across, np.float32(2.2)) < 1.6)
        rgb[panels] = np.array([46, 56, 84], dtype=np.float32)
        heights[panels] += np.float32(0.5)
    for _ in range(int(rng.integers(1, 9))):
        unit = _box(along, across, building, rng, (0.03, 0.16)) & free
        rgb[unit] = np.array([176, 178, 180], dtype=np.float32) + np.float32(rng.normal(0, 22))
        heights[unit] += np.float32(rng.uniform(0.8, 3.0))


def _box(
    along: FloatMap, across: FloatMap, building: Building, rng: np.random.Generator, size: tuple[float, float]
) -> NDArray[np.bool_]:
    """A random rectangle along the building's axes, sized as a fraction of the building."""
    length, width = building.length * rng.uniform(*size), building.width * rng.uniform(*size)
    x, y = building.length * rng.uniform(-0.42, 0.42), building.width * rng.uniform(-0.42, 0.42)
    box: NDArray[np.bool_] = (np.abs(along - x) < length / 2) & (np.abs(across - y) < width / 2)
    return box
