"""A backbone gives the same tokens from every published key naming."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.model import VisionTransformer, ViTConfig, load_backbone
from skypart.model.positions import sincos_positions
from tests.model.builders import random_images, scrambled_vit

State = dict[str, Tensor]
PLAIN = ViTConfig(patch=14, dim=128, depth=2, heads=2, hidden=256, grid=(4, 4), layer_scale=False)
SCALED = replace(PLAIN, layer_scale=True)


def tokens(vit: torch.nn.Module, rows: int = 4, columns: int = 4) -> Tensor:
    """CLS and patches together, (2, 1 + patches, dim)."""
    with torch.no_grad():
        found = vit.eval()(random_images(2, rows * 14, columns * 14))[0]
    return torch.cat([found.cls[:, None], found.patches], dim=1)


def loaded(file: Path) -> VisionTransformer:
    vit = load_backbone(str(file))
    assert isinstance(vit, VisionTransformer)
    return vit


def state_of(vit: VisionTransformer) -> State:
    return {key: value.detach().clone() for key, value in vit.state_dict().items()}


def huggingface(state: State) -> State:
    """The names of `transformers`, with the mask token and pooler that its files contain."""
    out: State = {"embeddings.mask_token": torch.zeros(1, 128), "pooler.dense.weight": torch.zeros(128, 128)}
    whole = {
        "cls_token": "embeddings.cls_token",
        "pos_embed": "embeddings.position_embeddings",
        "register_tokens": "embeddings.register_tokens",
        "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
        "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
        "norm.weight": "layernorm.weight",
        "norm.bias": "layernorm.bias",
    }
    for key, value in state.items():
        if key in whole:
            out[whole[key]] = value
            continue
        block = key.replace("blocks.", "encoder.layer.")
        if ".attn.qkv." in block:
            for name, third in zip(("query", "key", "value"), value.chunk(3), strict=True):
                out[block.replace("attn.qkv", f"attention.attention.{name}")] = third.contiguous()
            continue
        for ours, theirs in (
            ("attn.proj", "attention.output.dense"),
            ("ls1.gamma", "layer_scale1.lambda1"),
            ("ls2.gamma", "layer_scale2.lambda1"),
        ):
            block = block.replace(ours, theirs)
        out[block] = value
    return out


def chunked(state: State) -> State:
    """The original repository's chunked blocks: blocks.<chunk>.<index>."""
    return {key.replace("blocks.", "blocks.0.") if "blocks." in key else key: value for key, value in state.items()}


NAMINGS: dict[str, Callable[[State], object]] = {
    "original": lambda s: s | {"mask_token": torch.zeros(1, 128)},
    "chunked": chunked,
    "huggingface": huggingface,
    "huggingface with a model prefix": lambda s: {f"dinov2.{k}": v for k, v in huggingface(s).items()},
    "timm with a head": lambda s: s | {"head.weight": torch.zeros(10, 128), "head.bias": torch.zeros(10)},
    "data parallel": lambda s: {f"module.{k}": v for k, v in s.items()},
    "compiled": lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},
    "lightning": lambda s: {"state_dict": {f"model.backbone.{k}": v for k, v in s.items()}, "epoch": 3},
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_every_key_naming_gives_the_same_tokens(naming: str, tmp_path: Path) -> None:
    vit = scrambled_vit(SCALED)
    torch.save(NAMINGS[naming](state_of(vit)), tmp_path / "weights.pth")
    same = loaded(tmp_path / "weights.pth")
    assert replace(same.config, position_mode="original") == SCALED
    assert (same.config.position_mode == "huggingface") == naming.startswith("huggingface")
    torch.testing.assert_close(tokens(same), tokens(vit), atol=1e-6, rtol=0)


def test_half_precision_files_are_read_in_float32(tmp_path: Path) -> None:
    vit = scrambled_vit(SCALED)
    save_file({key: value.half() for key, value in state_of(vit).items()}, tmp_path / "half.safetensors")
    same = loaded(tmp_path / "half.safetensors")
    assert all(parameter.dtype == torch.float32 for parameter in same.parameters())
    torch.testing.assert_close(tokens(same), tokens(vit), atol=2e-2, rtol=0)


