"""What makes two images of one place differ: season, sun, haze and the camera, each drawn at random."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.worlds.ground import FloatMap

View = Literal["drone", "satellite"]

SEASONS = {
    "summer": (1.0, 1.0, 1.0),
    "spring": (1.05, 1.12, 0.85),
    "late summer": (1.2, 1.05, 0.8),
    "autumn": (1.5, 0.98, 0.62),
    "dry": (1.55, 1.22, 0.95),
    "winter": (1.2, 1.0, 1.05),
}
"""Gain of red, green and blue of vegetation in each season."""


@dataclass(frozen=True)
class Strengths:
    """How much the two views may differ: 1 as in real pairs, 0 switches an effect off, 2 doubles it.

    changes applies when a procedural world is made (new and removed buildings, recoloured roofs); the others apply
    when an image is rendered.
    """

    season: float = 1.0
    sun: float = 1.0
    colour: float = 1.0
    haze: float = 1.0
    blur: float = 1.0
    noise: float = 1.0
    jpeg: float = 1.0
    lean: float = 1.0
    changes: float = 1.0


@dataclass(frozen=True)
class Appearance:
    """Everything between the ground and the pixels: season, sun, air and camera.

    season: gain (r, g, b) of vegetation. sun: (azimuth, elevation) in degrees. direct: share of sunlight.
    gains, gamma, saturation, contrast, vignette: response of the camera. haze: extinction per metre.
    blur: sigma in pixels of a 512 px image. noise: sigma in grey levels. jpeg: quality.
    lean: (east, north) shift per metre of height in satellite images.
    """

    season: tuple[float, float, float] = (1.0, 1.0, 1.0)
    sun: tuple[float, float] = (180.0, 50.0)
    direct: float = 0.6
    gains: tuple[float, float, float] = (1.0, 1.0, 1.0)
    gamma: float = 1.0
    saturation: float = 1.0
    contrast: float = 1.0
    vignette: float = 0.0
    haze: float = 0.0
    blur: float = 0.0
    noise: float = 0.0
    jpeg: int = 95
    lean: tuple[float, float] = (0.0, 0.0)


NEUTRAL = Appearance()
"""No season, no haze, a perfect camera, the sun in the south."""


def sample_appearance(rng: np.random.Generator, view: View, strengths: Strengths | None = None) -> Appearance:
    """A random appearance for one flight or one satellite pass."""
    s = strengths or Strengths()
    drone = view == "drone"
    tint = np.array(list(SEASONS.values())[int(rng.integers(len(SEASONS)))])
    tint = 1.0 + (tint * rng.uniform(0.92, 1.08, 3) - 1.0) * s.season * rng.uniform(0.3, 1.0)
    azimuth = 180.0 + s.sun * rng.uniform(-75.0, 75.0)
    elevation = float(np.clip(50.0 + s.sun * rng.uniform(-22.0, 16.0), 15.0, 80.0))
    cast = rng.normal(0.0, 0.04, 3) * s.colour
    exposure = rng.normal(0.0, 0.08) * s.colour
    off_zenith = np.tan(np.radians(rng.uniform(0.0, 10.0) * s.lean))
    towards = rng.uniform(0.0, 2 * np.pi)
    gains = np.exp(cast - cast.mean() + exposure)
    return Appearance(
        season=(float(tint[0]), float(tint[1]), float(tint[2])),
        sun=(float(azimuth), elevation),
        direct=float(np.clip(0.6 + s.sun * rng.uniform(-0.35, 0.12), 0.1, 0.8)),
        gains=(float(gains[0]), float(gains[1]), float(gains[2])),
        gamma=float(np.exp(rng.normal(0.0, 0.12) * s.colour)),
        saturation=float(np.clip(1.0 + rng.normal(-0.05, 0.18) * s.colour, 0.2, 2.2)),
        contrast=float(np.clip(1.0 + rng.normal(0.0, 0.10) * s.colour, 0.5, 1.8)),
        vignette=float(rng.uniform(0.0, 0.25) * s.colour) if drone else 0.0,
        haze=float(rng.exponential(2.2e-4) * s.haze) if drone else float(rng.uniform(0.0, 0.16) * s.haze),
        blur=float(rng.uniform(0.0, 0.7) * s.blur) if drone else float(rng.uniform(0.3, 1.1) * s.blur),
        noise=float(rng.uniform(0.5, 3.5) * s.noise),
        jpeg=int(np.clip(95 - rng.uniform(0.0, 18.0) * s.jpeg, 25, 98)),
        lean=(float(off_zenith * np.cos(towards)), float(off_zenith * np.sin(towards))),
    )


def expose(light: FloatMap, appearance: Appearance, rng: np.random.Generator) -> RgbImage:
    """Simulate the camera: (h, w, 3) float32 scene colours, 1 = white, to (h, w, 3) uint8."""
    # Gains and saturation in one matrix: each channel is mixed with the grey value.
    grey = np.outer(np.ones(3), [0.299, 0.587, 0.114])
    mix = (grey + (np.eye(3) - grey) * appearance.saturation) * np.asarray(appearance.gains)
    image: FloatMap = cv2.transform(light, mix)
    if appearance.vignette:
        image *= cv2.merge([_vignette(light.shape[0], light.shape[1], appearance.vignette)] * 3)
    sigma = appearance.blur * light.shape[0] / 512
    if sigma > 0.15:
        image = cv2.GaussianBlur(image, (0, 0), sigma)
    curve = _tone_curve(appearance)
    np.clip(image, 0.0, 1.0, out=image)
    toned: FloatMap = curve[(image * 1023.0).astype(np.int16)]
    if appearance.noise:
        toned += rng.standard_normal(toned.shape, dtype=np.float32) * np.float32(appearance.noise)
    return np.clip(np.round(toned), 0, 255).astype(np.uint8)


def _tone_curve(appearance: Appearance) -> NDArray[np.float32]:
    """(1024,) grey levels of scene values 0..1: gamma, then contrast around 0.45."""
    value = np.linspace(0.0, 1.0, 1024)
    value = np.power(value, appearance.gamma)
    return (255.0 * (0.45 + (value - 0.45) * appearance.contrast)).astype(np.float32)


def _vignette(height: int, width: int, amount: float) -> FloatMap:
    """(h, w) brightness factor that falls off towards the corners."""
    rows = np.linspace(-1.0, 1.0, height, dtype=np.float32)[:, None]
    columns = np.linspace(-1.0, 1.0, width, dtype=np.float32)[None, :]
    return 1.0 - np.float32(amount / 2) * (rows * rows + columns * columns)
