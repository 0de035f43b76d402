"""Preprocessing of a photo into a model input, shared by training, evaluation, export and serving."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.contrast import stretch_contrast
from skypart.images.decode import ImageLike, RgbImage, read_photo
from skypart.images.polar import polar_warp

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
Interpolation: TypeAlias = Literal["bicubic", "bilinear", "area"]
_FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "area": Image.Resampling.BOX,
}
_SCALE = (1.0 / (255.0 * np.asarray(STD))).astype(np.float32)
_SHIFT = (-np.asarray(MEAN) / np.asarray(STD)).astype(np.float32)


@dataclass(frozen=True)
class Preprocessing:
    """Resize a photo to a square and normalise its colours with the ImageNet mean and standard deviation.

    size: edge of the square model input in pixels.
    interpolation: the resize filter, always antialiased; other papers use `area` on corrupted images.
    level: whether to stretch weak contrast, as in fog (`images/contrast.py`).
    polar: whether to warp satellite tiles to polar coordinates (`images/polar.py`), which the paper tried and dropped.
    """

    size: int = 448
    interpolation: Interpolation = "bicubic"
    level: bool = False
    polar: bool = False

    def __post_init__(self) -> None:
        """Raise on an unknown filter."""
        if self.interpolation not in _FILTERS:
            raise SkyPartError(f"unknown interpolation {self.interpolation!r}; choose one of {', '.join(_FILTERS)}")

    def describe(self) -> dict[str, Any]:
        """The settings for a file's header; without `polar` unless it is used, so that older versions read the file."""
        return {name: value for name, value in asdict(self).items() if value or name != "polar"}

    def check_unwarped(self, purpose: str) -> None:
        """Raise if satellite tiles must be warped first, for a purpose that treats all images alike."""
        if self.polar:
            raise SkyPartError(
                f"{purpose}: the model warps satellite tiles to polar coordinates, an experiment that only `train` and "
                "`evaluate` support; use a model trained without backbone.polar"
            )

    def resize(self, image: RgbImage) -> RgbImage:
        """Resize (h, w, 3) uint8 to (size, size, 3) uint8."""
        if image.shape[:2] == (self.size, self.size):
            return image
        resized = Image.fromarray(image).resize((self.size, self.size), _FILTERS[self.interpolation])
        return np.asarray(resized)

    def __call__(self, source: ImageLike) -> NDArray[np.float32]:
        """Turn a path, PIL image or array into a (3, size, size) float32 model input."""
        return self.finish(self.resize(read_photo(source, self.size)))

    def warp_tile(self, image: RgbImage) -> RgbImage:
        """The step between `resize` and `finish` for satellite tiles: (size, size, 3) uint8, warped if `polar`."""
        return polar_warp(image) if self.polar else image

    def read_tile(self, source: ImageLike) -> RgbImage:
        """A satellite tile before `finish`: (size, size, 3) uint8."""
        return self.warp_tile(self.resize(read_photo(source, self.size)))

    def finish(self, image: RgbImage) -> NDArray[np.float32]:
        """Turn a resized image, (size, size, 3) uint8, into a (3, size, size) float32 model input."""
        return normalise(stretch_contrast(image) if self.level else image)


def normalise(image: RgbImage) -> NDArray[np.float32]:
    """(h, w, 3) uint8 to (3, h, w) float32 with zero mean and unit standard deviation over ImageNet."""
    return np.ascontiguousarray((image * _SCALE + _SHIFT).transpose(2, 0, 1))