def test_timm_register_models_have_no_cls_position(tmp_path: Path) -> None:
    config = replace(SCALED, registers=4)
    vit = scrambled_vit(config)
    state = state_of(vit)
    state["reg_token"] = state.pop("register_tokens")
    # timm adds the CLS position to the token itself and drops it from the table.
    state["cls_token"] = state["cls_token"] + state["pos_embed"][:, :1]
    state["pos_embed"] = state["pos_embed"][:, 1:].contiguous()
    save_file(state, tmp_path / "timm.safetensors")
    same = loaded(tmp_path / "timm.safetensors")
    assert same.config == config
    for grid in ((4, 4), (3, 6)):
        torch.testing.assert_close(tokens(same, *grid), tokens(vit, *grid), atol=1e-5, rtol=0)


def test_dino_full_checkpoint_gives_the_teacher(tmp_path: Path) -> None:
    teacher, student = scrambled_vit(PLAIN, 1), scrambled_vit(PLAIN, 2)
    head = {"head.mlp.0.weight": torch.zeros(4, 128), "head.last_layer.weight_g": torch.zeros(4, 1)}
    content = {
        "student": {f"module.backbone.{k}": v for k, v in state_of(student).items()},
        "teacher": {f"backbone.{k}": v for k, v in state_of(teacher).items()} | head,
        "optimizer": {"state": {}, "param_groups": []},
        "epoch": 100,
        "args": argparse.Namespace(arch="vit_small", patch_size=14),
        "dino_loss": {"center": torch.zeros(1, 4)},
    }
    torch.save(content, tmp_path / "dino.pth")
    same = loaded(tmp_path / "dino.pth")
    assert same.config == PLAIN
    assert torch.equal(tokens(same), tokens(teacher))


def test_ibot_checkpoint(tmp_path: Path) -> None:
    vit = scrambled_vit(PLAIN)
    extras = {"masked_embed": torch.zeros(1, 128), "head.mlp.0.weight": torch.zeros(4, 128)}
    torch.save({"state_dict": state_of(vit) | extras}, tmp_path / "ibot.pth")
    assert torch.equal(tokens(loaded(tmp_path / "ibot.pth")), tokens(vit))


@pytest.mark.parametrize("turned", [False, True])
def test_mocov3_has_twelve_heads_and_keeps_the_trained_encoder(turned: bool, tmp_path: Path) -> None:
    config = ViTConfig(patch=16, dim=384, depth=1, heads=12, hidden=1536, grid=(14, 14), layer_scale=False)
    base, momentum = scrambled_vit(config, 1), scrambled_vit(config, 2)
    fixed = sincos_positions(384, (14, 14))
    if turned:  # a reproduction that encodes the column first
        fixed = fixed.reshape(1, 14, 14, 384).transpose(1, 2).reshape(1, 196, 384)
    positions = torch.cat([torch.zeros(1, 1, 384), fixed], dim=1)
    for vit in (base, momentum):
        vit.pos_embed.data = positions
    state = {f"module.base_encoder.{k}": v for k, v in state_of(base).items()}
    state |= {f"module.momentum_encoder.{k}": v for k, v in state_of(momentum).items()}
    state |= {"module.base_encoder.head.0.weight": torch.zeros(8, 384), "module.predictor.0.weight": torch.zeros(8, 8)}
    torch.save({"epoch": 300, "arch": "vit_small", "state_dict": state, "optimizer": {}}, tmp_path / "vit-s.pth.tar")
    same = loaded(tmp_path / "vit-s.pth.tar")
    assert same.config == config
    images = random_images(1, 224, 224)
    with torch.no_grad():
        assert torch.equal(same.eval()(images)[0].patches, base(images)[0].patches)


def test_learned_positions_at_384_mean_six_heads(tmp_path: Path) -> None:
    config = ViTConfig(patch=16, dim=384, depth=1, heads=6, hidden=1536, grid=(14, 14), layer_scale=False)
    save_file(state_of(scrambled_vit(config)), tmp_path / "dino.safetensors")
    assert loaded(tmp_path / "dino.safetensors").config == config


