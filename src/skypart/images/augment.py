"""Random crops and colours for training, as a pure function of an image and a generator."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.images.decode import RgbImage
from skypart.images.preprocess import Preprocessing


@dataclass(frozen=True)
class Augmentation:
    """How training images are varied. All strengths 0 (and crop 1) leave the image as evaluation sees it.

    crop: smallest share of the area that a random crop keeps. aspect: largest ratio of its sides.
    brightness, contrast, saturation: factors drawn from 1 +- the value. hue: turns drawn from +- the value.
    grey, blur: probabilities. rotation: degrees drawn from +- the value, corners filled by reflection.
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

    def __call__(self, image: RgbImage, preprocessing: Preprocessing, rng: np.random.Generator) -> RgbImage:
        """(h, w, 3) uint8 of any size -> (size, size, 3) uint8, resized as evaluation resizes."""
        turned = self._rotate(image, rng)
        cropped = self._crop(turned, rng)
        return self._colour(preprocessing.resize(cropped), rng)

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
        pixels *= 1 + self.brightness * bright
        mean = pixels.mean(dtype=np.float64)
        pixels = (pixels - np.float32(mean)) * (1 + self.contrast * contrast) + np.float32(mean)
        if self.hue:
            pixels = pixels @ _hue_matrix(self.hue * turn)
        luma = (pixels @ _LUMA)[..., None]
        factor = 0.0 if grey_draw < self.grey else 1 + self.saturation * saturate
        pixels = luma + (pixels - luma) * np.float32(factor)
        if blur_draw < self.blur:
            pixels = cv2.GaussianBlur(pixels, (0, 0), 0.3 + 1.2 * float(sigma))
        coloured: RgbImage = np.clip(pixels + 0.5, 0, 255).astype(np.uint8)
        return coloured


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
