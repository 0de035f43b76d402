"""A plan painted at one date: colours, heights, facades and vegetation on one grid."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.worlds.ground import NO_ANGLE, ByteMap, FloatMap, Ground
from skypart.worlds.noise import fractal
from skypart.worlds.plan import Bay, Patch, Plan, Tree

MATERIALS: dict[str, tuple[tuple[float, float, float], float, float, float, float]] = {
    # name: colour, then strength of broad, middle and fine texture, then vegetation
    "asphalt": ((98, 98, 100), 5, 5, 5, 0),
    "sidewalk": ((156, 153, 146), 5, 5, 6, 0),
    "concrete": ((172, 169, 162), 6, 7, 5, 0),
    "plaza": ((184, 170, 150), 5, 5, 6, 0),
    "gravel": ((156, 147, 132), 8, 9, 9, 0),
    "grass": ((104, 118, 66), 9, 9, 7, 1),
    "lawn": ((92, 120, 60), 6, 7, 6, 1),
    "meadow": ((130, 130, 80), 11, 12, 8, 0.9),
    "forest": ((60, 72, 42), 6, 8, 8, 0.8),
    "crop": ((92, 118, 56), 10, 7, 6, 1),
    "wheat": ((190, 166, 106), 9, 7, 6, 0.3),
    "stubble": ((168, 148, 106), 10, 9, 7, 0.2),
    "soil": ((136, 110, 84), 11, 10, 8, 0),
    "sand": ((208, 194, 158), 7, 6, 5, 0),
    "water": ((54, 78, 88), 5, 3, 2, 0),
    "pool": ((84, 176, 190), 2, 3, 2, 0),
    "pitch": ((78, 130, 64), 4, 4, 4, 0.8),
    "track": ((160, 86, 68), 3, 4, 4, 0),
    "court_green": ((70, 122, 92), 2, 3, 3, 0),
    "court_blue": ((66, 108, 150), 2, 3, 3, 0),
}
NAMES = list(MATERIALS)
CAR_COLOURS = (
    (222, 222, 222),
    (40, 40, 44),
    (128, 130, 134),
    (180, 182, 186),
    (150, 36, 34),
    (44, 70, 120),
    (190, 180, 150),
)


class Canvas:
    """Growing maps of a Ground of `gsd` metres a pixel; plan metres are x east and y south."""

    def __init__(self, terrain: FloatMap, gsd: float, texture: NDArray[np.float32]) -> None:
        self.gsd = gsd
        self.terrain = terrain
        self.heights = terrain.copy()
        self.texture = texture
        self.rgb: NDArray[np.float32] = np.zeros((*terrain.shape, 3), dtype=np.float32)
        self.vegetation: ByteMap = np.zeros(terrain.shape, dtype=np.uint8)
        self.facades: ByteMap = np.full((*terrain.shape, 3), 120, dtype=np.uint8)
        self.wall_angle: ByteMap = np.full(terrain.shape, NO_ANGLE, dtype=np.uint8)

    def cells(self, points: NDArray[np.float64]) -> NDArray[np.int32]:
        """Plan metres to fixed-point pixels (4 fractional bits) as OpenCV draws them."""
        return np.round((points / self.gsd - 0.5) * 16).astype(np.int32)

    def window(self, centre: tuple[float, float], reach: float) -> tuple[slice, slice] | None:
        """Rows and columns within `reach` metres of a point, or None off the map."""
        rows, columns = self.terrain.shape
        left, right = int((centre[0] - reach) / self.gsd), int((centre[0] + reach) / self.gsd) + 2
        top, bottom = int((centre[1] - reach) / self.gsd), int((centre[1] + reach) / self.gsd) + 2
        left, top, right, bottom = max(left, 0), max(top, 0), min(right, columns), min(bottom, rows)
        return (slice(top, bottom), slice(left, right)) if right - left > 1 and bottom - top > 1 else None

    def local(self, area: tuple[slice, slice], centre: tuple[float, float], angle: float) -> tuple[FloatMap, FloatMap]:
        """Metres along and across `angle` from `centre` of the pixels in a window."""
        x = (np.arange(area[1].start, area[1].stop, dtype=np.float32) + 0.5) * self.gsd - centre[0]
        y = (np.arange(area[0].start, area[0].stop, dtype=np.float32) + 0.5) * self.gsd - centre[1]
        cos, sin = np.float32(math.cos(angle)), np.float32(math.sin(angle))
        return (x[None] * cos + y[:, None] * sin).astype(np.float32), (y[:, None] * cos - x[None] * sin).astype(
            np.float32
        )

    def ground(self) -> Ground:
        """The finished Ground."""
        # cv2 rounds and saturates in one pass.
        rgb = cv2.add(self.rgb, 0.0, dtype=cv2.CV_8U)
        return Ground(rgb, self.heights, self.terrain, self.vegetation, self.facades, self.wall_angle, self.gsd)


def textures(shape: tuple[int, int], gsd: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """(3, h, w): broad, middle and fine random texture."""
    fine = rng.standard_normal(shape, dtype=np.float32)
    return np.stack([fractal(shape, 60 / gsd, rng, 3), fractal(shape, 7 / gsd, rng, 3), fine])


def paint_patches(canvas: Canvas, patches: list[Patch], base: str, rng: np.random.Generator) -> None:
    """Colour the ground by material, tone and stripes; crops differ from date to date by `rng`."""
    index = np.full(canvas.terrain.shape, NAMES.index(base), dtype=np.uint8)
    tone = np.full((*canvas.terrain.shape, 3), 128, dtype=np.uint8)
    for patch in patches:
        material, shift = patch.material, np.asarray(patch.tone)
        if patch.crop:
            shift = shift + rng.normal(0, 7)
            material = str(rng.choice(["crop", "wheat", "soil", "stubble"])) if rng.random() < 0.3 else material
        outline = [canvas.cells(patch.polygon)]
        cv2.fillPoly(index, outline, NAMES.index(material), shift=4)
        cv2.fillPoly(tone, outline, tuple(float(v) for v in np.clip(128 + shift, 60, 196)), shift=4)
    light = np.zeros(index.shape, dtype=np.float32)
    for layer in range(3):
        light += cv2.LUT(index, _table(1 + layer)) * canvas.texture[layer]
    tones = cv2.split(tone)
    canvas.rgb = cv2.merge([light + cv2.LUT(index, _table(0, channel) - 128) + tones[channel] for channel in range(3)])
    canvas.vegetation = np.round(255 * cv2.LUT(index, _table(4))).astype(np.uint8)
    for patch in patches:
        if patch.stripes is not None:
            _stripe(canvas, patch)


def _table(column: int, channel: int = 0) -> NDArray[np.float32]:
    """256 entries: one value of each material (see MATERIALS) for a look-up by index."""
    table = np.zeros(256, dtype=np.float32)
    for number, name in enumerate(NAMES):
        table[number] = MATERIALS[name][0][channel] if column == 0 else MATERIALS[name][column]
    return table


def _stripe(canvas: Canvas, patch: Patch) -> None:
    """Rows of a field or of mown grass."""
    assert patch.stripes is not None
    angle, period, strength = patch.stripes
    low, high = patch.polygon.min(axis=0), patch.polygon.max(axis=0)
    middle = (float(low[0] + high[0]) / 2, float(low[1] + high[1]) / 2)
    area = canvas.window(middle, float((high - low).max()) / 2 + 1)
    if area is None:
        return
    mask = np.zeros((area[0].stop - area[0].start, area[1].stop - area[1].start), dtype=np.uint8)
    corner = np.array([area[1].start, area[0].start]) * canvas.gsd
    cv2.fillPoly(mask, [canvas.cells(patch.polygon - corner)], 1, shift=4)
    along, _ = canvas.local(area, middle, angle)
    wave = np.tanh(2 * np.sin(along * np.float32(2 * math.pi / period))) * np.float32(strength)
    canvas.rgb[area] += (wave * mask)[:, :, None]


def paint_lines(canvas: Canvas, plan: Plan) -> None:
    """Road markings, paths and pitch lines; a line thinner than a cell is mixed with the grey of a road."""
    for line in plan.lines:
        cover = min(line.width / canvas.gsd, 1.0)
        if cover < 0.25:
            continue
        colour = tuple(cover * value + (1 - cover) * 104.0 for value in line.colour)
        outline, thickness = [canvas.cells(line.points)], max(round(line.width / canvas.gsd), 1)
        cv2.polylines(canvas.rgb, outline, line.closed, colour, thickness, cv2.LINE_8, shift=4)
        cv2.polylines(canvas.vegetation, outline, line.closed, 0, thickness, cv2.LINE_8, shift=4)


def paint_cars(canvas: Canvas, bays: list[Bay], rng: np.random.Generator) -> None:
    """Cars in some of the bays, other ones at every date."""
    for bay in bays:
        taken, colour, jitter = rng.random() < bay.chance, int(rng.integers(len(CAR_COLOURS))), rng.normal(0, 0.15, 3)
        area = canvas.window(bay.centre, 3.2)
        if not taken or area is None:
            continue
        place = (bay.centre[0] + jitter[0], bay.centre[1] + jitter[1])
        along, across = canvas.local(area, place, bay.angle + jitter[2] * 0.3)
        free = canvas.heights[area] - canvas.terrain[area] < 0.3
        body = (np.abs(along) < 2.2) & (np.abs(across) < 0.95) & free
        glass = body & (np.abs(np.abs(along) - 1.0) < 0.35) & (np.abs(across) < 0.75)
        canvas.rgb[area][body] = CAR_COLOURS[colour]
        canvas.rgb[area][glass] = (42, 48, 56)
        canvas.vegetation[area][body] = 0
        canvas.heights[area] += np.where(body, np.where(np.abs(along) < 1.2, 1.5, 0.95), 0).astype(np.float32)
        canvas.facades[area][body] = CAR_COLOURS[colour]


def tree_stamps(rng: np.random.Generator, count: int = 10, size: int = 48) -> list[tuple[FloatMap, FloatMap]]:
    """Crowns: (height share 0 to 1, colour shift) maps of size x size."""
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    stamps = []
    for _ in range(count):
        lumps = fractal((size, size), size / 4, rng, 3)
        reach = np.hypot(axis[None], axis[:, None]) * (1 + 0.12 * lumps)
        dome = np.sqrt(np.clip(1 - reach * reach, 0, 1)) * (1 + 0.1 * lumps)
        stamps.append((dome.astype(np.float32), lumps * 9))
    return stamps


def paint_trees(canvas: Canvas, trees: list[Tree], stamps: list[tuple[FloatMap, FloatMap]]) -> None:
    """Crowns that rise above what is there."""
    rows, columns = canvas.terrain.shape
    for number, tree in enumerate(trees):
        edge = max(round(2 * tree.radius / canvas.gsd), 3)
        left, top = round(tree.centre[0] / canvas.gsd - edge / 2), round(tree.centre[1] / canvas.gsd - edge / 2)
        if left < 0 or top < 0 or left + edge > columns or top + edge > rows:
            continue
        dome, shift = (
            cv2.resize(part, (edge, edge), interpolation=cv2.INTER_AREA) for part in stamps[number % len(stamps)]
        )
        area = (slice(top, top + edge), slice(left, left + edge))
        base = float(canvas.terrain[top + edge // 2, left + edge // 2])
        crown = base + dome * np.float32(tree.height)
        over = (dome > 0.25) & (crown > canvas.heights[area])
        colour = np.asarray(tree.colour, dtype=np.float32) + shift[:, :, None] + (dome[:, :, None] - 0.6) * 22
        canvas.heights[area][over] = crown[over]
        canvas.rgb[area][over] = colour[over]
        canvas.facades[area][over] = np.clip(colour[over] * 0.75, 0, 255).astype(np.uint8)
        canvas.wall_angle[area][over] = NO_ANGLE
        canvas.vegetation[area][over] = 255
