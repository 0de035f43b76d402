"""The PyTorch runtime: a `SkyPart` model behind the `Embedder` interface."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from skypart.embedding.interface import Embedder as EmbedderInterface
from skypart.embedding.interface import Explanation, Inputs, ModelFacts, PatchTokens, Vectors
from skypart.embedding.shipped import verified_default
from skypart.errors import SkyPartError
from skypart.images.contrast import CONTRAST_VERSION
from skypart.images.decode import ImageLike
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import describe_backbone
from skypart.model.cost import measure_cost
from skypart.model.heads import Head, HeadOutput, describe_settings
from skypart.model.skypart import SkyPart
from skypart.model.sources import resolve
from skypart.model.storage import load_model, save_model
from skypart.model.vit import Tokens, VisionTransformer


class TorchEmbedder(EmbedderInterface):
    """A SkyPart model on a device."""

    def __init__(self, model: SkyPart, device: str | torch.device = "cpu") -> None:
        try:
            self.device = torch.device(device)
            self.model = model.eval().to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise SkyPartError(
                f"device {str(device)!r} is not available ({str(error).splitlines()[0]}); use cpu"
            ) from error

    @property
    def preprocessing(self) -> Preprocessing:
        """How photos become model input."""
        return self.model.preprocessing

    @property
    def engine(self) -> str:
        """PyTorch's version and the device."""
        return f"PyTorch {torch.__version__} on {self.device}"

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.model.head.widths["embedding"]

    @cached_property
    def digest(self) -> str:
        """A hash of weights and settings: equal digests give equal embeddings."""
        prepared = self.preprocessing.describe()
        if self.preprocessing.level:
            prepared["level"] = CONTRAST_VERSION
        else:
            del prepared["level"]  # so that models older than this setting keep their digest, indexes and caches
        settings = [describe_settings(self.model.config), prepared, describe_backbone(self.model.backbone)]
        digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def embed_inputs(self, inputs: Inputs) -> Vectors:
        """Embed preprocessed inputs (n, 3, size, size): (n, dim) unit rows."""
        return _checked(self.forward(inputs))

    def outputs(self, images: Sequence[ImageLike], batch_size: int = 16) -> Iterator[HeadOutput]:
        """The full output of the model, batch by batch."""
        for start in range(0, len(images), batch_size):
            yield self.forward(self.preprocess(images[start : start + batch_size]))

    def forward(self, inputs: Inputs) -> HeadOutput:
        """Run preprocessed inputs (n, 3, size, size) without gradient."""
        with torch.inference_mode():
            output: HeadOutput = self.model(torch.from_numpy(inputs).to(self.device))
        return output

    @property
    def matched_blocks(self) -> tuple[int, int]:
        """The blocks whose patch tokens are matched.

        A middle block describes the appearance of a patch; the last block that the head reads, its context.
        """
        last = max(self.model.taps)
        return max(1, round(0.6 * last)), last

    def embed_with_patches(self, inputs: Inputs) -> tuple[Vectors, PatchTokens]:
        """Embeddings (n, dim) of preprocessed inputs and the patch tokens of `matched_blocks`."""
        with torch.inference_mode():
            head, backbone = self.model.head, self.model.backbone_interface
            read, matched = self.model.taps, self.matched_blocks
            images = torch.from_numpy(inputs).to(self.device)
            tokens = backbone.finish(backbone.trunk(images, (*read, *matched)), (*read, *matched))
            output: HeadOutput = head([each.float() for each in tokens[: len(read)]])
        return _checked(output), _stack(tokens[len(read) :])

    def patch_tokens(self, inputs: Inputs) -> PatchTokens:
        """Only the patch tokens of `matched_blocks`, without embeddings."""
        with torch.inference_mode():
            backbone, taps = self.model.backbone_interface, self.matched_blocks
            found = backbone.finish(backbone.trunk(torch.from_numpy(inputs).to(self.device), taps), taps)
        return _stack(found)

    @cached_property
    def facts(self) -> ModelFacts:
        """Parameters, multiply-adds and training data of the model."""
        cost = measure_cost(self.model)
        data = self.model.provenance.get("data")
        kind, name = (str(data.get(key, "")) if isinstance(data, dict) else "" for key in ("kind", "name"))
        return ModelFacts(cost.total_parameters, cost.giga_macs, kind, name)

    @property
    def can_explain(self) -> bool:
        """Whether the head has parts to show."""
        return type(self.model.head).explain is not Head.explain

    def explain(self, image: ImageLike) -> Explanation:
        """Parts, salience, layout and fusion gate of one image."""
        found = self.model.head.explain(next(self.outputs([image], 1)), 0)
        return super().explain(image) if found is None else found


