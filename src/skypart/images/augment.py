"""Training augmentation: random frames, colours, light and image defects. A pure function of image and generator."""

import math
from dataclasses import dataclass
from typing import Annotated

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skypart.images.decode import RgbImage
from skypart.images.preprocess import Preprocessing

MAX_ROLL_DEG = 10.0
"""Largest camera roll of `photograph`."""
BARREL_RANGE = (-0.06, 0.16)
"""Relative radial distortion of `photograph` at the corners: negative is pincushion, positive is barrel."""
MAX_ASPECT = 16 / 9
"""Largest aspect ratio of `photograph`; the smallest is 1."""
MIN_FRAME = 0.7
"""Smallest edge of a frame of `photograph`, as a share of the largest frame that fits."""

Probability = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Augmentation:
    """How training images are augmented. With all strengths 0 and crop 1, images stay as evaluation sees them.

    crop: smallest share of the area that a random crop keeps. aspect: largest aspect ratio of the crop.
    brightness, contrast, saturation: factors drawn from 1 ± the value. hue: turns drawn from ± the value.
    grey, blur: probabilities. rotation: degrees drawn from ± the value; corners are filled by reflection.
    dusk, haze, coarse, jpeg: probabilities of dim coloured light with noise, of haze that thickens towards one side,
    of reduced resolution, and of strong compression.
    grey_tile: the probability of grey for satellite tiles, if larger than `grey`: many maps have no colour.
    cast: standard deviation of the log gain of each channel. tone: standard deviation of the log gamma.
    photo, night, sharp: for drone images, probabilities of reframing by `photograph` instead of cropping, of night
    with street lamps, and of sharpened edges.
    mirror: probability that all images of a location are mirrored, which makes it another location. quarter_turns:
    rotate satellite tiles by a random multiple of 90 degrees, for data whose drone images have any heading.
    turn_drone: rotate drone images so; with quarter_turns the rotation of both views that the paper dropped.
    """

    crop: Annotated[float, Field(ge=1e-3, le=1)] = 0.7
    aspect: Annotated[float, Field(ge=1, le=100)] = 1.2
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.03
    grey: Probability = 0.05
    grey_tile: Probability = 0.0
    blur: Probability = 0.1
    rotation: float = 0.0
    dusk: Probability = 0.0
    haze: Probability = 0.0
    coarse: Probability = 0.0
    jpeg: Probability = 0.0
    cast: Annotated[float, Field(ge=0, le=10)] = 0.0
    tone: Annotated[float, Field(ge=0, le=3)] = 0.0
    photo: Probability = 0.0
    night: Probability = 0.0
    sharp: Probability = 0.0
    mirror: Probability = 0.0
    quarter_turns: bool = False
    turn_drone: bool = False

    def orient(self, image: RgbImage, satellite: bool, shared: int, own: int) -> RgbImage:
        """Mirror the image and rotate satellite tiles. shared: seed of the location. own: seed of this image."""
        if self.mirror and np.random.default_rng([shared, 0x3C]).uniform() < self.mirror:
            image = image[:, ::-1]
        if (self.quarter_turns and satellite) or (self.turn_drone and not satellite):
            image = np.rot90(image, int(np.random.default_rng([own, 0x71]).integers(4)))
        return np.ascontiguousarray(image)

    def __call__(
        self, image: RgbImage, preprocessing: Preprocessing, rng: np.random.Generator, drone: bool = False
    ) -> RgbImage:
        """(h, w, 3) uint8 of any size -> (size, size, 3) uint8, resized as evaluation resizes."""
        return self.finish(self.frame(image, rng, drone), preprocessing, rng, drone)

    def frame(self, image: RgbImage, rng: np.random.Generator, drone: bool = False) -> RgbImage:
        """First half: rotate and crop (h, w, 3) uint8 at its own resolution, so that later steps see fewer pixels."""
        rotated = self._rotate(image, rng)
        if drone and self.photo and rng.uniform() < self.photo:
            return photograph(rotated, rng)
        return self._crop(rotated, rng)

    def finish(
        self, image: RgbImage, preprocessing: Preprocessing, rng: np.random.Generator, drone: bool = False
    ) -> RgbImage:
        """Second half, with the same generator: resize as evaluation does to (size, size, 3), then vary the colours."""
        grey = self.grey if drone else max(self.grey, self.grey_tile)
        coloured = self._colour(preprocessing.resize(image), rng, grey)
        if drone and self.night and rng.uniform() < self.night:
            coloured = _to_bytes(add_night(coloured.astype(np.float32), rng))
        if drone and self.sharp and rng.uniform() < self.sharp:
            coloured = _sharpen(coloured, rng)
        return self._degrade(coloured, rng)

    def _rotate(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Rotate about the centre."""
        if not self.rotation:
            return image
        height, width = image.shape[:2]
        angle = rng.uniform(-self.rotation, self.rotation)
        matrix = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 1.0)
        rotated: RgbImage = cv2.warpAffine(
            image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
        )
        return rotated

    def _crop(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Crop a window of random area, aspect ratio and position."""
        height, width = image.shape[:2]
        share, stretch = rng.uniform(self.crop, 1.0), np.exp(rng.uniform(-1, 1) * np.log(max(1.0, self.aspect)))
        x, y = rng.uniform(0, 1, 2)
        rows = min(height, max(1, round(height * float(np.sqrt(share / stretch)))))
        columns = min(width, max(1, round(width * float(np.sqrt(share * stretch)))))
        top, left = round((height - rows) * y), round((width - columns) * x)
        return image[top : top + rows, left : left + columns]

    def _colour(self, image: RgbImage, rng: np.random.Generator, grey: float = 0.0) -> RgbImage:
        """Tone, brightness, contrast, cast, hue and saturation; then grey, with the probability given, and blur."""
        bright, contrast, saturate, turn = rng.uniform(-1, 1, 4)
        grey_draw, blur_draw, sigma = rng.uniform(0, 1, 3)
        pixels = image.astype(np.float32)
        if self.tone:
            pixels = _apply_gamma(pixels, rng.normal(0.0, self.tone))
        pixels *= 1 + self.brightness * bright
        mean = pixels.mean(dtype=np.float64)
        pixels = (pixels - np.float32(mean)) * (1 + self.contrast * contrast) + np.float32(mean)
        if self.cast:
            pixels *= np.exp(self.cast * rng.standard_normal(3)).astype(np.float32)
        if self.hue:
            pixels = pixels @ _hue_matrix(self.hue * turn)
        luma = (pixels @ _LUMA)[..., None]
        factor = 0.0 if grey_draw < grey else 1 + self.saturation * saturate
        pixels = luma + (pixels - luma) * np.float32(factor)
        if blur_draw < self.blur:
            pixels = cv2.GaussianBlur(pixels, (0, 0), 0.3 + 1.2 * float(sigma))
        return _to_bytes(pixels)

    def _degrade(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Reduced resolution, haze, dusk and compression, each with its probability."""
        probabilities = (self.coarse, self.haze, self.dusk, self.jpeg)
        if not any(probabilities):
            return image
        coarse, haze, dusk, jpeg = (rng.uniform(0, 1, 4) < probabilities).tolist()
        height, width = image.shape[:2]
        if coarse:
            share = rng.uniform(0.35, 0.8)
            small = (max(round(width * share), 1), max(round(height * share), 1))
            image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        if haze or dusk:
            pixels = image.astype(np.float32)
            if haze:
                pixels = add_haze(pixels, rng)
            if dusk:
                pixels = add_dusk(pixels, rng)
            image = _to_bytes(pixels)
        if jpeg:
            quality = int(rng.integers(18, 70))
            coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            image = np.ascontiguousarray(np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)[:, :, ::-1])
        return image


def _apply_gamma(pixels: NDArray[np.float32], log_gamma: float) -> NDArray[np.float32]:
    """Grey levels (h, w, 3) raised to the power exp(log_gamma); black and white stay."""
    curved: NDArray[np.float32] = np.float32(255) * np.power(pixels / np.float32(255), np.float32(np.exp(log_gamma)))
    return curved


def _sharpen(image: RgbImage, rng: np.random.Generator) -> RgbImage:
    """Unsharp mask of random width and strength."""
    sigma, amount = rng.uniform(0.6, 2.0), rng.uniform(0.4, 2.5)
    pixels = image.astype(np.float32)
    return _to_bytes(pixels + np.float32(amount) * (pixels - cv2.GaussianBlur(pixels, (0, 0), sigma)))


def _to_bytes(pixels: NDArray[np.float32]) -> RgbImage:
    """Round and clip to uint8."""
    rounded: RgbImage = np.clip(pixels + 0.5, 0, 255).astype(np.uint8)
    return rounded


_LUMA = np.asarray([0.299, 0.587, 0.114], dtype=np.float32)


def _hue_matrix(turns: float) -> NDArray[np.float32]:
    """(3, 3) rotation of colours about the grey axis, applied from the right."""
    angle = 2 * np.pi * turns
    axis = np.full((3, 3), 1 / 3)
    cross = np.asarray([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
    matrix = np.cos(angle) * (np.eye(3) - axis) + axis + np.sin(angle) * cross
    return np.asarray(matrix.T, dtype=np.float32)


NO_AUGMENTATION = Augmentation(
    crop=1.0, aspect=1.0, brightness=0, contrast=0, saturation=0, hue=0, grey=0, blur=0, rotation=0
)


# --- framing and light ----------------------------------------------------------------------------------------------


def photograph(image: RgbImage, rng: np.random.Generator) -> RgbImage:
    """Reframe (h, w, 3) uint8 as a camera in flight would: a landscape photo (h', w', 3) from a random position in it.

    Aspect ratio, roll, lens distortion, size and position are random. No pixel comes from outside the image.
    """
    height, width = image.shape[:2]
    aspect = math.exp(rng.uniform(0.0, math.log(MAX_ASPECT)))
    roll = math.radians(rng.uniform(-MAX_ROLL_DEG, MAX_ROLL_DEG))
    barrel, share = rng.uniform(*BARREL_RANGE), rng.uniform(MIN_FRAME, 1.0)
    right, down = rng.uniform(-1.0, 1.0, 2)
    grid = np.linspace(-1, 1, 9)
    samples = np.array([[u, v / aspect] for u in grid for v in grid])
    reach = np.abs(_distort(samples, aspect, roll, barrel)).max(axis=0)  # of a frame of half-width 1
    half = max(share * min(width / reach[0], height / reach[1]) / 2, 0.5)
    centre = np.array([width, height]) / 2
    centre += np.array([right, down]) * np.maximum(centre - half * reach, 0.0)
    columns, rows = max(round(2 * half), 1), max(round(2 * half / aspect), 1)
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns * 2 - 1, (np.arange(rows) + 0.5) / rows * 2 - 1)
    frame = np.stack([x, y / aspect], axis=-1).reshape(-1, 2)
    points = (centre + half * _distort(frame, aspect, roll, barrel) - 0.5).astype(np.float32).reshape(rows, columns, 2)
    photo: RgbImage = cv2.remap(image, points, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return photo


def _distort(points: NDArray[np.float64], aspect: float, roll: float, barrel: float) -> NDArray[np.float64]:
    """Apply lens distortion and roll to (n, 2) points of a frame 2 wide and 2 / aspect high around 0."""
    corner = 1 + 1 / aspect**2
    distorted = points * (1 + barrel * (points**2).sum(axis=1, keepdims=True) / corner)
    sine, cosine = math.sin(roll), math.cos(roll)
    return np.asarray(distorted @ np.array([[cosine, sine], [-sine, cosine]]))


def add_haze(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Add bright haze to (h, w, 3) grey levels, thicker towards a random side."""
    height, width = pixels.shape[:2]
    angle, base, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.5), rng.uniform(0.0, 0.4)
    rows = np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None] * np.float32(np.sin(angle))
    columns = np.linspace(-0.5, 0.5, width, dtype=np.float32)[None, :] * np.float32(np.cos(angle))
    share = np.clip(base + slope * (rows + columns), 0.0, 0.85)[..., None].astype(np.float32)
    colour = np.float32(rng.uniform(150, 235)) * (1 + rng.normal(0, 0.04, 3)).astype(np.float32)
    hazy: NDArray[np.float32] = pixels * (1 - share) + colour * share
    return hazy


