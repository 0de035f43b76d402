"""What a bare orthophoto and surface model do not say: filled holes, bare earth, vegetation, facades, wall directions."""

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from skypart.images.decode import RgbImage
from skypart.worlds.ground import NO_ANGLE, ByteMap, FloatMap, Ground

OBJECT_M = 2.5
"""Height above the bare earth from which something is an object, not ground."""


def ground_from_raster(rgb: RgbImage, heights: FloatMap | None, valid: NDArray[np.bool_] | None, gsd: float) -> Ground:
    """A photographed Ground from (h, w, 3) uint8, (h, w) metres or None for flat, and a mask of true cells."""
    if valid is not None and not valid.all():
        rgb, heights = fill_holes(rgb, heights, valid)
    vegetation = vegetation_of(rgb)
    if heights is None:
        flat = np.zeros(rgb.shape[:2], dtype=np.float32)
        angle = np.full(rgb.shape[:2], NO_ANGLE, dtype=np.uint8)
        return Ground(rgb, flat, flat, vegetation, rgb, angle, gsd, baked=True)
    heights = cv2.medianBlur(heights.astype(np.float32), 3)
    terrain = bare_earth(heights, gsd)
    angle = wall_angles(heights - terrain, vegetation, gsd)
    return Ground(rgb, heights, terrain, vegetation, facades_of(rgb, vegetation), angle, gsd, baked=True)


def fill_holes(rgb: RgbImage, heights: FloatMap | None, valid: NDArray[np.bool_]) -> tuple[RgbImage, FloatMap | None]:
    """Give invalid cells the nearest valid height and a smooth mix of the valid colours around them."""
    nearest = distance_transform_edt(~valid, return_distances=False, return_indices=True)
    filled = rgb[tuple(nearest)]
    smooth = cv2.GaussianBlur(filled, (0, 0), 6)
    colours = np.where(valid[:, :, None], rgb, smooth)
    if heights is None:
        return colours, None
    ground = heights[tuple(nearest)].astype(np.float32)
    return colours, np.where(valid, heights, cv2.GaussianBlur(ground, (0, 0), 6)).astype(np.float32)


def vegetation_of(rgb: RgbImage) -> ByteMap:
    """(h, w) uint8 weight of vegetation from the excess of green over red and blue."""
    colour = cv2.GaussianBlur(rgb, (3, 3), 0).astype(np.float32)
    total = colour.sum(axis=2) + 1.0
    excess = (2 * colour[:, :, 1] - colour[:, :, 0] - colour[:, :, 2]) / total
    return np.clip((excess - 0.02) * (255 / 0.08), 0, 255).astype(np.uint8)


def bare_earth(heights: FloatMap, gsd: float, widest_m: float = 60.0) -> FloatMap:
    """The earth below objects up to `widest_m` across: a grey opening at a coarse cell, smoothed."""
    cell = max(3.0, 2 * gsd)
    small = (max(round(heights.shape[1] * gsd / cell), 2), max(round(heights.shape[0] * gsd / cell), 2))
    coarse = cv2.resize(heights, small, interpolation=cv2.INTER_AREA)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * int(widest_m / cell / 2) + 1,) * 2)
    opened = cv2.GaussianBlur(cv2.morphologyEx(coarse, cv2.MORPH_OPEN, kernel), (0, 0), 2)
    earth: FloatMap = cv2.resize(opened, heights.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.minimum(earth, heights)


def facades_of(rgb: RgbImage, vegetation: ByteMap) -> RgbImage:
    """Wall colours guessed from the roof: greyer and a little darker; under a tree's crown the crown's, darker."""
    smooth = cv2.GaussianBlur(rgb, (0, 0), 2).astype(np.float32)
    wall = 0.5 * smooth + 0.5 * 132.0
    leaf = 0.62 * rgb.astype(np.float32)
    share = (vegetation.astype(np.float32) / 255)[:, :, None]
    return np.clip(wall * (1 - share) * 0.85 + leaf * share, 0, 255).astype(np.uint8)


def wall_angles(above: FloatMap, vegetation: ByteMap, gsd: float) -> ByteMap:
    """Direction of each building's longer side in degrees, grown over its edge; NO_ANGLE elsewhere."""
    solid = ((above > OBJECT_M) & (vegetation < 90)).astype(np.uint8)
    solid = cv2.morphologyEx(solid, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid)
    angle = np.full(above.shape, NO_ANGLE, dtype=np.uint8)
    for label in range(1, count):
        left, top, width, height, area = stats[label]
        if area * gsd * gsd < 40:
            continue
        window = labels[top : top + height, left : left + width] == label
        points = cv2.findNonZero(window.astype(np.uint8))
        turned = cv2.minAreaRect(points)[2]
        angle[top : top + height, left : left + width][window] = int(round(-turned)) % 180
    # 255 is "none", so an erosion (minimum) grows the known directions outwards.
    grown: ByteMap = cv2.erode(angle, np.ones((5, 5), np.uint8))
    return np.where(angle == NO_ANGLE, grown, angle)
