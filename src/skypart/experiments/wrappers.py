"""Inference-time wrappers around a model: departures from the single-pass protocol, for comparisons only."""

from collections.abc import Sequence

import numpy as np

from skypart.embedding.interface import Embedder, Inputs, PatchTokens, Vectors, is_single_image
from skypart.images.decode import ImageLike, RgbImage, read_rgb
from skypart.images.preprocess import Preprocessing

CROP = 0.8
"""Edge of a crop, as a share of the image's."""


class MultiCropEmbedder(Embedder):
    """The normalised mean embedding of an image and of its four corner crops: five passes instead of one."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    @property
    def digest(self) -> str:
        """That of the model, marked."""
        return f"{self.inner.digest}-multi-crop"

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.inner.dim

    @property
    def preprocessing(self) -> Preprocessing:
        """As the model's."""
        return self.inner.preprocessing

    def embed(self, images: ImageLike | Sequence[ImageLike], batch_size: int = 16) -> Vectors:
        """Mean over five crops: (n, dim) unit rows, or (dim,) for a single image."""
        if is_single_image(images):
            return np.asarray(self.embed([images], batch_size)[0])
        arrays = [read_rgb(image) for image in images]
        total = self.inner.embed(arrays, batch_size)
        for corner in range(4):
            total = total + self.inner.embed([_corner(array, corner) for array in arrays], batch_size)
        norm: Vectors = np.linalg.norm(total, axis=1, keepdims=True)
        return np.asarray(total / np.maximum(norm, 1e-12), dtype=np.float32)

    def embed_inputs(self, inputs: Inputs) -> Vectors:
        """One pass: inputs are cropped and resized already."""
        return self.inner.embed_inputs(inputs)

    def embed_with_patches(self, inputs: Inputs) -> tuple[Vectors, PatchTokens]:
        """One pass."""
        return self.inner.embed_with_patches(inputs)

    def patch_tokens(self, inputs: Inputs) -> PatchTokens:
        """One pass."""
        return self.inner.patch_tokens(inputs)


def _corner(image: RgbImage, corner: int) -> RgbImage:
    """One of the four corners of an image (h, w, 3)."""
    height, width = image.shape[:2]
    rows, columns = max(1, round(CROP * height)), max(1, round(CROP * width))
    top = 0 if corner < 2 else height - rows
    left = 0 if corner % 2 == 0 else width - columns
    return np.ascontiguousarray(image[top : top + rows, left : left + columns])


MODEL_WRAPPERS = {"multi_crop": MultiCropEmbedder}
"""Wrappers by the name that a plan's row gives."""
