"""Gradients reach exactly the trainable parameters, for every readout."""

from dataclasses import replace

import pytest
import torch

from skypart.errors import SkyPartError
from skypart.model import SkyPart, VisionTransformer
from skypart.model.heads.skypart.fusion import Readout
from skypart.model.heads.skypart.head import SkyPartOutput
from skypart.model.skypart import stored_name
from tests.model.builders import TINY_HEAD, TINY_VIT, random_images, scramble, scrambled_vit

ALTITUDES = torch.tensor([150.0, 200.0, 250.0, 300.0, float("nan"), 210.0])
UNUSED = {
    "full": (),
    "cls": ("part_branch.", "graph_branch.", "gate.", "salience."),
    "part": ("cls_branch.", "graph_branch.", "gate."),
    "no_graph": ("graph_branch.",),
}


def fresh(readout: Readout, salience_gate: bool = True, patch_layer: int = 0, cls_layer: int = 0) -> SkyPart:
    layers = replace(TINY_HEAD, patch_layer=patch_layer, cls_layer=cls_layer)
    model = SkyPart(VisionTransformer(TINY_VIT), replace(layers, readout=readout, salience_gate=salience_gate))
    scramble(model, 4)
    return model.train()


def backward(output: SkyPartOutput) -> None:
    """Gradients of the embedding, and of the descriptors, which the part losses use."""
    generator = torch.Generator().manual_seed(0)
    towards = torch.randn(output.embedding.shape, generator=generator)
    loss = (output.embedding * towards).sum() + output.descriptors.square().mean()
    torch.autograd.backward(loss)


@pytest.mark.parametrize("readout", ["full", "cls", "part", "no_graph"])
@pytest.mark.parametrize("salience_gate", [True, False])
@pytest.mark.parametrize("trainable", [0, 2, 3])
def test_gradients_reach_exactly_the_trainable_parameters(
    readout: Readout, salience_gate: bool, trainable: int
) -> None:
    model = fresh(readout, salience_gate)
    model.freeze(trainable)
    backward(model(random_images(6, 56, 56), altitude=ALTITUDES))
    for name, parameter in model.named_parameters():
        if name.startswith("backbone.blocks."):
            learns = int(name.split(".")[2]) >= 3 - trainable
        elif name.startswith("backbone."):
            learns = trainable == 3 or (name.startswith("backbone.norm.") and trainable > 0)
        else:
            learns = not stored_name(name).startswith(UNUSED[readout])
            learns &= salience_gate or not name.startswith("head.salience.")
        assert parameter.requires_grad == learns, name
        assert (parameter.grad is not None) == learns, name
        if learns:
            assert parameter.grad is not None and float(parameter.grad.abs().max()) > 0, name


def test_frozen_blocks_build_no_graph() -> None:
    vit = scrambled_vit(TINY_VIT).train()
    vit.freeze(1)
    seen: list[bool] = []
    for block in vit.blocks:
        block.register_forward_hook(lambda _m, _i, output: seen.append(output.requires_grad))
    vit(random_images(1, 56, 56))
    assert seen == [False, False, True]
    # Even if requires_grad of a frozen parameter is set by hand.
    next(vit.blocks[0].parameters()).requires_grad_(True)
    seen.clear()
    vit(random_images(1, 56, 56))
    assert seen == [False, False, True]


def test_blocks_after_the_last_tap_stay_frozen() -> None:
    model = fresh("full", patch_layer=1, cls_layer=2)
    model.freeze(3)
    backward(model(random_images(6, 56, 56), altitude=ALTITUDES))
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert not any(p.requires_grad for p in model.backbone.blocks[2].parameters())  # type: ignore[union-attr,index]
    assert all(p.requires_grad for p in model.backbone.blocks[1].parameters())  # type: ignore[union-attr,index]


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    noise = torch.randn(6, 6, generator=torch.Generator().manual_seed(2))
    gradients = []
    for wanted in (False, True):
        model = fresh("full")
        model.backbone_interface.gradient_checkpointing = wanted
        model.freeze(2)
        backward(model(random_images(6, 56, 56), altitude=ALTITUDES, noise=noise))
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, plain in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], plain, atol=1e-5, rtol=1e-4, msg=name)


def test_too_many_blocks_are_refused() -> None:
    for count in (-1, 4):
        with pytest.raises(SkyPartError, match=f"trainable_blocks={count} must be from 0 to 3"):
            fresh("full").freeze(count)
