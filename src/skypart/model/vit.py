"""A compact vision transformer for DINOv2, DINO, iBOT and MoCo v3 weights, with the original DINOv2 key names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from skypart.errors import SkyPartError
from skypart.model.positions import PositionMode, interpolate_positions
from skypart.model.projection import project

CPU_CHUNK = 6
"""Images per pass through blocks without gradient on a CPU: few enough for activations to stay in the cache."""


@dataclass(frozen=True)
class ViTConfig:
    """The shape of a vision transformer. A weights file determines everything except `position_mode`.

    patch: edge of a patch in pixels. dim: token width. grid: (rows, columns) of the stored positions.
    registers: extra tokens between CLS and the patches. layer_scale: whether blocks scale their residuals.
    """

    patch: int = 14
    dim: int = 384
    depth: int = 12
    heads: int = 6
    hidden: int = 1536
    grid: tuple[int, int] = (37, 37)
    registers: int = 0
    layer_scale: bool = True
    qkv_bias: bool = True
    eps: float = 1e-6
    position_mode: PositionMode = "original"


LIMITS = {"patch": (1, 256), "dim": (1, 16_384), "depth": (1, 256), "heads": (1, 1_024), "hidden": (1, 131_072)}
"""What the settings of a vision transformer may be; the largest published ones are well below."""


def check_shape(settings: Mapping[str, Any]) -> None:
    """Raise ValueError if settings of a ViTConfig, as a file has them, cannot be those of a vision transformer."""
    for name, (low, high) in (LIMITS | {"registers": (0, 256)}).items():
        value = settings.get(name, low)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name} of backbone is {value!r}")
    grid = settings.get("grid", (1, 1))
    if len(grid) != 2 or not all(type(edge) is int and 1 <= edge <= 1_024 for edge in grid):
        raise ValueError(f"grid of backbone is {grid!r}")
    if settings.get("dim", 384) % settings.get("heads", 6):
        raise ValueError("heads of backbone do not divide dim")
    eps = settings.get("eps", 1e-6)
    if type(eps) not in (int, float) or not 0 < eps < 1:
        raise ValueError(f"eps of backbone is {eps!r}")
    for name in ("layer_scale", "qkv_bias"):
        if type(settings.get(name, True)) is not bool:
            raise ValueError(f"{name} of backbone is {settings[name]!r}")
    if settings.get("position_mode", "original") not in ("original", "huggingface"):
        raise ValueError(f"position_mode of backbone is {settings['position_mode']!r}")


class Tokens(NamedTuple):
    """The input of a head: cls (batch, dim), patches (batch, rows * columns, dim), grid (rows, columns)."""

    cls: Tensor
    patches: Tensor
    grid: tuple[int, int]

    def float(self) -> "Tokens":
        """The same tokens in float32."""
        return Tokens(self.cls.float(), self.patches.float(), self.grid)


class Trunk(NamedTuple):
    """Tokens x (batch, tokens, dim) after the first `blocks` blocks. at_taps: tokens after each tap up to there."""

    x: Tensor
    blocks: int
    grid: tuple[int, int]
    at_taps: dict[int, Tensor]


class PatchEmbedding(nn.Module):
    """Cut (batch, 3, height, width) into patches and project each: (batch, rows * columns, dim)."""

    def __init__(self, patch: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) -> (batch, rows * columns, dim)."""
        return self.proj(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Multi-head self-attention over (batch, tokens, dim)."""

    def __init__(self, dim: int, heads: int, qkv_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Attend over x (batch, tokens, dim) after `norm`; the same shape."""
        batch, tokens, dim = x.shape
        qkv = self._project(x, norm).reshape(batch, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return project(self.proj, mixed.transpose(1, 2).reshape(batch, tokens, dim))

    def _project(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Queries, keys and values of x after `norm`: (batch, tokens, 3 * dim).

        In the first trainable block, x needs no gradient. There the scale and shift of the norm are folded into the
        weights, so that their gradients need no product over all tokens in the backward pass.
        """
        if x.requires_grad or not torch.is_grad_enabled():
            return project(self.qkv, norm(x))
        plain = layer_norm(x, norm.normalized_shape, eps=norm.eps)
        bias = self.qkv.weight @ norm.bias
        bias = bias if self.qkv.bias is None else bias + self.qkv.bias
        return linear(plain, self.qkv.weight * norm.weight, bias)


class FeedForward(nn.Module):
    """Two linear layers with an exact GELU in between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> the same shape."""
        return project(self.fc2, project(self.fc1, x, activated=True))


class Residual(nn.Module):
    """Adds the output of a branch to its input."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """Both (..., dim) -> the same shape."""
        return x + branch


class LayerScale(Residual):
    """Adds the output of a branch, scaled by a learned factor per channel, to its input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """Both (..., dim) -> the same shape."""
        return torch.addcmul(x, branch, self.gamma)


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=config.eps)
        self.attn = Attention(config.dim, config.heads, config.qkv_bias)
        self.ls1 = LayerScale(config.dim) if config.layer_scale else Residual()
        self.norm2 = nn.LayerNorm(config.dim, eps=config.eps)
        self.mlp = FeedForward(config.dim, config.hidden)
        self.ls2 = LayerScale(config.dim) if config.layer_scale else Residual()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, dim) -> the same shape."""
        x = self.ls1(x, self.attn(x, self.norm1))
        return self.ls2(x, self.mlp(self.norm2(x)))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Patch embedding, CLS and register tokens, positions, blocks, and a final norm at every tap.

    `freeze` decides which blocks learn. Frozen blocks always run without gradient.
    no_weight_decay: prefixes of the names of parameters without weight decay, in addition to norms and biases.
    """

    no_weight_decay = ("pos_embed", "cls_token", "register_tokens")

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config.patch, config.dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + config.grid[0] * config.grid[1], config.dim))
        if config.registers:
            self.register_tokens = nn.Parameter(torch.zeros(1, config.registers, config.dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.eps)
        self.frozen_blocks = 0
        self.gradient_checkpointing = False
        for parameter in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(parameter, std=0.02)

    @property
    def dim(self) -> int:
        """Token width."""
        return self.config.dim

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.config.depth

    @property
    def patch(self) -> int:
        """Edge of a patch in pixels."""
        return self.config.patch

    def trim(self, blocks: int) -> None:
        """Drop all blocks after the first `blocks`."""
        self.blocks = nn.ModuleList(list(self.blocks)[:blocks])
        self.config = replace(self.config, depth=blocks)

    def freeze(self, trainable_blocks: int, used: int | None = None) -> None:
        """Train only the last `trainable_blocks` blocks and the final norm; if that is all blocks, also the embeddings.

        Blocks after the first `used` (default: all), which no tap reads, stay frozen.
        """
        if not 0 <= trainable_blocks <= self.depth:
            raise SkyPartError(
                f"trainable_blocks={trainable_blocks} must be from 0 to {self.depth}, the number of blocks; change it"
            )
        self.frozen_blocks = self.depth - trainable_blocks
        everything = self.frozen_blocks == 0
        for name, parameter in self.named_parameters():
            if name.startswith("blocks."):
                trainable = self.frozen_blocks <= int(name.split(".")[1]) < (used or self.depth)
            else:
                trainable = everything or (name.startswith("norm.") and trainable_blocks > 0)
            parameter.requires_grad_(trainable)

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(batch, 3, height, width) -> tokens before the first block (batch, 1 + registers + patches, dim), grid."""
        height, width = images.shape[-2:]
        patch = self.config.patch
        if height % patch or width % patch:
            raise SkyPartError(
                f"an input of {height} x {width} pixels is not divisible by the patch size {patch}; "
                f"use {max(patch, round(height / patch) * patch)} x {max(patch, round(width / patch) * patch)}"
            )
        grid = (height // patch, width // patch)
        positions = interpolate_positions(
            self.pos_embed[:, 1:],
            self.config.grid,
            grid,
            self.config.position_mode,
            antialias=self.config.registers > 0,
        )
        patches = self.patch_embed(images) + positions
        prefix = (self.cls_token + self.pos_embed[:, :1]).expand(images.shape[0], -1, -1)
        if self.config.registers:
            prefix = torch.cat([prefix, self.register_tokens.expand(images.shape[0], -1, -1)], dim=1)
        return torch.cat([prefix, patches], dim=1), grid

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Pass tokens (batch, tokens, dim) through blocks start..stop-1. Frozen blocks run without gradient."""
        first_trainable = max(start, min(stop, self.frozen_blocks)) if torch.is_grad_enabled() else stop
        if start < first_trainable:
            with torch.no_grad():
                x = self._run_without_gradient(x, start, first_trainable)
        for block in self.blocks[first_trainable:stop]:
            x = checkpoint(block, x, use_reentrant=False) if self.gradient_checkpointing else block(x)
        return x

    def _run_without_gradient(self, x: Tensor, start: int, stop: int) -> Tensor:
        """`run` without gradient: on a CPU a few images at a time, except during export."""
        chunked = x.device.type == "cpu" and not torch.compiler.is_compiling()
        chunks = torch.split(x, CPU_CHUNK) if chunked else (x,)
        outputs = []
        for chunk in chunks:
            for block in self.blocks[start:stop]:
                chunk = block(chunk)
            outputs.append(chunk)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def split_tokens(self, x: Tensor, grid: tuple[int, int]) -> Tokens:
        """Apply the final norm to x (batch, tokens, dim) and split it into CLS and patch tokens."""
        x = self.norm(x)
        return Tokens(x[:, 0], x[:, 1 + self.config.registers :], grid)

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Trunk:
        """The frozen part of the forward pass, without gradient: embeddings and frozen blocks, at most to the last tap.

        images: (batch, 3, height, width), normalised; height and width divisible by the patch size. Models with the
        same frozen part, such as a student and its moving average, can share the result.
        """
        wanted = self._check_taps(taps)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_blocks == 0):
            x, grid = self.embed(images)
        at_taps: dict[int, Tensor] = {}
        done = 0
        for stop in sorted({min(tap, self.frozen_blocks) for tap in wanted}):
            x = self.run(x, done, stop)
            at_taps[stop] = x
            done = stop
        return Trunk(x, done, grid, at_taps)

    def finish(self, trunk: Trunk, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps`, from a trunk computed with the same taps."""
        wanted = self._check_taps(taps)
        x, done = trunk.x, trunk.blocks
        found = {tap: self.split_tokens(trunk.at_taps[tap], trunk.grid) for tap in set(wanted) if tap in trunk.at_taps}
        for tap in sorted(set(wanted) - set(found)):
            x = self.run(x, done, tap)
            found[tap] = self.split_tokens(x, trunk.grid)
            done = tap
        return [found[tap] for tap in wanted]

    def forward(self, images: Tensor, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps` (1..depth; default: all blocks), in that order.

        Blocks after the last tap do not run.
        """
        return self.finish(self.trunk(images, taps), taps)

    def _check_taps(self, taps: Sequence[int] | None) -> list[int]:
        """`taps` as a list; the last block if None. Raises for taps outside 1..depth."""
        wanted = list(taps) if taps is not None else [self.depth]
        if not wanted or min(wanted) < 1 or max(wanted) > self.depth:
            raise SkyPartError(
                f"token layers {wanted} are out of range; choose from 1 to {self.depth}, the backbone's depth"
            )
        return wanted
