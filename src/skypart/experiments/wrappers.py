"""Inference-time wrappers around a model: departures from the single-pass protocol, for comparisons only."""

from collections.abc import Callable, Sequence

import numpy as np

from skypart.embedding.interface import Embedder, Inputs, PatchTokens, Vectors, is_single_image
from skypart.errors import SkyPartError
from skypart.evaluation.rerank import expand_queries, k_reciprocal_scores
from skypart.images.decode import ImageLike, RgbImage, read_rgb
from skypart.images.preprocess import Preprocessing
from skypart.model.embedder import TorchEmbedder
from skypart.model.token_merging import merge_tokens

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


def require_torch(embedder: Embedder) -> TorchEmbedder:
    """`embedder`, for wrappers that change the model itself."""
    if not isinstance(embedder, TorchEmbedder):
        raise SkyPartError("Tent and token merging change the model itself; use a .safetensors model")
    return embedder


def _merging(embedder: Embedder) -> Embedder:
    return merge_tokens(require_torch(embedder))


def _expanded(query: Vectors, gallery: Vectors) -> tuple[Vectors, Vectors]:
    return expand_queries(query, gallery, min(5, len(gallery))), gallery


def _reranked(query: Vectors, gallery: Vectors) -> tuple[Vectors, Vectors]:
    """Scores as features: the product of (q, g) scores with the identity (g, g) is the scores themselves."""
    count = len(query) + len(gallery)
    scores = k_reciprocal_scores(query, gallery, min(20, count - 1), min(6, count - 1))
    return scores.astype(np.float32), np.eye(len(gallery), dtype=np.float32)


EMBEDDING_WRAPPERS: dict[str, Callable[[Vectors, Vectors], tuple[Vectors, Vectors]]] = {
    "query_expansion": _expanded,
    "k_reciprocal": _reranked,
}
"""Wrappers that only need the embeddings of queries and gallery, by the name that a plan's row gives."""
MODEL_WRAPPERS: dict[str, Callable[[Embedder], Embedder]] = {
    "multi_crop": MultiCropEmbedder,
    "token_merging": _merging,
}
"""Wrappers around a model, by the name that a plan's row gives."""
TENT = "tent"
"""The wrapper that adapts the model to the queries; it needs the gallery, so that `measure` applies it."""
WRAPPER_NAMES = (*EMBEDDING_WRAPPERS, *MODEL_WRAPPERS, TENT)
"""All that a plan's row may name."""
