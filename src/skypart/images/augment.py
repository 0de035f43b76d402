"""Random crops and colours for training, as a pure function of an image and a generator."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.light import dim, night, veil
from skypart.images.photograph import photograph
from skypart.images.preprocess import Preprocessing


@dataclass(frozen=True)
class Augmentation:
    """How training images are varied. All strengths 0 (and crop 1) leave the image as evaluation sees it.

    crop: smallest share of the area that a random crop keeps. aspect: largest ratio of its sides.
    brightness, contrast, saturation: factors drawn from 1 +- the value. hue: turns drawn from +- the value.
    grey, blur: probabilities. rotation: degrees drawn from +- the value, corners filled by reflection.
    dusk, haze, coarse, jpeg: probabilities of a dim coloured light with noise, of a bright veil that thickens towards
    one side, of lost resolution, and of strong compression; what lies between photos of other cameras and hours.
    cast: deviation of the logarithm of each channel's gain. tone: deviation of the logarithm of the exponent that
    brightness is raised to, as development and other sensors bend it.
    photo, night, sharp: probabilities that a drone's picture is framed as by a camera in flight
    (`images/photograph.py`) instead of cropped, that it was taken under lamps, and that its edges were sharpened, as
    cameras do.
    mirror: probability that a place is mirrored, all its images alike, which makes another place of it. quarter_turns:
    satellite tiles are turned by a random multiple of 90 degrees; for data whose drone images head anywhere.
    """

    crop: float = 0.7
    aspect: float = 1.2
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.03
    grey: float = 0.05
    blur: float = 0.1
    rotation: float = 0.0
    dusk: float = 0.0
    haze: float = 0.0
    coarse: float = 0.0
    jpeg: float = 0.0
    cast: float = 0.0
    tone: float = 0.0
    photo: float = 0.0
    night: float = 0.0
    sharp: float = 0.0
    mirror: float = 0.0
    quarter_turns: bool = False

    def orient(self, image: RgbImage, satellite: bool, shared: int, own: int) -> RgbImage:
        """The image mirrored by chance, and a tile turned by quarters; seeds: `shared` by its place's images, `own`."""
        if self.mirror and np.random.default_rng([shared, 0x3C]).uniform() < self.mirror:
            image = image[:, ::-1]
        if self.quarter_turns and satellite:
            image = np.rot90(image, int(np.random.default_rng([own, 0x71]).integers(4)))
        return np.ascontiguousarray(image)

    def __call__(
        self, image: RgbImage, preprocessing: Preprocessing, rng: np.random.Generator, drone: bool = False
    ) -> RgbImage:
        """(h, w, 3) uint8 of any size -> (size, size, 3) uint8, resized as evaluation resizes."""
        return self.finish(self.frame(image, rng, drone), preprocessing, rng, drone)

    def frame(self, image: RgbImage, rng: np.random.Generator, drone: bool = False) -> RgbImage:
        """First half: turn and crop (h, w, 3) uint8 at its own resolution; what comes off need not be worked on."""
        turned = self._rotate(image, rng)
        if drone and self.photo and rng.uniform() < self.photo:
            return photograph(turned, rng)
        return self._crop(turned, rng)

    def finish(
        self, image: RgbImage, preprocessing: Preprocessing, rng: np.random.Generator, drone: bool = False
    ) -> RgbImage:
        """Second half, with the same generator: resize as evaluation does to (size, size, 3), colours, disturbances."""
        coloured = self._colour(preprocessing.resize(image), rng)
        if drone and self.night and rng.uniform() < self.night:
            coloured = _whole(night(coloured.astype(np.float32), rng))
        if drone and self.sharp and rng.uniform() < self.sharp:
            coloured = _sharpened(coloured, rng)
        return self._disturb(coloured, rng)

    def _rotate(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Turn about the centre."""
        if not self.rotation:
            return image
        height, width = image.shape[:2]
        angle = rng.uniform(-self.rotation, self.rotation)
        matrix = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 1.0)
        turned: RgbImage = cv2.warpAffine(
            image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
        )
        return turned

    def _crop(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """A window of random area, shape and place."""
        height, width = image.shape[:2]
        share, stretch = rng.uniform(self.crop, 1.0), np.exp(rng.uniform(-1, 1) * np.log(max(1.0, self.aspect)))
        x, y = rng.uniform(0, 1, 2)
        rows = min(height, max(1, round(height * float(np.sqrt(share / stretch)))))
        columns = min(width, max(1, round(width * float(np.sqrt(share * stretch)))))
        top, left = round((height - rows) * y), round((width - columns) * x)
        return image[top : top + rows, left : left + columns]

    def _colour(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Brightness, contrast, saturation, hue, then grey and blur by chance."""
        bright, contrast, saturate, turn = rng.uniform(-1, 1, 4)
        grey_draw, blur_draw, sigma = rng.uniform(0, 1, 3)
        pixels = image.astype(np.float32)
        if self.tone:
            pixels = _bent(pixels, rng.normal(0.0, self.tone))
        pixels *= 1 + self.brightness * bright
        mean = pixels.mean(dtype=np.float64)
        pixels = (pixels - np.float32(mean)) * (1 + self.contrast * contrast) + np.float32(mean)
        if self.cast:
            pixels *= np.exp(self.cast * rng.standard_normal(3)).astype(np.float32)
        if self.hue:
            pixels = pixels @ _hue_matrix(self.hue * turn)
        luma = (pixels @ _LUMA)[..., None]
        factor = 0.0 if grey_draw < self.grey else 1 + self.saturation * saturate
        pixels = luma + (pixels - luma) * np.float32(factor)
        if blur_draw < self.blur:
            pixels = cv2.GaussianBlur(pixels, (0, 0), 0.3 + 1.2 * float(sigma))
        return _whole(pixels)

    def _disturb(self, image: RgbImage, rng: np.random.Generator) -> RgbImage:
        """Lost resolution, haze, dusk and compression, each by chance, in the order in which light meets them."""
        chances = (self.coarse, self.haze, self.dusk, self.jpeg)
        if not any(chances):
            return image
        coarse, haze, dusk, jpeg = (draw < chance for draw, chance in zip(rng.uniform(0, 1, 4), chances, strict=True))
        height, width = image.shape[:2]
        if coarse:
            share = rng.uniform(0.35, 0.8)
            small = (max(round(width * share), 1), max(round(height * share), 1))
            image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        if haze or dusk:
            pixels = image.astype(np.float32)
            if haze:
                pixels = veil(pixels, rng)
            if dusk:
                pixels = dim(pixels, rng)
            image = _whole(pixels)
        if jpeg:
            quality = int(rng.integers(18, 70))
            coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            image = np.ascontiguousarray(np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)[:, :, ::-1])
        return image


