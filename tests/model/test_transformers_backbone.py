"""Any patch transformer of `transformers` as a backbone: same tokens, same files, same freezing."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from skypart.errors import SkyPartError
from skypart.model import SkyPart, load_backbone, load_model, save_model
from skypart.model.cost import measure_cost
from skypart.model.transformers_backbone import TransformersBackbone
from tests.model.builders import TINY_HEAD, random_images, scramble

COMMON: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
KINDS = ("dinov2", "dinov3", "vit")


def make(kind: str) -> Any:
    if kind == "dinov2":
        model = transformers.Dinov2Model(transformers.Dinov2Config(**COMMON, mlp_ratio=2, image_size=56, patch_size=14))
    elif kind == "dinov3":
        model = transformers.DINOv3ViTModel(
            transformers.DINOv3ViTConfig(
                **COMMON, intermediate_size=256, image_size=56, patch_size=14, num_register_tokens=4
            )
        )
    else:
        model = transformers.ViTModel(
            transformers.ViTConfig(**COMMON, intermediate_size=256, image_size=56, patch_size=14)
        )
    scramble(model, 8)
    return model.eval()


def make_model(kind: str) -> SkyPart:
    model = SkyPart(TransformersBackbone(make(kind)), TINY_HEAD)
    torch.manual_seed(0)
    return model.eval()


@pytest.mark.parametrize("kind", ["dinov2", "vit"])
def test_same_tokens_as_our_own_vit(kind: str, tmp_path: Path) -> None:
    make(kind).save_pretrained(tmp_path)
    foreign, ours = load_backbone(f"transformers:{tmp_path}").eval(), load_backbone(str(tmp_path)).eval()
    assert isinstance(foreign, TransformersBackbone)
    assert (foreign.dim, foreign.depth, foreign.patch) == (128, 3, 14)
    for height, width in ((56, 56), (42, 84)):
        images = random_images(2, height, width)
        with torch.no_grad():
            pairs = zip(foreign(images, taps=(1, 3)), ours(images, taps=(1, 3)), strict=True)
        for theirs, own in pairs:
            assert theirs.grid == own.grid
            torch.testing.assert_close(theirs.cls, own.cls, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(theirs.patches, own.patches, atol=1e-5, rtol=1e-5)


def test_dinov3_prefix_tokens_are_skipped() -> None:
    oracle = make("dinov3")
    images = random_images(2, 42, 70)
    with torch.no_grad():
        tokens = TransformersBackbone(oracle).eval()(images)[0]
        expected = oracle(pixel_values=images).last_hidden_state
    assert tokens.grid == (3, 5)
    assert torch.equal(tokens.cls, expected[:, 0])
    assert torch.equal(tokens.patches, expected[:, 5:])


@pytest.mark.parametrize("kind", KINDS)
def test_model_files_restore_a_transformers_backbone(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    assert not [key for key in model.state_dict() if "_layers" in key], "each weight is stored once"
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    images = random_images(2, 56, 56)
    with torch.no_grad():
        assert torch.equal(again(images).embedding, model(images).embedding)
    assert measure_cost(again, 56).linear > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable", [0, 1, 3])
def test_freezing(kind: str, trainable: int) -> None:
    model = make_model(kind).train()
    model.freeze(trainable)
    output = model(random_images(4, 56, 56), altitude=torch.tensor([150.0, 200.0, 250.0, 300.0]))
    (output.embedding.sum(dim=1).square().sum() + output.tokens.sum()).backward()
    layers = {id(p): i for i, layer in enumerate(model.backbone._find_layers()) for p in layer.parameters()}  # type: ignore[operator]
    for name, parameter in model.backbone.named_parameters():
        learns = layers.get(id(parameter), -1 if trainable < 3 else 3) >= 3 - trainable
        learns |= bool(trainable) and name.split(".")[1] in ("layernorm", "norm")
        learns &= "pooler" not in name and "mask_token" not in name
        assert (parameter.grad is not None) == learns, name
        assert parameter.requires_grad == learns, name


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    found = []
    for wanted in (False, True):
        model = make_model("dinov2").train()
        model.backbone_interface.gradient_checkpointing = wanted
        model.freeze(2)
        backbone = model.backbone(random_images(2, 56, 56))[0]
        (backbone.patches.square().sum() + backbone.cls.sum()).backward()
        found.append([p.grad for p in model.backbone.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 20
    for plain, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(plain, recomputed, atol=1e-5, rtol=1e-5)


def test_unsupported_models_and_inputs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = TransformersBackbone(make("dinov2"))
    with pytest.raises(SkyPartError, match="not divisible by the patch size 14"):
        backbone(random_images(1, 50, 56))
    for taps in ((0,), (4,), ()):
        with pytest.raises(SkyPartError, match="from 1 to 3"):
            backbone(random_images(1, 56, 56), taps=taps)
    with pytest.raises(SkyPartError, match="from 0 to 3"):
        backbone.freeze(4)
    with pytest.raises(SkyPartError, match="transformers cannot load"):
        load_backbone(f"transformers:{tmp_path}")
    for kind in (KeyError("vit"), RuntimeError(""), ImportError("needs torchvision\nand more")):

        def fail(*_: object, error: Exception = kind, **__: object) -> None:
            raise error

        monkeypatch.setattr(transformers.AutoModel, "from_pretrained", fail)
        with pytest.raises(SkyPartError, match=r"transformers cannot load 'x/y' \([^\n]+\); check") as error:
            load_backbone("transformers:x/y")
        assert "\n" not in str(error.value)
    with pytest.raises(SkyPartError, match="not a plain patch transformer"):
        TransformersBackbone(transformers.ResNetModel(transformers.ResNetConfig(depths=[1], hidden_sizes=[8])))