def add_dusk(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Turn (h, w, 3) grey levels into dusk: dark, noisy, with a colour cast from blue to sodium orange."""
    gain, gamma = rng.uniform(0.15, 0.7), rng.uniform(1.0, 2.0)
    cast = np.exp(np.array([1.0, 0.1, -1.0]) * rng.normal(0.0, 0.25)).astype(np.float32)
    scaled = np.power(np.clip(pixels, 0, 255) / np.float32(255), np.float32(gamma))
    grain = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(rng.uniform(1.0, 9.0))
    dark: NDArray[np.float32] = scaled * cast * np.float32(255 * gain) + grain
    return dark


def add_night(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Turn (h, w, 3) grey levels into night: faint sky light, pools of light around glowing lamps, noise."""
    height, width = pixels.shape[:2]
    gain, gamma = np.exp(rng.uniform(np.log(0.12), np.log(0.5))), rng.uniform(1.0, 1.8)
    sky, lamp = (
        np.exp(np.array([1.0, 0.0, -1.0]) * warmth) for warmth in (rng.normal(-0.1, 0.2), rng.uniform(-0.1, 0.7))
    )
    ground = np.power(np.clip(pixels, 0, 255) / np.float32(255), np.float32(gamma))
    pools, glow = _lamps(height, width, rng)
    lit = ground * (sky * gain).astype(np.float32)
    lit += ground * pools[..., None] * (lamp * rng.uniform(0.2, 0.9)).astype(np.float32)
    lit += glow[..., None] * lamp.astype(np.float32)
    grain = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(rng.uniform(1.0, 8.0))
    dark: NDArray[np.float32] = lit * np.float32(255) + grain
    return dark


def _lamps(height: int, width: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Light that lamps at random places cast on the ground, and their glow from above: (h, w) each."""
    lamps = np.zeros((height, width), dtype=np.float32)
    count = int(np.exp(rng.uniform(np.log(2), np.log(50))))
    lamps[rng.integers(height, size=count), rng.integers(width, size=count)] = 1
    edge = max(height, width)
    pool_sigma, glow_sigma = edge * rng.uniform(0.02, 0.06), max(edge * rng.uniform(0.002, 0.005), 0.5)
    pools, glow = (
        cv2.GaussianBlur(lamps, (0, 0), sigma) * np.float32(2 * np.pi * sigma**2) for sigma in (pool_sigma, glow_sigma)
    )
    return np.minimum(pools, 1), np.minimum(glow, 1)
