"""Light that training pictures were not taken in: haze, dusk, and night under lamps."""

import cv2
import numpy as np
from numpy.typing import NDArray


def veil(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """(h, w, 3) grey levels behind a bright haze, thicker towards a random side."""
    height, width = pixels.shape[:2]
    angle, base, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.5), rng.uniform(0.0, 0.4)
    rows = np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None] * np.float32(np.sin(angle))
    columns = np.linspace(-0.5, 0.5, width, dtype=np.float32)[None, :] * np.float32(np.cos(angle))
    share = np.clip(base + slope * (rows + columns), 0.0, 0.85)[..., None].astype(np.float32)
    colour = np.float32(rng.uniform(150, 235)) * (1 + rng.normal(0, 0.04, 3)).astype(np.float32)
    veiled: NDArray[np.float32] = pixels * (1 - share) + colour * share
    return veiled


def dim(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """(h, w, 3) grey levels at dusk: dark, of one cast from blue to sodium, noisy."""
    gain, gamma = rng.uniform(0.15, 0.7), rng.uniform(1.0, 2.0)
    cast = np.exp(np.array([1.0, 0.1, -1.0]) * rng.normal(0.0, 0.25)).astype(np.float32)
    scaled = np.power(np.clip(pixels, 0, 255) / np.float32(255), np.float32(gamma))
    grain = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(rng.uniform(1.0, 9.0))
    dimmed: NDArray[np.float32] = scaled * cast * np.float32(255 * gain) + grain
    return dimmed


def night(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """(h, w, 3) grey levels at night: faint under the sky, in pools of light around lamps, which glow; noisy."""
    height, width = pixels.shape[:2]
    gain, gamma = np.exp(rng.uniform(np.log(0.12), np.log(0.5))), rng.uniform(1.0, 1.8)
    sky, lamp = (np.exp(np.array([1.0, 0.0, -1.0]) * turn) for turn in (rng.normal(-0.1, 0.2), rng.uniform(-0.1, 0.7)))
    ground = np.power(np.clip(pixels, 0, 255) / np.float32(255), np.float32(gamma))
    pools, glow = _lamps(height, width, rng)
    lit = ground * (sky * gain).astype(np.float32)
    lit += ground * pools[..., None] * (lamp * rng.uniform(0.2, 0.9)).astype(np.float32)
    lit += glow[..., None] * lamp.astype(np.float32)
    grain = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(rng.uniform(1.0, 8.0))
    dark: NDArray[np.float32] = lit * np.float32(255) + grain
    return dark


def _lamps(height: int, width: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Light on the ground and seen from above, (h, w) each, of a few to many lamps at random places."""
    bare = np.zeros((height, width), dtype=np.float32)
    count = int(np.exp(rng.uniform(np.log(2), np.log(50))))
    bare[rng.integers(height, size=count), rng.integers(width, size=count)] = 1
    edge = max(height, width)
    reach, bulb = edge * rng.uniform(0.02, 0.06), max(edge * rng.uniform(0.002, 0.005), 0.5)
    pools, glow = (cv2.GaussianBlur(bare, (0, 0), sigma) * np.float32(2 * np.pi * sigma**2) for sigma in (reach, bulb))
    return np.minimum(pools, 1), np.minimum(glow, 1)
