"""A compact vision transformer that holds DINOv2, DINO, iBOT and MoCo v3 weights under their original key names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from skypart.errors import SkyPartError
from skypart.model.positions import PositionMode, interpolate_positions
from skypart.model.projection import project

CPU_CHUNK = 6
"""Images that go together through blocks without gradient on a CPU: what a layer writes the next finds in the cache."""


@dataclass(frozen=True)
class ViTConfig:
    """The shape of a vision transformer; a checkpoint determines all of it but `position_mode`.

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


class Tokens(NamedTuple):
    """What a backbone gives the head: cls (batch, dim), patches (batch, rows * columns, dim), grid (rows, columns)."""

    cls: Tensor
    patches: Tensor
    grid: tuple[int, int]

    def float(self) -> "Tokens":
        """The same tokens in single precision."""
        return Tokens(self.cls.float(), self.patches.float(), self.grid)


class Trunk(NamedTuple):
    """Tokens x (batch, tokens, dim) after the first `blocks` blocks; `inside`: those at taps on the way."""

    x: Tensor
    blocks: int
    grid: tuple[int, int]
    inside: dict[int, Tensor]


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

        On tokens that need no gradient, those of the first block that learns, scale and shift of the norm go into
        the weights: backward then reaches them there and skips the product over all tokens.
        """
        if x.requires_grad or not torch.is_grad_enabled():
            return project(self.qkv, norm(x))
        plain = layer_norm(x, norm.normalized_shape, eps=norm.eps)
        bias = self.qkv.weight @ norm.bias
        bias = bias if self.qkv.bias is None else bias + self.qkv.bias
        return linear(plain, self.qkv.weight * norm.weight, bias)


class FeedForward(nn.Module):
    """Two linear layers with an exact GELU between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> the same shape."""
        return project(self.fc2, project(self.fc1, x, activated=True))


class Residual(nn.Module):
    """Adds a branch to the tokens it came from."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """Both (..., dim) -> the same shape."""
        return x + branch


class LayerScale(Residual):
    """Adds a branch with a learned factor for each of its channels, in one pass."""

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

    `freeze` decides which blocks learn; the frozen ones run without gradient, whatever the caller does.
    no_weight_decay: beginnings of the names of parameters that get no weight decay, beside norms and biases.
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
        """Drop the blocks after the first `blocks`, which nobody reads."""
        self.blocks = nn.ModuleList(list(self.blocks)[:blocks])
        self.config = replace(self.config, depth=blocks)

    def freeze(self, trainable_blocks: int, used: int | None = None) -> None:
        """Let the last `trainable_blocks` blocks and the final norm learn; all blocks: the embeddings too.

        Blocks after the first `used` (default: all), which no tap reads, stay fixed.
        """
        if not 0 <= trainable_blocks <= self.depth:
            raise SkyPartError(
                f"trainable_blocks={trainable_blocks} must lie between 0 and {self.depth}, the backbone's depth"
            )
        self.frozen_blocks = self.depth - trainable_blocks
        everything = self.frozen_blocks == 0
        for name, parameter in self.named_parameters():
            if name.startswith("blocks."):
                learns = self.frozen_blocks <= int(name.split(".")[1]) < (used or self.depth)
            else:
                learns = everything or (name.startswith("norm.") and trainable_blocks > 0)
            parameter.requires_grad_(learns)

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(batch, 3, height, width) -> tokens before the first block (batch, 1 + registers + patches, dim), grid."""
        height, width = images.shape[-2:]
        patch = self.config.patch
        if height % patch or width % patch:
            raise SkyPartError(
                f"an input of {height} x {width} pixels is not divisible by the patch of {patch}; "
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
        prefix = (self.cls_token + self.pos_embed[:, :1]).expand(len(images), -1, -1)
        if self.config.registers:
            prefix = torch.cat([prefix, self.register_tokens.expand(len(images), -1, -1)], dim=1)
        return torch.cat([prefix, patches], dim=1), grid

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Tokens (batch, tokens, dim) through blocks start..stop-1; the frozen ones without gradient."""
        learns = max(start, min(stop, self.frozen_blocks)) if torch.is_grad_enabled() else stop
        if start < learns:
            with torch.no_grad():
                x = self._run_without_gradient(x, start, learns)
        for block in self.blocks[learns:stop]:
            x = checkpoint(block, x, use_reentrant=False) if self.gradient_checkpointing else block(x)
        return x

    def _run_without_gradient(self, x: Tensor, start: int, stop: int) -> Tensor:
        """`run` where nothing is kept for a gradient: on a CPU a few images at a time, in one piece when exported."""
        rounds = x.device.type == "cpu" and not torch.compiler.is_compiling()
        parts = torch.split(x, CPU_CHUNK) if rounds else (x,)
        done = []
        for part in parts:
            for block in self.blocks[start:stop]:
                part = block(part)
            done.append(part)
        return done[0] if len(done) == 1 else torch.cat(done)

    def split_tokens(self, x: Tensor, grid: tuple[int, int]) -> Tokens:
        """Apply the final norm to (batch, tokens, dim) and name its parts."""
        x = self.norm(x)
        return Tokens(x[:, 0], x[:, 1 + self.config.registers :], grid)

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Trunk:
        """The frozen part, without gradient: embeddings and frozen blocks, up to the last tap at most.

        images: (batch, 3, height, width), normalised; height and width divisible by the patch. Models that share
        the frozen part (a student and its moving average) can share its result.
        """
        wanted = self._check_taps(taps)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_blocks == 0):
            x, grid = self.embed(images)
        inside: dict[int, Tensor] = {}
        done = 0
        for stop in sorted({min(tap, self.frozen_blocks) for tap in wanted}):
            x = self.run(x, done, stop)
            inside[stop] = x
            done = stop
        return Trunk(x, done, grid, inside)

    def finish(self, trunk: Trunk, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps`, from a trunk made for the same taps."""
        wanted = self._check_taps(taps)
        x, done = trunk.x, trunk.blocks
        found = {tap: self.split_tokens(trunk.inside[tap], trunk.grid) for tap in set(wanted) if tap in trunk.inside}
        for tap in sorted(set(wanted) - set(found)):
            x = self.run(x, done, tap)
            found[tap] = self.split_tokens(x, trunk.grid)
            done = tap
        return [found[tap] for tap in wanted]

    def forward(self, images: Tensor, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps` (1..depth; default: all blocks), in that order.

        Nothing beyond the last tap is computed.
        """
        return self.finish(self.trunk(images, taps), taps)

    def _check_taps(self, taps: Sequence[int] | None) -> list[int]:
        """The taps asked for, checked."""
        wanted = list(taps) if taps is not None else [self.depth]
        if not wanted or min(wanted) < 1 or max(wanted) > self.depth:
            raise SkyPartError(f"token layers {wanted} must lie between 1 and {self.depth}, the backbone's depth")
        return wanted
