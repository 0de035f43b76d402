"""Smooth random fields for terrain and textures."""

import cv2
import numpy as np

from skypart.worlds.ground import FloatMap


def fractal(shape: tuple[int, int], cell: float, rng: np.random.Generator, octaves: int = 3) -> FloatMap:
    """(h, w) float32 of about zero mean and unit deviation, its coarsest waves about `cell` pixels long."""
    total = np.zeros(shape, dtype=np.float32)
    weight, power = 1.0, 0.0
    for _ in range(octaves):
        rows, columns = (max(int(edge / cell) + 3, 3) for edge in shape)
        grid = rng.standard_normal((rows, columns), dtype=np.float32)
        wide = cv2.resize(grid, (int(columns * cell) + 1, int(rows * cell) + 1), interpolation=cv2.INTER_CUBIC)
        if wide.shape[0] < shape[0] or wide.shape[1] < shape[1]:
            wide = cv2.resize(grid, shape[::-1], interpolation=cv2.INTER_CUBIC)
        total += np.float32(weight) * wide[: shape[0], : shape[1]]
        power += weight * weight * 0.55
        weight *= 0.5
        cell = max(cell / 2, 1.0)
    return total * np.float32(1 / np.sqrt(power))
