"""Raster bands to 8-bit colours: palette lookup, and contrast stretch of wider types."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (1.0, 99.0)
"""Percentiles of the values that become 0 and 255."""


def palette_table(colours: Mapping[int, Sequence[int]], entries: int = 256) -> NDArray[np.uint8]:
    """(entries, 4) RGBA of each palette value; values without a colour are opaque black."""
    table = np.zeros((entries, 4), dtype=np.uint8)
    table[:, 3] = 255
    for value, colour in colours.items():
        table[value, : len(colour)] = colour
    return table


def stretch_limits(values: NDArray[np.generic]) -> tuple[float, float]:
    """The values that become 0 and 255: PERCENTILES of the finite `values` (any shape); 0 and 1 if there are none."""
    wide = values.astype(np.float64, copy=False)
    known = wide[np.isfinite(wide)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.percentile(known, PERCENTILES)
    return float(low), float(high)


def stretch(values: NDArray[np.generic], limits: tuple[float, float]) -> NDArray[np.uint8]:
    """Values (any shape) as uint8, with the two limits at 0 and 255; values that are not finite become 0."""
    low, high = limits
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255.0 / max(high - low, 1e-6))
    known: NDArray[np.float32] = np.nan_to_num(scaled, nan=0.0, posinf=255.0, neginf=0.0)
    return np.rint(np.clip(known, 0, 255)).astype(np.uint8)
