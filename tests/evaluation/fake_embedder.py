"""A model without a network: the mean colours of a 4 x 4 grid, centred and normalised."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder, PatchTokens
from skypart.images.decode import ImageLike
from skypart.images.preprocess import Preprocessing


class FakeEmbedder(Embedder):
    """Counts what it is asked to embed; raises KeyboardInterrupt when `stop_after` images are reached."""

    digest = "fake"
    dim = 48
    preprocessing = Preprocessing(24, "bicubic")

    def __init__(self, stop_after: int | None = None) -> None:
        self.embedded = 0
        self.stop_after = stop_after

    def embed(self, images: ImageLike | Sequence[ImageLike], batch_size: int = 16) -> NDArray[np.float32]:
        assert isinstance(images, Sequence)
        if self.stop_after is not None and self.embedded + len(images) > self.stop_after:
            raise KeyboardInterrupt
        self.embedded += len(images)
        cells: NDArray[np.float32] = np.stack(
            [np.asarray(i).reshape(4, 6, 4, 6, 3).mean(axis=(1, 3)).ravel() for i in images]
        ).astype(np.float32)
        cells -= cells.mean(axis=1, keepdims=True)
        cells /= np.linalg.norm(cells, axis=1, keepdims=True)
        return cells

    def embed_inputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        raise NotImplementedError

    def embed_with_patches(self, inputs: NDArray[np.float32]) -> tuple[NDArray[np.float32], PatchTokens]:
        raise NotImplementedError

    def patch_tokens(self, inputs: NDArray[np.float32]) -> PatchTokens:
        raise NotImplementedError
