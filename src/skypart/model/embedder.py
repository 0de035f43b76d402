"""`skypart.load(...)` and what it gives: photos in, unit vectors out."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from skypart.atomic import atomic_path, check_place
from skypart.errors import SkyPartError
from skypart.images.decode import ImageLike, list_photos, refuse_unreadable
from skypart.images.level import LEVELLING
from skypart.images.preprocess import Interpolation, Preprocessing
from skypart.model.backbone import describe_backbone
from skypart.model.fusion import Readout
from skypart.model.shipped import verified_default
from skypart.model.skypart import SkyPart, SkyPartOutput
from skypart.model.sources import resolve
from skypart.model.storage import load_model, save_model
from skypart.model.vit import Tokens, VisionTransformer
from skypart.progress import track

PatchTokens = NDArray[np.float32]
"""(blocks, n, patches, c): what some blocks of the backbone say of the patches of n pictures."""


@dataclass(frozen=True)
class Explanation:
    """What the model saw in one photo.

    assignment: (rows, columns, prototypes), summing to 1 over the last. salience: (prototypes,), 0 where closed.
    active: (prototypes,) bool. centroids: (prototypes, 2) as (x, y) in [0, 1]. gate: (part, cls, graph) weights.
    """

    assignment: NDArray[np.float32]
    salience: NDArray[np.float32]
    active: NDArray[np.bool_]
    centroids: NDArray[np.float32]
    gate: NDArray[np.float32]
    embedding: NDArray[np.float32]


class Embedder:
    """A loaded model with its preprocessing; the same photo gives the same vector in any batch."""

    def __init__(self, model: SkyPart, device: str | torch.device = "cpu") -> None:
        try:
            self.device = torch.device(device)
            self.model = model.eval().to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise SkyPartError(f"no device {str(device)!r} here ({str(error).splitlines()[0]}); use cpu") from error

    @property
    def preprocessing(self) -> Preprocessing:
        """How photos become model input."""
        return self.model.preprocessing

    @property
    def size(self) -> int:
        """Edge of the model input in pixels."""
        return self.preprocessing.size

    @property
    def interpolation(self) -> Interpolation:
        """The filter that resizes photos."""
        return self.preprocessing.interpolation

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.model.config.embedding_dim

    @cached_property
    def digest(self) -> str:
        """A hash of weights and settings: equal digests give equal embeddings."""
        prepared = asdict(self.preprocessing)
        if self.preprocessing.level:
            prepared["level"] = LEVELLING
        else:
            del prepared["level"]  # models from before this setting keep their digest, indexes and caches theirs
        settings = [asdict(self.model.config), prepared, describe_backbone(self.model.backbone)]
        digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def embed(self, images: Sequence[ImageLike], batch_size: int = 16) -> NDArray[np.float32]:
        """Embed paths, PIL images or uint8 arrays: (n, dim) float32 of unit length, in the order given."""
        if batch_size < 1:
            raise SkyPartError(f"batch_size={batch_size} must be at least 1")
        blocks = [output.embedding.cpu().numpy() for output in self.outputs(images, batch_size)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.dim), dtype=np.float32)

    def outputs(self, images: Sequence[ImageLike], batch_size: int = 16) -> Iterator[SkyPartOutput]:
        """The model's whole output, batch by batch."""
        for start in range(0, len(images), batch_size):
            yield self.forward(np.stack([self.preprocessing(image) for image in images[start : start + batch_size]]))

    def forward(self, inputs: NDArray[np.float32]) -> SkyPartOutput:
        """Run preprocessed inputs (n, 3, size, size) without gradient."""
        with torch.inference_mode():
            output: SkyPartOutput = self.model(torch.from_numpy(inputs).to(self.device))
        return output

    @property
    def matched_blocks(self) -> tuple[int, int]:
        """The blocks whose patch tokens are compared patch by patch: a middle one, which says what a patch looks
        like, and the last that the head reads, which says what it is part of."""
        last = max(self.model.taps)
        return max(1, round(0.6 * last)), last

    def tokens(self, inputs: NDArray[np.float32]) -> tuple[NDArray[np.float32], PatchTokens, tuple[int, int]]:
        """Embeddings (n, dim) of preprocessed inputs, the patch tokens of `matched_blocks` and their grid."""
        with torch.inference_mode():
            model, taps = self.model, (*self.model.taps, *self.matched_blocks)
            backbone = model.tokens_from
            cls, patches, *found = backbone.finish(backbone.trunk(torch.from_numpy(inputs).to(self.device), taps), taps)
            output = model.head(cls.cls.float(), patches.patches.float(), patches.grid)
        return output.embedding.cpu().numpy(), _stacked(found), patches.grid

    def patch_tokens(self, inputs: NDArray[np.float32]) -> tuple[PatchTokens, tuple[int, int]]:
        """The patch tokens of `tokens` and their grid alone."""
        with torch.inference_mode():
            backbone, taps = self.model.tokens_from, self.matched_blocks
            found = backbone.finish(backbone.trunk(torch.from_numpy(inputs).to(self.device), taps), taps)
        return _stacked(found), found[0].grid

    def explain(self, image: ImageLike) -> Explanation:
        """Parts, salience, layout and gate of one photo."""
        output = next(self.outputs([image], 1))
        rows, columns = output.grid
        return Explanation(
            assignment=output.assignment[0].reshape(rows, columns, -1).cpu().numpy(),
            salience=output.salience[0].cpu().numpy(),
            active=output.active[0].cpu().numpy(),
            centroids=output.centroids[0].cpu().numpy(),
            gate=output.gate[0].cpu().numpy(),
            embedding=output.embedding[0].cpu().numpy(),
        )


