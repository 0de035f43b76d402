"""The patches of an image: tokens that can be compared between images, and a compact form of them to be stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.interface import Embedder, Inputs, PatchTokens
from skypart.images.decode import RgbImage

GREY_LEVELS = (60, 120, 180)
"""Blank images from which the positional part of patch tokens is measured."""
COMPACT_CHANNELS = 96
"""Channels of a compact token."""
COMPACT_VERSION = 1
"""Incremented when compact tokens change: stored ones of another version are not used."""
_QUANTUM = 1.0 / 254.0
"""Step of a compact token's channels. They are numbers of a unit vector, and few exceed one half."""


@dataclass(frozen=True)
class ImagePatches:
    """The patches of one image.

    tokens: (n, c) unit rows. centres: (n, 2) as (x, y) in [0, 1]. aspect: height over width of the image before it was
    resized to a square.
    """

    tokens: NDArray[np.float32]
    centres: NDArray[np.float64]
    aspect: float = 1.0


class PatchReader:
    """Reads patch tokens from images and removes their positional part.

    A token also encodes its position in the image, so even two blank images match patch by patch. In an image of
    uniform grey the tokens differ by position only; that difference is subtracted.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def read(self, images: Sequence[RgbImage]) -> list[ImagePatches]:
        """Patches of images, computed in one batch."""
        return self._normalize(self.embedder.patch_tokens(self.embedder.preprocess(images)))

    def read_photo(self, image: RgbImage) -> tuple[NDArray[np.float32], ImagePatches]:
        """The embedding (dim,) of one photo, and its patches."""
        vectors, patches = self.embed(self.embedder.preprocess([image]))
        return vectors[0], replace(patches[0], aspect=image.shape[0] / image.shape[1])

    def embed(self, inputs: Inputs) -> tuple[NDArray[np.float32], list[ImagePatches]]:
        """Embeddings (n, dim) and patches of preprocessed inputs (n, 3, size, size), in one pass."""
        vectors, patches = self.embedder.embed_with_patches(inputs)
        return vectors, self._normalize(patches)

    def _normalize(self, patches: PatchTokens) -> list[ImagePatches]:
        """Centre the tokens, scale them to unit length, and concatenate the blocks of each patch."""
        rows, columns = patches.grid
        y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
        centres = np.stack([x.ravel(), y.ravel()], axis=1)
        # The mean of an image's patches does not help to distinguish them. Other images of the batch play no part.
        centred = patches.tokens - patches.tokens.mean(axis=2, keepdims=True) - self._positional_part
        unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True).clip(1e-6)
        joined = np.concatenate(unit / np.sqrt(len(unit)), axis=-1)
        return [ImagePatches(each, centres) for each in joined.astype(np.float32)]

    @cached_property
    def _positional_part(self) -> NDArray[np.float32]:
        """(blocks, 1, n, c) what tokens encode about their position."""
        edge = self.embedder.size
        greys = [np.full((edge, edge, 3), level, dtype=np.uint8) for level in GREY_LEVELS]
        blank = self.embedder.patch_tokens(self.embedder.preprocess(greys)).tokens.mean(axis=1, keepdims=True)
        positional: NDArray[np.float32] = blank - blank.mean(axis=2, keepdims=True)
        return positional


def compact_tokens(tokens: NDArray[np.float32]) -> NDArray[np.int8]:
    """Tokens (n, c) as int8 of at most COMPACT_CHANNELS channels; `expand_tokens` makes unit rows of them.

    A fixed random projection keeps cosines up to an error that averages out over many patches.
    """
    projected = project_tokens(tokens)
    compact: NDArray[np.int8] = np.clip(np.rint(projected / _QUANTUM), -127, 127).astype(np.int8)
    return compact


def project_tokens(tokens: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit rows (n, at most COMPACT_CHANNELS) of tokens (n, c), to be compared with expanded compact ones."""
    projected = tokens @ _projection(tokens.shape[1])
    unit: NDArray[np.float32] = projected / np.linalg.norm(projected, axis=1, keepdims=True).clip(1e-6)
    return unit


def expand_tokens(compact: NDArray[np.int8]) -> NDArray[np.float32]:
    """Compact tokens (n, k) as float32 rows of about unit length."""
    return compact.astype(np.float32) * np.float32(_QUANTUM)


@lru_cache(maxsize=4)
def _projection(channels: int) -> NDArray[np.float32]:
    """(channels, k) orthonormal columns, the same on every machine; the identity if there are few channels."""
    if channels <= COMPACT_CHANNELS:
        return np.eye(channels, dtype=np.float32)
    normal = np.random.default_rng(COMPACT_VERSION).standard_normal((channels, COMPACT_CHANNELS))
    basis, triangle = np.linalg.qr(normal)
    return (basis * np.sign(np.diag(triangle))).astype(np.float32)