def _bent(pixels: NDArray[np.float32], curve: float) -> NDArray[np.float32]:
    """Grey levels (h, w, 3) raised to the power exp(curve), black and white left as they are."""
    bent: NDArray[np.float32] = np.float32(255) * np.power(pixels / np.float32(255), np.float32(np.exp(curve)))
    return bent


def _sharpened(image: RgbImage, rng: np.random.Generator) -> RgbImage:
    """(h, w, 3) with what is finer than a random width made stronger."""
    fine, amount = rng.uniform(0.6, 2.0), rng.uniform(0.4, 2.5)
    pixels = image.astype(np.float32)
    return _whole(pixels + np.float32(amount) * (pixels - cv2.GaussianBlur(pixels, (0, 0), fine)))


def _whole(pixels: NDArray[np.float32]) -> RgbImage:
    """Grey levels of any range, rounded and cut off to uint8."""
    rounded: RgbImage = np.clip(pixels + 0.5, 0, 255).astype(np.uint8)
    return rounded


_LUMA = np.asarray([0.299, 0.587, 0.114], dtype=np.float32)


def _hue_matrix(turns: float) -> NDArray[np.float32]:
    """A rotation of colours about the grey axis, (3, 3), to be applied on the right."""
    angle = 2 * np.pi * turns
    axis = np.full((3, 3), 1 / 3)
    cross = np.asarray([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
    matrix = np.cos(angle) * (np.eye(3) - axis) + axis + np.sin(angle) * cross
    return np.asarray(matrix.T, dtype=np.float32)


NO_AUGMENTATION = Augmentation(
    crop=1.0, aspect=1.0, brightness=0, contrast=0, saturation=0, hue=0, grey=0, blur=0, rotation=0
)
