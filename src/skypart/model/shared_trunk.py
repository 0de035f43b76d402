"""Train and evaluate many models that share their frozen blocks: the tokens of those blocks are computed once."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from skypart.bounded import BoundedCache
from skypart.embedding.interface import Inputs
from skypart.model.embedder import TorchEmbedder
from skypart.model.heads import HeadOutput
from skypart.model.skypart import SkyPart
from skypart.model.vit import Trunk, VisionTransformer


class TrunkTokens(BoundedCache[Tensor]):
    """Tokens after the frozen blocks, by frozen weights and input: (tokens, dim) of an image, or (b, tokens, dim)."""


class SharedTrunk:
    """The frozen part of a model in training, taken from `tokens` for a batch that another run has seen.

    Runs with one seed draw the same batches. Whole batches are stored, so the result is equal bit by bit. Heads that
    read a block below the last frozen one, and other backbones, compute it themselves.
    """

    def __init__(self, model: SkyPart, tokens: TrunkTokens) -> None:
        self.model, self.tokens = model, tokens
        backbone = model.backbone_interface
        self.weights = b""
        if isinstance(backbone, VisionTransformer) and 0 < backbone.frozen_blocks <= min(model.taps):
            self.weights = _digest(backbone, backbone.frozen_blocks)

    def __call__(self, images: Tensor) -> Any:
        """`SkyPart.trunk` of images (b, 3, height, width), under the caller's autocast."""
        backbone = self.model.backbone_interface
        if not self.weights or not isinstance(backbone, VisionTransformer):
            return self.model.trunk(images)
        kind = images.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype
        content = hashlib.blake2b(f"{dtype} {tuple(images.shape)}".encode(), digest_size=16, key=self.weights)
        content.update(images.cpu().contiguous().numpy().tobytes())
        key = content.digest()
        x, frozen = self.tokens.get(key), backbone.frozen_blocks
        if x is None:
            trunk: Trunk = self.model.trunk(images)
            self.tokens.put(key, trunk.x)
            return trunk
        grid = (images.shape[-2] // backbone.patch, images.shape[-1] // backbone.patch)
        return Trunk(x, frozen, grid, {frozen: x})


class SharedTrunkEmbedder(TorchEmbedder):
    """A model that takes the tokens of its first `frozen` blocks from `tokens`.

    Heads that read a block below the last frozen one run whole, as they would without sharing.
    """

    def __init__(self, model: SkyPart, device: str, frozen: int, tokens: TrunkTokens) -> None:
        super().__init__(model, device)
        self.tokens = tokens
        backbone = model.backbone_interface
        self.shares = isinstance(backbone, VisionTransformer) and 0 < frozen <= min(model.taps)
        if isinstance(backbone, VisionTransformer) and self.shares:
            model.freeze(backbone.depth - frozen)
            self.weights = _digest(backbone, frozen)

    def forward(self, inputs: Inputs) -> HeadOutput:
        """Run preprocessed inputs (n, 3, size, size) without gradient."""
        if not self.shares:
            return super().forward(inputs)
        keys = [hashlib.blake2b(image.tobytes(), digest_size=16, key=self.weights).digest() for image in inputs]
        found = [self.tokens.get(key) for key in keys]
        missing = [number for number, tokens in enumerate(found) if tokens is None]
        patch = self.model.backbone_interface.patch
        with torch.inference_mode():
            if missing:
                trunk = self.model.trunk(torch.from_numpy(inputs[missing]).to(self.device))
                for number, tokens in zip(missing, trunk.x, strict=True):
                    self.tokens.put(keys[number], tokens.clone())
                    found[number] = tokens
            return self._finish([tokens for tokens in found if tokens is not None], inputs.shape[-1] // patch)

    def _finish(self, tokens: Sequence[Tensor], edge: int) -> HeadOutput:
        """The blocks after the frozen ones, and the head."""
        x = torch.stack(list(tokens))
        backbone = self.model.backbone_interface
        assert isinstance(backbone, VisionTransformer)
        frozen = backbone.frozen_blocks
        return self.model.finish(Trunk(x, frozen, (edge, edge), {frozen: x}))


def _digest(backbone: VisionTransformer, frozen: int) -> bytes:
    """A hash of the weights that the tokens after `frozen` blocks depend on."""
    digest = hashlib.blake2b(f"{frozen} {backbone.config}".encode(), digest_size=32)
    for name, tensor in sorted(backbone.state_dict().items()):
        if not name.startswith(("blocks.", "norm.")) or (
            name.startswith("blocks.") and int(name.split(".")[1]) < frozen
        ):
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.digest()