@pytest.mark.parametrize("form", ["original", "huggingface"])
def test_deit_distillation_token_is_one_more_prefix_token(form: str, tmp_path: Path) -> None:
    plain = scrambled_vit(PLAIN)
    state = state_of(plain)
    extra = torch.randn(1, 1, 128, generator=torch.Generator().manual_seed(9))
    place = torch.randn(1, 1, 128, generator=torch.Generator().manual_seed(10))
    state["pos_embed"] = torch.cat([state["pos_embed"][:, :1], place, state["pos_embed"][:, 1:]], dim=1)
    if form == "huggingface":
        state = huggingface(state) | {"embeddings.distillation_token": extra}
        state = {f"deit.{key}": value for key, value in state.items()}
    else:
        state |= {"dist_token": extra, "head_dist.weight": torch.zeros(10, 128), "head_dist.bias": torch.zeros(10)}
    torch.save({"model": state}, tmp_path / "deit.pth")
    same = loaded(tmp_path / "deit.pth")
    assert same.config.registers == 1
    # Token by token, with the blocks of the plain model.
    images = random_images(2, 56, 56)
    with torch.no_grad():
        start, _ = plain.embed(images)
        x = torch.cat([start[:, :1], (extra + place).expand(2, -1, -1), start[:, 1:]], dim=1)
        expected = plain.norm(plain.run(x, 0, 2))
        found = same.eval()(images)[0]
    torch.testing.assert_close(found.cls, expected[:, 0], atol=1e-6, rtol=0)
    torch.testing.assert_close(found.patches, expected[:, 2:], atol=1e-6, rtol=0)


def test_every_mismatch_is_listed(tmp_path: Path) -> None:
    state = state_of(scrambled_vit(SCALED))
    del state["blocks.1.norm2.bias"]
    state["surprise.weight"] = torch.zeros(3)
    state["blocks.0.attn.proj.weight"] = torch.zeros(128, 64)
    save_file(state, tmp_path / "odd.safetensors")
    with pytest.raises(SkyPartError) as caught:
        load_backbone(str(tmp_path / "odd.safetensors"))
    text = str(caught.value)
    assert "odd.safetensors" in text
    assert "missing (1): blocks.1.norm2.bias" in text
    assert "unexpected (1): surprise.weight" in text
    assert "wrong shape (1): blocks.0.attn.proj.weight (128, 64) instead of (128, 128)" in text


def test_an_incomplete_attention_layer_is_reported(tmp_path: Path) -> None:
    state = huggingface(state_of(scrambled_vit(SCALED)))
    del state["encoder.layer.0.attention.attention.key.weight"]
    torch.save(state, tmp_path / "cut.pth")
    with pytest.raises(SkyPartError, match=r"missing \(1\): blocks.0.attn.qkv.weight"):
        load_backbone(str(tmp_path / "cut.pth"))


def test_long_lists_of_keys_are_shortened(tmp_path: Path) -> None:
    state = state_of(scrambled_vit(SCALED)) | {f"extra.{i:02d}": torch.zeros(1) for i in range(20)}
    torch.save(state, tmp_path / "long.pth")
    with pytest.raises(SkyPartError, match=r"unexpected \(20\): .*extra.11 and 8 more"):
        load_backbone(str(tmp_path / "long.pth"))


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7), "fc.weight": torch.zeros(10, 64)}, tmp_path / "resnet.pth")
    with pytest.raises(SkyPartError, match=r"resnet.pth: not a supported vision transformer.*transformers:NAME"):
        load_backbone(str(tmp_path / "resnet.pth"))
    state = state_of(scrambled_vit(SCALED))
    state["pos_embed"] = state["pos_embed"][:, :-2].contiguous()
    torch.save(state, tmp_path / "cut.pth")
    with pytest.raises(SkyPartError, match="14 positions do not form a square grid"):
        load_backbone(str(tmp_path / "cut.pth"))
