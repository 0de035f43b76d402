"""A runtime in one file: a linear projection of the downscaled pixels, from a .npz file.

np.savez("model.npz", projection=..., size=112)    projection: (dim, 3 * 16 * 16) float32
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder, PatchTokens
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing

GRID = 16
"""Cells along each edge of the downscaled image; also the patches of `patch_tokens`."""
Floats = NDArray[np.float32]


class ProjectionEmbedder(Embedder):
    """Embeds an image as a linear projection of GRID x GRID mean colours."""

    def __init__(self, projection: Floats, size: int) -> None:
        self.projection = projection
        self._preprocessing = Preprocessing(size=size)

    @property
    def digest(self) -> str:
        """Equal digests mean equal embeddings, so everything that changes them is hashed."""
        return hashlib.sha256(self.projection.tobytes() + str(self._preprocessing).encode()).hexdigest()[:32]

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return len(self.projection)

    @property
    def preprocessing(self) -> Preprocessing:
        """Resize to (size, size) and normalise."""
        return self._preprocessing

    def embed_inputs(self, inputs: Floats) -> Floats:
        """(n, 3, size, size) -> (n, dim) unit rows."""
        means = self._patches(inputs).mean(axis=-1)  # (n, GRID * GRID, 3)
        vectors = np.stack([self.projection @ each.T.ravel() for each in means])
        unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-6)
        return unit

    def embed_with_patches(self, inputs: Floats) -> tuple[Floats, PatchTokens]:
        """Embeddings and patch tokens; a network would compute both in one pass."""
        return self.embed_inputs(inputs), self.patch_tokens(inputs)

    def patch_tokens(self, inputs: Floats) -> PatchTokens:
        """The pixels of each patch are its token: (1, n, GRID * GRID, channels)."""
        patches = self._patches(inputs)
        return PatchTokens(patches.reshape(1, *patches.shape[:2], -1), (GRID, GRID))

    def _patches(self, inputs: Floats) -> Floats:
        """(n, GRID * GRID, 3, pixels), patches row by row."""
        edge = self.size // GRID
        cells = inputs.reshape(len(inputs), 3, GRID, edge, GRID, edge).transpose(0, 2, 4, 1, 3, 5)
        return np.ascontiguousarray(cells).reshape(len(inputs), GRID * GRID, 3, edge * edge)


def load_projection(path: str, device: str, size: int | None, readout: str | None) -> ProjectionEmbedder:
    """Open a .npz file; the arguments are those of `skypart.load`."""
    if device != "cpu" or readout is not None:
        raise SkyPartError(f"{path}: this runtime has neither devices nor readouts; leave these options out")
    if not Path(path).is_file():
        raise SkyPartError(f"{path}: no such file; check the path")
    with np.load(path) as file:
        projection, own_size = file["projection"].astype(np.float32), int(file["size"])
    size = own_size if size is None else size
    if size < GRID or size % GRID:
        raise SkyPartError(f"input size {size} is not divisible by {GRID}; use {max(1, round(size / GRID)) * GRID}")
    return ProjectionEmbedder(projection, size)
