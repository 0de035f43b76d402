"""Token merging against a plain loop over images, tokens and heads."""

import numpy as np
import pytest
import torch
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart, VisionTransformer, ViTConfig
from skypart.model.embedder import TorchEmbedder
from skypart.model.token_merging import TokenMergingBackbone, match_tokens, merge_tokens
from tests.model.builders import TINY_HEAD, scrambled_vit

SHAPE = ViTConfig(patch=14, dim=32, depth=3, heads=2, hidden=64, grid=(4, 4), registers=2)


def plain_loop(vit: VisionTransformer, image: Tensor, r: int) -> list[tuple[Tensor, Tensor]]:
    """CLS (dim,) and patches (16, dim) after each block, for one image (3, h, w), with lists of patches per token."""
    x, _ = vit.embed(image[None])
    tokens = list(x[0])
    groups: list[list[int]] = [[], [], [], *([number] for number in range(len(tokens) - 3))]
    after = []
    for block in vit.blocks:
        stacked = torch.stack(tokens)
        qkv = block.attn.qkv(block.norm1(stacked)).reshape(len(tokens), 3, 2, 16)  # type: ignore[operator, union-attr]
        mixed = torch.zeros(len(tokens), 32)
        for head in range(2):
            for i in range(len(tokens)):
                scores = [float(qkv[i, 0, head] @ qkv[j, 1, head]) / 4 for j in range(len(tokens))]
                weights = np.exp(scores) * [max(len(group), 1) for group in groups]
                weights /= weights.sum()
                values = torch.stack([float(w) * qkv[j, 2, head] for j, w in enumerate(weights)])
                mixed[i, head * 16 : head * 16 + 16] = values.sum(0)
        tokens = list(block.ls1(stacked, block.attn.proj(mixed)))  # type: ignore[operator, union-attr]
        keys = qkv[3:, 1].mean(1)
        pairs = []
        for i in range(0, len(keys), 2):
            similar = [float(torch.cosine_similarity(keys[i], keys[j], dim=0)) for j in range(1, len(keys), 2)]
            best = int(np.argmax(similar))
            pairs.append((similar[best], i, 2 * best + 1))
        chosen = sorted(pairs, key=lambda pair: -pair[0])[: min(r, len(keys) // 2)]
        for target in range(1, len(keys), 2):
            sources = [i for _, i, j in chosen if j == target]
            members = [3 + index for index in (target, *sources)]
            total = sum(len(groups[m]) for m in members)
            tokens[3 + target] = sum(len(groups[m]) / total * tokens[m] for m in members)
            groups[3 + target] = [p for m in members for p in groups[m]]
        gone = {i for _, i, _ in chosen}
        left = [i for i in range(0, len(keys), 2) if i not in gone] + list(range(1, len(keys), 2))
        tokens = tokens[:3] + [tokens[3 + i] for i in left]
        groups = groups[:3] + [groups[3 + i] for i in left]
        stacked = torch.stack(tokens)
        tokens = list(block.ls2(stacked, block.mlp(block.norm2(stacked))))  # type: ignore[operator]
        final = vit.norm(torch.stack(tokens))
        where = [next(n for n, group in enumerate(groups) if patch in group) for patch in range(16)]
        after.append((final[0], final[where]))
    return after


@pytest.mark.parametrize("r", [1, 3])
def test_merging_follows_the_formula(r: int) -> None:
    vit = scrambled_vit(SHAPE)
    images = torch.randn(3, 3, 56, 56, generator=torch.Generator().manual_seed(2))
    merging = TokenMergingBackbone(vit, r)
    found = merging.finish(merging.trunk(images), (1, 2, 3))
    with torch.no_grad():
        for number, image in enumerate(images):
            for tokens, (cls, patches) in zip(found, plain_loop(vit, image, r), strict=True):
                torch.testing.assert_close(tokens.cls[number], cls, atol=2e-5, rtol=1e-4)
                torch.testing.assert_close(tokens.patches[number], patches, atol=2e-5, rtol=1e-4)
    assert len(torch.unique(found[-1].patches[0], dim=0)) == 16 - 3 * r, "r tokens fewer in each of three blocks"


def test_r_is_limited_to_half_of_the_tokens_and_zero_pairs_change_nothing() -> None:
    keys = torch.randn(2, 7, 5)
    left, target = match_tokens(keys, 99)
    assert left == 4 and sorted(set(target[0].tolist())) == [0, 1, 2, 3]
    left, target = match_tokens(keys, 0)
    assert left == 7 and sorted(target[0].tolist()) == list(range(7))


def test_a_merged_model_is_another_model_with_the_same_weights() -> None:
    model = SkyPart(scrambled_vit(SHAPE), TINY_HEAD).eval()
    model.preprocessing = Preprocessing(size=56)
    plain = TorchEmbedder(model)
    images = [np.random.default_rng(n).integers(0, 256, (60, 60, 3)).astype(np.uint8) for n in range(3)]
    before = plain.embed(images)
    merged = merge_tokens(plain, 2)
    assert merged.digest != plain.digest and merge_tokens(plain, 3).digest != merged.digest
    found = merged.embed(images)
    assert not np.allclose(found, before) and np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(plain.embed(images), before)
    with pytest.raises(SkyPartError, match="for inference"):
        merged.model.freeze(1)
