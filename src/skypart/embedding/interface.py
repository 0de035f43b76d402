"""The interface of a loaded model. `skypart.model.embedder` implements it with PyTorch; other runtimes can, too."""

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import ImageLike
from skypart.images.preprocess import Interpolation, Preprocessing

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Vectors = NDArray[np.float32]
Inputs = NDArray[np.float32]
"""(n, 3, size, size): images after `Embedder.preprocessing`."""


@dataclass(frozen=True, eq=False)
class PatchTokens:
    """Patch tokens of n images from one or more blocks of the backbone.

    tokens: (blocks, n, patches, channels), patches row by row. grid: (rows, columns) of the patches.
    """

    tokens: NDArray[np.float32]
    grid: tuple[int, int]


@dataclass(frozen=True)
class Explanation:
    """The parts that a model found in one image.

    assignment: (rows, columns, prototypes), sums to 1 over prototypes. salience: (prototypes,), 0 for inactive ones.
    active: (prototypes,) bool. centroids: (prototypes, 2) as (x, y) in [0, 1]. gate: (part, cls, graph) weights.
    """

    assignment: NDArray[np.float32]
    salience: NDArray[np.float32]
    active: NDArray[np.bool_]
    centroids: NDArray[np.float32]
    gate: NDArray[np.float32]
    embedding: NDArray[np.float32]


@dataclass(frozen=True)
class ModelFacts:
    """What tables say about a model. None or empty where it is not known.

    giga_macs: multiply-adds of one image in billions, attention included. trained_on: kind of the data set.
    data: its name.
    """

    parameters: int | None = None
    giga_macs: float | None = None
    trained_on: str = ""
    data: str = ""

    def __str__(self) -> str:
        """`23.36 M, 4.31 GMACs`."""
        parts = [] if self.parameters is None else [f"{self.parameters / 1e6:.2f} M"]
        parts += [] if self.giga_macs is None else [f"{self.giga_macs:.2f} GMACs"]
        return ", ".join(parts)


def is_single_image(images: ImageLike | Sequence[ImageLike]) -> "TypeIs[ImageLike]":
    """Whether `images` is one image. An array of four dimensions is a sequence of images."""
    if isinstance(images, np.ndarray):
        return images.ndim < 4
    return isinstance(images, str | bytes | os.PathLike | Image.Image)


class Embedder(Protocol):
    """A loaded model with its preprocessing. The same image gives the same vector in any batch.

    A runtime subclasses this and implements the abstract members; see docs/extending.md.
    """

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hash of weights and settings. Equal digests mean equal embeddings."""

    @property
    def weights_digest(self) -> str:
        """Digest of the model whose embeddings these are: an export's is that of its source, and it fits its indexes.

        Parity is proven at export, so that embeddings of equal `weights_digest` can be compared.
        """
        return self.digest

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of an embedding."""

    @property
    @abstractmethod
    def preprocessing(self) -> Preprocessing:
        """Turns an image into one input of the model, (3, size, size)."""

    @abstractmethod
    def embed_inputs(self, inputs: Inputs) -> Vectors:
        """Embed preprocessed inputs in one pass: (n, dim) unit rows."""

    @abstractmethod
    def embed_with_patches(self, inputs: Inputs) -> tuple[Vectors, PatchTokens]:
        """Embeddings (n, dim) and the patch tokens that `locate` matches, in one pass."""

    @abstractmethod
    def patch_tokens(self, inputs: Inputs) -> PatchTokens:
        """The patch tokens of `embed_with_patches` alone."""

    @property
    def engine(self) -> str:
        """The engine's name, for messages."""
        return type(self).__name__

    def __repr__(self) -> str:
        """One line: digest of the weights, length of an embedding, input size and engine."""
        return f"<model {self.weights_digest[:8]}: {self.dim} numbers from {self.size} px, {self.engine}>"

    @property
    def size(self) -> int:
        """Edge of the model input in pixels."""
        return self.preprocessing.size

    @property
    def interpolation(self) -> Interpolation:
        """The filter for resizing images."""
        return self.preprocessing.interpolation

    @property
    def facts(self) -> ModelFacts:
        """Size and origin of the model, for tables."""
        return ModelFacts()

    @property
    def can_explain(self) -> bool:
        """Whether `explain` works: the head must have parts, and the runtime must output them."""
        return False

    def explain(self, image: ImageLike) -> Explanation:
        """Parts, salience, layout and fusion gate of one image."""
        raise SkyPartError("this model has no parts to show; use one with the head `skypart`, not an export of it")

    def embed(self, images: ImageLike | Sequence[ImageLike], batch_size: int = 16) -> Vectors:
        """Embed paths, bytes of image files, PIL images or uint8 arrays into float32 unit vectors.

        Returns (n, dim) for a sequence, in the order given, and (dim,) for a single image.
        """
        if batch_size < 1:
            raise SkyPartError(f"batch_size={batch_size} must be at least 1")
        if is_single_image(images):
            vector: Vectors = self.embed([images], batch_size)[0]
            return vector
        batches = [images[start : start + batch_size] for start in range(0, len(images), batch_size)]
        vectors = [self.embed_inputs(self.preprocess(batch)) for batch in batches]
        return np.concatenate(vectors) if vectors else np.zeros((0, self.dim), dtype=np.float32)

    def preprocess(self, images: Sequence[ImageLike]) -> Inputs:
        """Model inputs (n, 3, size, size) of at least one image."""
        return np.stack([self.preprocessing(image) for image in images])