def _checked(output: HeadOutput) -> Vectors:
    """The embeddings of an output. Finite weights can be so large that what comes out is not."""
    if not output.embedding.isfinite().all():
        raise SkyPartError(
            "the model's embeddings are NaN or infinite, so its weights are damaged; download its file again, or use "
            "an earlier checkpoint of the training"
        )
    vectors: Vectors = output.embedding.cpu().numpy()
    return vectors


def _stack(found: Sequence[Tokens]) -> PatchTokens:
    """The patch tokens of some blocks in one array."""
    return PatchTokens(torch.stack([tokens.patches.float() for tokens in found]).cpu().numpy(), found[0].grid)


def load_torch(
    name: str | Path, device: str | torch.device = "cpu", size: int | None = None, readout: str | None = None
) -> TorchEmbedder:
    """Load a model with PyTorch; see `skypart.embedding.runtimes.load`."""
    model = load_model(model_file(str(name)))
    if size is not None:
        model.preprocessing = replace(model.preprocessing, size=check_input_size(model, size))
    if readout is not None:
        model.with_readout(readout)
    return TorchEmbedder(model, device)


Embedder: TypeAlias = TorchEmbedder
"""Deprecated name of `TorchEmbedder`."""
load = load_torch
"""Deprecated: use `skypart.load`, which supports every runtime."""


def check_input_size(model: SkyPart, size: int) -> int:
    """Return `size`, an input size in pixels. Raises if it is not divisible by the model's patch size."""
    patch = model.backbone_interface.patch
    if size < patch or size % patch:
        better = max(1, round(size / patch)) * patch
        raise SkyPartError(f"input size {size} is not divisible by the patch size {patch}; use {better}")
    return size


def save(
    model: EmbedderInterface | SkyPart, path: str | Path, dtype: Literal["float32", "float16"] = "float32"
) -> None:
    """Write a model to a .safetensors file with its recipe and provenance, atomically."""
    if not isinstance(model, TorchEmbedder | SkyPart):
        raise SkyPartError(f"{path}: only PyTorch models can be saved; load the .safetensors file instead")
    save_model(model.model if isinstance(model, TorchEmbedder) else model, path, dtype)


def trim_unused_blocks(embedder: TorchEmbedder) -> TorchEmbedder:
    """Drop the backbone blocks that the head does not read, in place. Embeddings stay the same; the file is smaller."""
    model = embedder.model
    if isinstance(model.backbone, VisionTransformer):
        model.backbone.trim(max(model.taps))
    return embedder


def new_model(backbone: str, size: int = 448, seed: int = 0) -> SkyPart:
    """An untrained head, initialised from `seed`, on the pretrained `backbone`, for inputs of `size` pixels."""
    model = SkyPart.from_backbone(backbone, seed=seed)
    model.preprocessing = Preprocessing(size=check_input_size(model, size))
    model.provenance = {"backbone": backbone, "training": "none: the head is untrained"}
    return model


def model_file(name: str) -> Path:
    """The file of the model called `name`; `default` is the shipped model, after a check of its SHA-256."""
    return verified_default() if name == "default" else resolve(name).file
