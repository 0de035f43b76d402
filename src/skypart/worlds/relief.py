"""Derive what an orthophoto and a surface model do not contain: bare earth, vegetation, facades, wall directions."""

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects

from skypart.images.decode import RgbImage
from skypart.worlds.ground import NO_ANGLE, ByteMap, FloatMap, Ground

SMOOTH_M = 0.35
"""Median deviation from the local mean, in metres, up to which a tall object is a roof, not a tree crown."""
OBJECT_M = 2.5
"""Metres above the bare earth from which a cell is an object, not ground."""


def ground_from_raster(
    rgb: RgbImage,
    heights: FloatMap | None,
    valid: NDArray[np.bool_] | None,
    gsd: float,
    terrain: FloatMap | None = None,
) -> Ground:
    """Ground from an orthophoto.

    rgb: (h, w, 3) uint8. heights: (h, w) metres, None for flat ground. valid: (h, w), False in holes.
    terrain: (h, w) bare earth in metres, if it is known.
    """
    if valid is not None and not valid.all():
        rgb, heights = fill_holes(rgb, heights, valid)
    vegetation = vegetation_of(rgb)
    if heights is None:
        flat = np.zeros(rgb.shape[:2], dtype=np.float32)
        angle = np.full(rgb.shape[:2], NO_ANGLE, dtype=np.uint8)
        return Ground(rgb, flat, flat, vegetation, rgb, angle, gsd, baked=True)
    heights = cv2.medianBlur(heights.astype(np.float32), 3)
    terrain = bare_earth(heights, gsd) if terrain is None else terrain
    buildings = buildings_of(heights, heights - terrain, vegetation, gsd)
    facades, angle = facades_of(rgb, buildings), wall_angles(buildings)
    return Ground(rgb, heights, terrain, vegetation, facades, angle, gsd, baked=True)


def fill_holes(rgb: RgbImage, heights: FloatMap | None, valid: NDArray[np.bool_]) -> tuple[RgbImage, FloatMap | None]:
    """Fill invalid cells smoothly from the valid colours and heights around them."""
    colours = spread(rgb.astype(np.float32), valid)
    filled = np.clip(colours, 0, 255).astype(np.uint8)
    return filled, None if heights is None else spread(heights.astype(np.float32), valid)


def spread(layer: FloatMap, valid: NDArray[np.bool_]) -> FloatMap:
    """`layer` (h, w[, c]) with its invalid cells filled from means of the valid ones at increasingly coarse scales."""
    weight = valid.astype(np.float32)
    if valid.all() or not valid.any():
        return layer
    if min(layer.shape[:2]) <= 2:
        mean = layer[valid].mean(axis=0)
        return np.where(valid if layer.ndim == 2 else valid[:, :, None], layer, mean).astype(np.float32)
    size = ((layer.shape[1] + 1) // 2, (layer.shape[0] + 1) // 2)
    share = cv2.resize(weight, size, interpolation=cv2.INTER_AREA)
    total = cv2.resize(layer * (weight if layer.ndim == 2 else weight[:, :, None]), size, interpolation=cv2.INTER_AREA)
    known = np.maximum(share, 1e-6)
    coarse = spread(total / (known if layer.ndim == 2 else known[:, :, None]), share > 1e-3)
    wide = cv2.resize(coarse, layer.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return np.where(valid if layer.ndim == 2 else valid[:, :, None], layer, wide).astype(np.float32)


def vegetation_of(rgb: RgbImage) -> ByteMap:
    """(h, w) uint8 weight of vegetation from the excess of green over red and blue."""
    colour = cv2.GaussianBlur(rgb, (3, 3), 0).astype(np.float32)
    total = colour.sum(axis=2) + 1.0
    excess = (2 * colour[:, :, 1] - colour[:, :, 0] - colour[:, :, 2]) / total
    weight: ByteMap = np.clip((excess - 0.02) * (255 / 0.08), 0, 255).astype(np.uint8)
    return weight


def bare_earth(heights: FloatMap, gsd: float, widest_m: float = 60.0) -> FloatMap:
    """The earth below objects up to `widest_m` across: a grey opening at a coarse cell, smoothed."""
    cell = max(3.0, 2 * gsd)
    small = (max(round(heights.shape[1] * gsd / cell), 2), max(round(heights.shape[0] * gsd / cell), 2))
    coarse = cv2.resize(heights, small, interpolation=cv2.INTER_AREA)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * int(widest_m / cell / 2) + 1,) * 2)
    opened = cv2.GaussianBlur(cv2.morphologyEx(coarse, cv2.MORPH_OPEN, kernel), (0, 0), 2)
    earth: FloatMap = cv2.resize(opened, heights.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.minimum(earth, heights)


def buildings_of(heights: FloatMap, above: FloatMap, vegetation: ByteMap, gsd: float) -> NDArray[np.int32]:
    """(h, w) number of the building at each cell, 0 = none. Buildings are tall, not green, and smoother than crowns."""
    solid = ((above > OBJECT_M) & (vegetation < 90)).astype(np.uint8)
    solid = cv2.morphologyEx(solid, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    rough = np.abs(heights - cv2.blur(heights, (5, 5)))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid)
    keep = np.zeros(count, dtype=bool)
    for label in range(1, count):
        left, top, width, height, size = stats[label]
        if size * gsd * gsd < 40:
            continue
        window = (slice(top, top + height), slice(left, left + width))
        keep[label] = float(np.median(rough[window][labels[window] == label])) < SMOOTH_M
    return np.where(keep[labels], labels, 0).astype(np.int32)


def facades_of(rgb: RgbImage, buildings: NDArray[np.int32]) -> RgbImage:
    """Wall colours guessed from above: greyer and slightly darker for buildings, darker for everything else."""
    smooth = cv2.GaussianBlur(rgb, (0, 0), 2).astype(np.float32)
    near = cv2.dilate((buildings > 0).astype(np.uint8), np.ones((5, 5), np.uint8))
    wall = np.where(near[:, :, None] > 0, 0.85 * (0.5 * smooth + 66.0), 0.62 * rgb.astype(np.float32))
    return np.clip(wall, 0, 255).astype(np.uint8)


def wall_angles(buildings: NDArray[np.int32]) -> ByteMap:
    """Direction of each building's sides in degrees, extended beyond its edge; NO_ANGLE elsewhere."""
    angle = np.full(buildings.shape, NO_ANGLE, dtype=np.uint8)
    for label, window in enumerate(find_objects(buildings), start=1):
        if window is None:
            continue
        mask = buildings[window] == label
        turned = cv2.minAreaRect(cv2.findNonZero(mask.astype(np.uint8)))[2]
        angle[window][mask] = round(-turned) % 180
    # 255 means unknown, so an erosion (minimum) extends the known directions outwards.
    grown: ByteMap = cv2.erode(angle, np.ones((5, 5), np.uint8))
    return np.where(angle == NO_ANGLE, grown, angle)
