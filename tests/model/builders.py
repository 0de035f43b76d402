"""Small models and files shared by the tests of this folder."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from skypart.model import HeadConfig, SkyPart, VisionTransformer, ViTConfig
from skypart.model.heads.skypart.head import PartHead

TINY_VIT = ViTConfig(patch=14, dim=32, depth=3, heads=2, hidden=64, grid=(4, 4))
TINY_HEAD = HeadConfig(
    prototypes=6, part_dim=32, embedding_dim=48, refine_hidden=40, salience_hidden=8, min_active=3, gate_hidden=16
)


def scramble(module: nn.Module, seed: int) -> None:
    """Draw every floating-point value of a module from `seed`, so that no initial value hides a bug."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(module.state_dict(keep_vars=True).items()):
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                tensor.copy_(0.5 + noise.abs())
            elif name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "gamma", "lambda1")):
                tensor.copy_(1.0 + 0.2 * noise)
            else:
                tensor.copy_(noise / max(1, tensor[0].numel() if tensor.ndim > 1 else 4) ** 0.5)


def scrambled_vit(config: ViTConfig, seed: int = 3) -> VisionTransformer:
    """Our ViT of the given shape with random weights, in evaluation mode."""
    vit = VisionTransformer(config)
    scramble(vit, seed)
    return vit.eval()


def random_images(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Normalised random images (count, 3, height, width)."""
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(seed))


def scene(height: int = 90, width: int = 120, seed: int = 0) -> NDArray[np.uint8]:
    """A smooth coloured image (height, width, 3) that differs with the seed."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def write_scene(path: Path, seed: int = 0) -> Path:
    """A photo on disk."""
    Image.fromarray(scene(seed=seed)).save(path)
    return path


def wave(size: int) -> Tensor:
    """A deterministic model input (1, 3, size, size) without any random generator."""
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    channels = [torch.sin(9 * x + 4 * y * y), torch.cos(7 * y - 3 * x), torch.sin(23 * x * y + 1)]
    return torch.stack(channels)[None]


def part_head(model: SkyPart) -> PartHead:
    """The paper's head of a model."""
    assert isinstance(model.head, PartHead)
    return model.head
