"""Sea and rivers of procedural regions."""

import math
from collections.abc import Callable

import cv2
import numpy as np

from skypart.worlds.ground import ByteMap
from skypart.worlds.noise import fractal
from skypart.worlds.paint import Canvas
from skypart.worlds.streets import Road


def water_masks(
    shape: tuple[int, int], gsd: float, coast: bool, river: float, rng: np.random.Generator
) -> tuple[ByteMap, ByteMap]:
    """Masks (1 = yes) of water and of sand beside it: a sea, a river with probability `river`, or nothing."""
    water, sand = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=np.uint8)
    extent = shape[0] * gsd
    if coast:
        angle = rng.uniform(0, 2 * math.pi)
        axis = (np.arange(shape[0], dtype=np.float32) + 0.5) * np.float32(gsd) - np.float32(extent / 2)
        reach = axis[None] * np.float32(math.cos(angle)) + axis[:, None] * np.float32(math.sin(angle))
        reach = reach + fractal(shape, 150 / gsd, rng, 3) * 14 - np.float32(extent * rng.uniform(0.16, 0.3))
        water, sand = (reach > 0).astype(np.uint8), ((reach > -rng.uniform(10, 30)) & (reach <= 0)).astype(np.uint8)
    elif rng.random() < river:
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


def make_dry_test(water: ByteMap, gsd: float) -> Callable[[tuple[float, float]], bool]:
    """A test whether a point (plan metres) is on the map and at least 5 m from water."""
    wide = cv2.dilate(water, np.ones((2 * int(5 / gsd) + 1,) * 2, np.uint8)) if water.any() else water

    def dry(point: tuple[float, float]) -> bool:
        row, column = int(point[1] / gsd), int(point[0] / gsd)
        inside = 0 <= row < water.shape[0] and 0 <= column < water.shape[1]
        return inside and not wide[row, column]

    return dry


def paint_water(canvas: Canvas, masks: tuple[ByteMap, ByteMap], roads: list[Road]) -> None:
    """Paint water, its banks, and bridges for the main roads."""
    water, sand = (mask > 0 for mask in masks)
    if not water.any():
        return
    tone = canvas.texture[0] * 5 + canvas.texture[1] * 2
    canvas.rgb[sand] = np.array([184, 170, 132], np.float32) + tone[sand][:, None] * 1.5
    canvas.rgb[water] = np.array([54, 80, 90], np.float32) + tone[water][:, None]
    canvas.vegetation[water | sand] = 0
    deck = np.zeros(water.shape, dtype=np.uint8)
    for road, width in roads:
        cv2.polylines(deck, [canvas.cells(road)], False, 1, round(width * 0.8 / canvas.gsd), cv2.LINE_8, shift=4)
    bridge = (deck > 0) & water
    if bridge.mean() < 0.02:
        canvas.rgb[bridge] = np.array([124, 122, 120], np.float32)
        canvas.heights[bridge] += np.float32(3.0)
