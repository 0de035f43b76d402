"""The keypoints of an image: points that can be found again in another image of the same ground, with descriptors.

The detector is XFeat (Potje et al., CVPR 2024), shipped as an ONNX graph; packaging/keypoints_onnx.py makes it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from skypart.embedding.onnx import open_session
from skypart.embedding.shipped import verified_detector
from skypart.images.decode import RgbImage

INPUT, OUTPUTS = "images", ("scores", "descriptors")
"""Names in the graph: grey images (n, 1, h, w) to scores (n, h, w) and descriptor maps (n, 64, h/8, w/8)."""
STEP = 32
"""Edges of the detector's input are multiples of this."""
CELL = 8
"""Pixels between the descriptors of the map."""
MAX_KEYPOINTS = 1024
"""Keypoints of an image; those with the highest scores are kept. Twice as many cost time and locate nothing more."""
_MEAN = np.full((1, 3), 1.0 / 3.0, dtype=np.float32)
_CUBIC = -0.75
"""Free parameter of the bicubic kernel."""


@dataclass(frozen=True)
class ImageKeypoints:
    """The keypoints of one image, highest score first.

    points: (n, 2) as (x, y) in [0, 1]. descriptors: (n, 64) unit rows.
    """

    points: NDArray[np.float64]
    descriptors: NDArray[np.float32]


class KeypointDetector:
    """Finds keypoints with an ONNX graph on the CPU."""

    def __init__(self, file: Path) -> None:
        self._session = open_session(file)

    def run(self, images: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Score maps (n, h, w) and descriptor maps (n, 64, h/8, w/8) of grey images (n, 1, h, w)."""
        scores, descriptors = self._session.run(list(OUTPUTS), {INPUT: images})
        return scores, descriptors

    def detect(self, image: RgbImage) -> ImageKeypoints:
        """Keypoints of an image (h, w, 3) whose edges are multiples of STEP."""
        grey = cv2.transform(image.astype(np.float32), _MEAN)
        scores, descriptors = self.run(grey[None, None])
        rows, columns = strongest(scores[0], MAX_KEYPOINTS)
        height, width = grey.shape
        points = np.stack([(columns + 0.5) / width, (rows + 0.5) / height], axis=1)
        y, x = rows * (height / CELL / (height - 1)) - 0.5, columns * (width / CELL / (width - 1)) - 0.5
        return ImageKeypoints(points, sample_bicubic(descriptors[0], y, x))


@cache
def shipped_keypoints() -> KeypointDetector:
    """The shipped detector, after a check of its SHA-256."""
    return KeypointDetector(verified_detector())


def detector_shape(aspect: float, edge: int) -> tuple[int, int]:
    """Height and width in pixels, multiples of STEP, with about the area of a square of `edge` pixels.

    aspect: height over width of the image.
    """
    shape = [max(1, round(edge * each / STEP)) * STEP for each in (aspect**0.5, aspect**-0.5)]
    return shape[0], shape[1]


def resize_for_detector(image: RgbImage, shape: tuple[int, int]) -> RgbImage:
    """Resize an image (h, w, 3) to `shape`, (height, width)."""
    shrinks = image.shape[0] > shape[0]
    resized: RgbImage = cv2.resize(image, shape[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return resized


def strongest(scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the `count` highest positive values of a map (h, w), highest first."""
    flat = scores.ravel()
    found = np.flatnonzero(flat > 0)
    if len(found) > count:
        found = found[np.argpartition(-flat[found], count - 1)[:count]]
    found = found[np.argsort(-flat[found], kind="stable")]
    rows, columns = np.divmod(found, scores.shape[1])
    return rows, columns


def sample_bicubic(values: NDArray[np.float32], y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Unit rows (n, c) of a map (c, h, w) at fractional rows and columns (n,); beyond the border it is zero."""
    channels, height, width = values.shape
    padded = np.zeros((height + 4, width + 4, channels), dtype=np.float32)
    padded[2:-2, 2:-2] = values.transpose(1, 2, 0)
    row, column = np.floor(y).astype(np.intp), np.floor(x).astype(np.intp)
    across, down = _cubic_weights(x - column), _cubic_weights(y - row)
    sampled = np.zeros((len(y), channels), dtype=np.float32)
    for i in range(4):
        for j in range(4):
            sampled += (down[i] * across[j])[:, None] * padded[row + 1 + i, column + 1 + j]
    unit: NDArray[np.float32] = sampled / np.linalg.norm(sampled, axis=1, keepdims=True).clip(1e-6)
    return unit


def _cubic_weights(offset: NDArray[np.float64]) -> list[NDArray[np.float32]]:
    """Weights of the four neighbours from -1 to 2, for offsets (n,) in [0, 1)."""
    weights = []
    for neighbour in range(-1, 3):
        distance = np.abs(offset - neighbour)
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
        weights.append(np.where(distance <= 1, near, far).astype(np.float32))
    return weights


def mutual_neighbours(photo: ImageKeypoints, view: ImageKeypoints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Numbers of the keypoints that are each other's most similar one, in the photo and in the view."""
    if not len(photo.points) or not len(view.points):
        none = np.zeros(0, dtype=np.intp)
        return none, none
    similarity = photo.descriptors @ view.descriptors.T
    forward = similarity.argmax(axis=1)
    chosen = similarity[np.arange(len(forward)), forward]
    mutual = np.flatnonzero(chosen == similarity.max(axis=0)[forward])  # far faster than the argmax of columns
    return mutual, forward[mutual]