def _stacked(found: Sequence[Tokens]) -> PatchTokens:
    """The patches of some blocks in one array."""
    return torch.stack([tokens.patches.float() for tokens in found]).cpu().numpy()


def load(
    path_or_name: str | Path,
    device: str | torch.device = "cpu",
    size: int | None = None,
    readout: Readout | None = None,
) -> Embedder:
    """Load a model file, a folder or OWNER/NAME[@REVISION] of the hub.

    size: another input size than the model's own, divisible by its patch.
    readout: an ablation of the same weights (`cls`, `part`, `no_graph`).
    """
    model = load_model(model_file(str(path_or_name)))
    if size is not None:
        model.preprocessing = replace(model.preprocessing, size=checked_size(model, size))
    if readout is not None:
        model.with_readout(readout)
    return Embedder(model, device)


def checked_size(model: SkyPart, size: int) -> int:
    """`size` itself, if it is an input size in pixels that the model's patch divides; an error otherwise."""
    patch = model.tokens_from.patch
    if size < patch or size % patch:
        better = max(1, round(size / patch)) * patch
        raise SkyPartError(f"input size {size} is not divisible by the patch of {patch}; use {better}")
    return size


def save(model: Embedder | SkyPart, path: str | Path, dtype: Literal["float32", "float16"] = "float32") -> None:
    """Write a model to a .safetensors file with its recipe and provenance, whole or not at all."""
    save_model(model.model if isinstance(model, Embedder) else model, path, dtype)


def trimmed(embedder: Embedder) -> Embedder:
    """The same embeddings from a smaller file: blocks that neither parts nor CLS branch read are dropped."""
    model = embedder.model
    if isinstance(model.backbone, VisionTransformer):
        model.backbone.trim(max(model.taps))
    return embedder


def new_model(backbone: str, size: int = 448, seed: int = 0) -> SkyPart:
    """An untrained head, drawn from `seed`, on the pretrained `backbone`, for inputs of `size` pixels."""
    model = SkyPart.from_backbone(backbone, seed=seed)
    model.preprocessing = Preprocessing(size=checked_size(model, size))
    model.provenance = {"backbone": backbone, "training": "none: the head is untrained"}
    return model


def embed_files(embedder: Embedder, sources: Sequence[Path], output: Path, batch_size: int = 16) -> int:
    """Embed photos and folders of photos into an .npz of `paths`, `embeddings` and the model's digest."""
    photos = list_photos(sources)
    if batch_size < 1:
        raise SkyPartError(f"batch_size={batch_size} must be at least 1")
    if output.suffix != ".npz":
        raise SkyPartError(f"{output}: embeddings are written as .npz; rename the output")
    check_place(output)
    refuse_unreadable(photos, "nothing was embedded")
    vectors = embed_long(embedder, photos, "embedding", batch_size)
    with atomic_path(output) as temporary:
        np.savez(temporary, paths=[str(p) for p in photos], embeddings=vectors, model=embedder.digest)
    return len(photos)


def embed_long(embedder: Embedder, photos: Sequence[Path], title: str, batch_size: int = 16) -> NDArray[np.float32]:
    """As `Embedder.embed`, of at least one photo, with a progress bar."""
    with closing(track(range(0, len(photos), batch_size), title)) as starts:
        return np.concatenate([embedder.embed(photos[start : start + batch_size], batch_size) for start in starts])


def model_file(name: str) -> Path:
    """The file of the model called `name`; `default` is the one shipped with the package, unaltered."""
    return verified_default() if name == "default" else resolve(name).file
