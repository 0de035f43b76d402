"""What a camera in flight does that a level square pinhole, aimed at the place, does not: shape, roll, lens and aim."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage

ROLL = 10.0
"""Largest roll, degrees."""
BARREL = (-0.06, 0.16)
"""How much farther from the middle than a pinhole's the corners lie: negative pincushion, positive barrel."""
WIDEST = 16 / 9
"""Largest ratio of the sides; photos lie between a square and it."""
NARROWEST = 0.7
"""Smallest share of the largest frame's edge that fits."""


def photograph(image: RgbImage, rng: np.random.Generator) -> RgbImage:
    """A photo, landscape, (h', w', 3), of what (h, w, 3) uint8 shows: a rolled frame anywhere in it, as large as drawn,
    through a lens that bends straight lines. No pixel comes from outside."""
    height, width = image.shape[:2]
    shape, roll = math.exp(rng.uniform(0.0, math.log(WIDEST))), math.radians(rng.uniform(-ROLL, ROLL))
    barrel, share = rng.uniform(*BARREL), rng.uniform(NARROWEST, 1.0)
    aside, along = rng.uniform(-1.0, 1.0, 2)
    rim = np.linspace(-1, 1, 9)
    corners = np.array([[u, v / shape] for u in rim for v in rim])
    reach = np.abs(_seen(corners, shape, roll, barrel)).max(axis=0)  # of a frame of half-width 1
    half = max(share * min(width / reach[0], height / reach[1]) / 2, 0.5)
    middle = np.array([width, height]) / 2
    middle += np.array([aside, along]) * np.maximum(middle - half * reach, 0.0)
    columns, rows = max(round(2 * half), 1), max(round(2 * half / shape), 1)
    across, down = np.meshgrid((np.arange(columns) + 0.5) / columns * 2 - 1, (np.arange(rows) + 0.5) / rows * 2 - 1)
    frame = np.stack([across, down / shape], axis=-1).reshape(-1, 2)
    points = (middle + half * _seen(frame, shape, roll, barrel) - 0.5).astype(np.float32).reshape(rows, columns, 2)
    taken: RgbImage = cv2.remap(image, points, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return taken


def _seen(points: NDArray[np.float64], shape: float, roll: float, barrel: float) -> NDArray[np.float64]:
    """Where each of (n, 2) points of a frame, 2 wide and 2 / shape high around 0, looks, in the same unit."""
    corner = 1 + 1 / shape**2
    bent = points * (1 + barrel * (points**2).sum(axis=1, keepdims=True) / corner)
    sine, cosine = math.sin(roll), math.cos(roll)
    return np.asarray(bent @ np.array([[cosine, sine], [-sine, cosine]]))
