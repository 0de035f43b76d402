"""Our ViT against `transformers`, with weights from files in every format."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.model import VisionTransformer, ViTConfig, load_backbone
from skypart.model import vit as module
from skypart.model.published_weights import infer_config
from tests.model.builders import TINY_VIT, random_images, scramble, scrambled_vit

COMMON: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
ORACLES = ("dinov2", "dinov2_with_registers", "vit")


def make_oracle(kind: str) -> Any:
    """A small model of `transformers` with random weights; native grid 4 x 4."""
    if kind == "dinov2":
        config = transformers.Dinov2Config(**COMMON, mlp_ratio=2, image_size=56, patch_size=14)
        model = transformers.Dinov2Model(config)
    elif kind == "dinov2_with_registers":
        config = transformers.Dinov2WithRegistersConfig(
            **COMMON, mlp_ratio=2, image_size=56, patch_size=14, num_register_tokens=3
        )
        model = transformers.Dinov2WithRegistersModel(config)
    else:
        # DINO v1's config.json has the epsilon of ViT's defaults, which no tensor shows; enlarged so that it counts.
        config = transformers.ViTConfig(
            **COMMON, intermediate_size=256, image_size=64, patch_size=16, layer_norm_eps=1e-2
        )
        model = transformers.ViTModel(config)
    scramble(model, 5)
    return model.eval()


def oracle_tokens(model: Any, images: Tensor) -> list[Tensor]:
    """Normed tokens (batch, tokens, dim) after each block."""
    extra = {"interpolate_pos_encoding": True} if model.config.model_type == "vit" else {}
    with torch.no_grad():
        output = model(pixel_values=images, output_hidden_states=True, **extra)
        return [model.layernorm(state) for state in output.hidden_states[1:]]


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("form", ["folder", "safetensors", "bin"])
def test_every_tap_equals_transformers(kind: str, form: str, tmp_path: Path) -> None:
    oracle = make_oracle(kind)
    oracle.save_pretrained(tmp_path / "folder")
    name = tmp_path / "folder"
    if form != "folder":
        (tmp_path / "folder" / "model.safetensors").unlink()
        name = tmp_path / "folder" / ("model.safetensors" if form == "safetensors" else "pytorch_model.bin")
        tensors = {key: value.contiguous() for key, value in oracle.state_dict().items()}
        if form == "safetensors":
            save_file(tensors, name)
        else:
            torch.save(tensors, name)
    # config.json is beside the weights: loading the folder keeps the epsilon.
    vit = load_backbone(str(tmp_path / "folder"))
    assert isinstance(vit, VisionTransformer)
    vit.eval()
    assert vit.config.position_mode == "huggingface"
    assert vit.config.eps == oracle.config.layer_norm_eps
    assert vit.config.heads == 2
    patch, registers = vit.config.patch, vit.config.registers
    assert registers == (3 if kind == "dinov2_with_registers" else 0)
    for rows, columns in [(4, 4), (2, 8), (7, 3), (9, 9), (1, 1)]:
        images = random_images(2, rows * patch, columns * patch, seed=rows)
        expected = oracle_tokens(oracle, images)
        with torch.no_grad():
            found = vit(images, taps=(3, 1, 2))
        for tap, tokens in zip((3, 1, 2), found, strict=True):
            assert tokens.grid == (rows, columns)
            torch.testing.assert_close(tokens.cls, expected[tap - 1][:, 0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(tokens.patches, expected[tap - 1][:, 1 + registers :], atol=1e-5, rtol=1e-5)
    if form != "folder" and kind != "vit":
        alone = load_backbone(str(name))
        with torch.no_grad():
            torch.testing.assert_close(alone.eval()(images)[0].patches, found[0].patches, atol=1e-6, rtol=0)


def test_a_tap_computes_nothing_beyond_itself() -> None:
    vit = scrambled_vit(TINY_VIT)
    calls: list[int] = []
    for index, block in enumerate(vit.blocks):
        block.register_forward_hook(lambda *_, index=index: calls.append(index))
    vit(random_images(1, 56, 56), taps=(2, 1))
    assert calls == [0, 1]


@pytest.mark.parametrize("trainable", [0, 1, 2, 3])
@pytest.mark.parametrize("taps", [(3,), (1, 3), (3, 2, 1), (1,)])
def test_trunk_and_finish_equal_forward(trainable: int, taps: tuple[int, ...]) -> None:
    vit, images = scrambled_vit(TINY_VIT), random_images(2, 56, 70)
    with torch.no_grad():
        whole = vit(images, taps)
    vit.freeze(trainable)
    trunk = vit.trunk(images, taps)
    assert trunk.blocks == min(3 - trainable, max(taps))
    assert trunk.x.requires_grad == (trainable == 3)
    for expected, found in zip(whole, vit.finish(trunk, taps), strict=True):
        torch.testing.assert_close(found.cls, expected.cls, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.patches, expected.patches, atol=1e-6, rtol=0)


@pytest.mark.parametrize("trainable", [0, 2])
def test_chunks_of_images_equal_one_batch(trainable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vit, images = scrambled_vit(TINY_VIT), random_images(5, 56, 70)
    vit.freeze(trainable)
    found = {}
    for size in (1, 2, 5, 9):
        monkeypatch.setattr(module, "CPU_CHUNK", size)
        seen: list[int] = []
        hook = vit.blocks[0].register_forward_hook(lambda _, inputs, __, seen=seen: seen.append(len(inputs[0])))
        (found[size],) = vit(images)
        hook.remove()
        assert seen == {1: [1] * 5, 2: [2, 2, 1], 5: [5], 9: [5]}[size]
    for size in (1, 2, 9):
        torch.testing.assert_close(found[size].patches, found[5].patches, atol=1e-6, rtol=0)
        assert found[size].patches.requires_grad == (trainable > 0)


def test_an_exported_graph_has_no_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    vit = scrambled_vit(TINY_VIT)
    seen: list[int] = []
    vit.blocks[0].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        vit(random_images(2 * module.CPU_CHUNK, 28, 28))
    assert seen == [2 * module.CPU_CHUNK]


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_folding_the_norm_into_the_first_trainable_block_keeps_gradients(qkv_bias: bool) -> None:
    block = scrambled_vit(replace(TINY_VIT, qkv_bias=qkv_bias)).double().blocks[0]
    generator = torch.Generator().manual_seed(1)
    x, towards = torch.randn(2, 2, 9, TINY_VIT.dim, generator=generator, dtype=torch.float64)
    results = []
    for learns in (True, False):
        block.zero_grad(set_to_none=True)
        output = block(x.clone().requires_grad_(learns))
        torch.autograd.backward((output * towards).sum())
        results.append([output.detach(), *(parameter.grad for parameter in block.parameters())])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("taps", [(), (0,), (4,), (1, -1)])
def test_taps_outside_the_depth_are_refused(taps: tuple[int, ...]) -> None:
    with pytest.raises(SkyPartError, match="from 1 to 3"):
        scrambled_vit(TINY_VIT)(random_images(1, 56, 56), taps=taps)


def test_an_indivisible_size_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SkyPartError, match=r"60 x 100 pixels.*patch size 14; use 56 x 98"):
        scrambled_vit(TINY_VIT)(random_images(1, 60, 100))


SIZES = {
    "S/14": ViTConfig(depth=1),
    "B/14": ViTConfig(dim=768, heads=12, hidden=3072, depth=1),
    "B/14 registers": ViTConfig(dim=768, heads=12, hidden=3072, depth=2, registers=4),
    "S/16": ViTConfig(patch=16, grid=(14, 14), layer_scale=False, depth=1),
    "no qkv bias": ViTConfig(depth=1, qkv_bias=False),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_shape_is_inferred_from_full_size_tensors(name: str) -> None:
    with torch.device("meta"):
        shapes = VisionTransformer(SIZES[name]).state_dict()
    state = {key: torch.zeros(value.shape) for key, value in shapes.items()}
    assert infer_config(state, name) == SIZES[name]
