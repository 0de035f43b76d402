"""Token merging (ToMe, Bolya et al. 2023) in the backbone at inference: a departure, for comparisons only."""

import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from skypart.errors import SkyPartError
from skypart.model.embedder import TorchEmbedder
from skypart.model.projection import project
from skypart.model.skypart import SkyPart
from skypart.model.vit import Block, Tokens, VisionTransformer

DEFAULT_SHARE = 24
"""One of so many patches is merged per block by default: about ToMe's r = 8 at 196 patches."""


class Merged(NamedTuple):
    """Tokens x (b, n, dim) after merging. size (b, n): patches in each. member (b, patches): the token of each patch.

    The first tokens are CLS and registers, which are never merged; `member` counts from the first token after them.
    """

    x: Tensor
    size: Tensor
    member: Tensor


class TokenMergingBackbone(nn.Module):
    """A vision transformer that merges the `r` most similar pairs of patch tokens in every block, without gradient.

    r: tokens fewer per block; 0 takes 1/24 of the patches. Each patch receives the token that it was merged into, so
    that every head still sees the whole grid.
    """

    no_weight_decay: tuple[str, ...] = ()
    gradient_checkpointing = False

    def __init__(self, vit: VisionTransformer, r: int = 0) -> None:
        super().__init__()
        self.vit, self.r = vit, r

    @property
    def dim(self) -> int:
        """Token width."""
        return self.vit.dim

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.vit.depth

    @property
    def patch(self) -> int:
        """Edge of a patch in pixels."""
        return self.vit.patch

    def describe(self) -> dict[str, Any]:
        """What the digest of a model covers."""
        return {**asdict(self.vit.config), "kind": "token_merging", "r": self.r}

    def freeze(self, trainable_blocks: int, used: int | None = None) -> None:
        """Raise: merged tokens are for inference."""
        raise SkyPartError("token merging is for inference; train the model without it")

    def trunk(self, images: Tensor, taps: Sequence[int] | None = None) -> Tensor:
        """The images themselves: `finish` does everything."""
        return images

    @torch.no_grad()
    def finish(self, trunk: Tensor, taps: Sequence[int] | None = None) -> list[Tokens]:
        """Tokens after each block count in `taps`, on the whole grid."""
        wanted = list(taps) if taps is not None else [self.depth]
        x, grid = self.vit.embed(trunk)
        patches = grid[0] * grid[1]
        prefix = x.shape[1] - patches
        member = torch.arange(patches, device=x.device).expand(len(x), -1)
        state = Merged(x, x.new_ones(x.shape[:2]), member)
        r = self.r or max(1, patches // DEFAULT_SHARE)
        found: dict[int, Tokens] = {}
        for number in range(1, max(wanted) + 1):
            state = self._block(self.vit.blocks[number - 1], state, r, prefix)  # type: ignore[arg-type]
            if number in wanted:
                final = self.vit.norm(state.x)
                index = (prefix + state.member)[..., None].expand(-1, -1, self.dim)
                found[number] = Tokens(final[:, 0], final.gather(1, index), grid)
        return [found[tap] for tap in wanted]

    def _block(self, block: Block, state: Merged, r: int, prefix: int) -> Merged:
        """One block: attention in proportion to the sizes, merging by the similarity of keys, feed-forward."""
        x, size, member = state
        attention = block.attn
        batch, tokens, dim = x.shape
        qkv = project(attention.qkv, block.norm1(x)).reshape(batch, tokens, 3, attention.heads, dim // attention.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=size.log()[:, None, None, :])
        x = block.ls1(x, project(attention.proj, mixed.transpose(1, 2).reshape(batch, tokens, dim)))
        kept, target = match_tokens(key.mean(1)[:, prefix:], r)
        x, size = _merge(x, size, kept, target, prefix)
        member = target.gather(1, member)
        return Merged(block.ls2(x, block.mlp(block.norm2(x))), size, member)


def match_tokens(keys: Tensor, r: int) -> tuple[int, Tensor]:
    """Which of n tokens to merge: (tokens left, target (b, n): the new index of each token).

    keys: (b, n, channels). Tokens at even places choose their most similar one (cosine) at the odd places; the `r`
    best pairs are merged. New order: even tokens that stay, then odd ones.
    """
    batch, count = keys.shape[:2]
    r = min(r, count // 2)
    unit = normalize(keys, dim=-1)
    even, odd = unit[:, ::2], unit[:, 1::2]
    target = torch.empty(batch, count, dtype=torch.long, device=keys.device)
    stay = even.shape[1] - r
    target[:, 1::2] = torch.arange(odd.shape[1], device=keys.device) + stay
    if r == 0:
        target[:, ::2] = torch.arange(even.shape[1], device=keys.device)
        return count, target
    similarity, choice = (even @ odd.transpose(1, 2)).max(dim=2)
    merged = torch.zeros_like(similarity, dtype=torch.bool)
    merged.scatter_(1, similarity.argsort(dim=1, descending=True, stable=True)[:, :r], True)
    target[:, ::2] = torch.where(merged, choice + stay, (~merged).long().cumsum(1) - 1)
    return count - r, target


def _merge(x: Tensor, size: Tensor, kept: int, target: Tensor, prefix: int) -> tuple[Tensor, Tensor]:
    """Mean of merged tokens x (b, n, dim), weighted by size (b, n); the first `prefix` tokens stay."""
    batch, _, dim = x.shape
    sums = x.new_zeros(batch, kept, dim)
    sums.scatter_add_(1, target[..., None].expand(-1, -1, dim), x[:, prefix:] * size[:, prefix:, None])
    sizes = size.new_zeros(batch, kept).scatter_add_(1, target, size[:, prefix:])
    merged = torch.cat([x[:, :prefix], sums / sizes[..., None]], dim=1)
    return merged, torch.cat([size[:, :prefix], sizes], dim=1)


def merge_tokens(embedder: TorchEmbedder, r: int = 0) -> TorchEmbedder:
    """A copy of a model that merges `r` tokens per block; 0: 1/24 of the patches. Other weights stay the same."""
    if not isinstance(embedder.model.backbone, VisionTransformer):
        raise SkyPartError("token merging needs a backbone of our own ViT; leave it out for backbones of transformers")
    model: SkyPart = copy.deepcopy(embedder.model)
    model.backbone = TokenMergingBackbone(embedder.model.backbone, r)
    return TorchEmbedder(model, embedder.device)
