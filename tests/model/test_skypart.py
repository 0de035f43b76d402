"""The whole model: output, parameters and multiply-adds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from skypart.errors import SkyPartError
from skypart.model import HeadConfig, SkyPart, VisionTransformer, ViTConfig
from skypart.model.cost import measure_cost
from skypart.model.heads.skypart.fusion import Readout
from tests.model.builders import TINY_HEAD, TINY_VIT, part_head, random_images, scramble, wave

READOUTS: tuple[Readout, ...] = ("full", "cls", "part", "no_graph")


def test_shapes_sums_and_unit_length(tiny_model: SkyPart) -> None:
    with torch.no_grad():
        output = tiny_model(random_images(5, 42, 70))
    assert output.grid == (3, 5)
    assert output.embedding.shape == (5, 48)
    assert output.assignment.shape == (5, 15, 6)
    torch.testing.assert_close(output.assignment.sum(dim=-1), torch.ones(5, 15))
    torch.testing.assert_close(output.gate.sum(dim=-1), torch.ones(5))
    for unit in (output.embedding, output.part, output.cls, output.graph):
        torch.testing.assert_close(unit.norm(dim=-1), torch.ones(5), atol=1e-6, rtol=0)
    assert ((output.centroids > 0) & (output.centroids < 1)).all()
    assert (output.active.sum(dim=1) >= 3).all()
    assert torch.equal(output.salience > 0, output.active)
    assert output.selected.shape == (5, 3 * 32)


@pytest.mark.parametrize("readout", READOUTS)
def test_every_ablation_is_a_switch_of_the_same_weights(readout: Readout, tiny_model: SkyPart) -> None:
    images = random_images(4, 56, 56)
    with torch.no_grad():
        full = tiny_model(images)
        ablated = tiny_model.with_readout(readout)(images)
    torch.testing.assert_close(ablated.embedding.norm(dim=-1), torch.ones(4), atol=1e-6, rtol=0)
    assert torch.equal(ablated.part, full.part), "branches do not depend on the readout"
    expected = {"full": full.embedding, "cls": full.cls, "part": full.part}.get(readout)
    if expected is not None:
        torch.testing.assert_close(ablated.embedding, expected, atol=1e-6, rtol=0)
    else:
        assert (ablated.gate[:, 2] == 0).all()
        mixed = ablated.gate[:, :1] * full.part + ablated.gate[:, 1:2] * full.cls
        torch.testing.assert_close(ablated.embedding, torch.nn.functional.normalize(mixed, dim=-1), atol=1e-6, rtol=0)


def test_all_prototypes_active_without_the_salience_gate() -> None:
    model = SkyPart(VisionTransformer(TINY_VIT), replace(TINY_HEAD, salience_gate=False)).eval()
    with torch.no_grad():
        output = model(random_images(3, 56, 56))
    assert output.active.all()
    assert (output.salience == 1).all()
    for b in range(3):
        largest = output.assignment[b].sum(dim=0).topk(3).indices.sort().values
        assert torch.equal(output.selected[b], output.descriptors[b, largest].flatten())


def test_evaluation_does_not_depend_on_altitude(tiny_model: SkyPart) -> None:
    images = random_images(4, 56, 56)
    with torch.no_grad():
        first = tiny_model(images).embedding
        for altitude in (None, torch.full((4,), 150.0), torch.tensor([300.0, float("nan"), -5.0, 1e9])):
            for noise in (None, torch.full((4, 6), 7.0)):
                assert torch.equal(tiny_model(images, altitude, noise).embedding, first)


def test_altitude_and_noise_matter_in_training(tiny_model: SkyPart) -> None:
    tiny_model.train()
    part_head(tiny_model).cls_branch.eval()
    images, noise = random_images(4, 56, 56), torch.zeros(4, 6)
    low = tiny_model(images, torch.full((4,), 150.0), noise)
    assert torch.equal(tiny_model(images, torch.full((4,), 150.0), noise).embedding, low.embedding)
    assert not torch.allclose(tiny_model(images, torch.full((4,), 300.0), noise).embedding, low.embedding, atol=1e-3)
    unknown = tiny_model(images, torch.full((4,), float("nan")), noise)
    assert torch.equal(unknown.tokens, tiny_model(images, None, noise).tokens)


def test_patch_and_cls_tokens_from_other_layers() -> None:
    vit = VisionTransformer(TINY_VIT)
    scramble(vit, 1)
    model = SkyPart(vit, replace(TINY_HEAD, patch_layer=1, cls_layer=2)).eval()
    images = random_images(2, 56, 56)
    with torch.no_grad():
        output = model(images)
        one, two = vit(images, taps=(1, 2))
        by_hand = model.head([two, one])
    assert torch.equal(output.embedding, by_hand.embedding)


def test_bfloat16_autocast_agrees(tiny_model: SkyPart) -> None:
    images = random_images(8, 56, 56)
    with torch.no_grad():
        exact = tiny_model(images).embedding
        with torch.autocast("cpu", dtype=torch.bfloat16):
            fast = tiny_model(images).embedding
    assert fast.dtype == torch.float32
    assert not torch.equal(fast, exact), "autocast was on"
    assert float((fast * exact).sum(dim=1).min()) >= 0.999


@pytest.mark.slow
def test_bfloat16_autocast_agrees_on_real_weights(shared_weights: Path) -> None:
    model = SkyPart.from_backbone(str(shared_weights)).eval()
    images = torch.cat([wave(224), wave(224).flip(3), random_images(2, 224, 224)])
    with torch.no_grad():
        exact = model(images).embedding
        with torch.autocast("cpu", dtype=torch.bfloat16):
            fast = model(images).embedding
    assert float((fast * exact).sum(dim=1).min()) >= 0.999


def test_parameters_and_multiply_adds_of_the_deployed_model() -> None:
    with torch.random.fork_rng():
        cost = measure_cost(SkyPart(VisionTransformer(ViTConfig())), 448)
    assert cost.parameters["backbone"] == 22_056_192, "ViT-S/14 of DINOv2 (22,056,576) without its mask token"
    assert cost.total_parameters <= 26_950_000
    giga = cost.conventions()
    plain, full, two, two_full, flops = giga.values()
    assert plain == pytest.approx(22.14, rel=0.02)
    assert full == pytest.approx(31.7, rel=0.02)
    assert (two, two_full, flops) == pytest.approx((2 * plain, 2 * full, 2 * full))


def test_multiply_adds_by_hand() -> None:
    model = SkyPart(VisionTransformer(TINY_VIT), TINY_HEAD)
    cost = measure_cost(model, 56)
    tokens, dim = 17, 32
    backbone = 16 * 3 * 14 * 14 * dim + 3 * tokens * (4 * dim * dim + 2 * dim * 64)
    assert cost.attention == 3 * 2 * tokens * tokens * dim
    head = 16 * dim * 32  # projection
    head += 6 * (32 * 40 + 40 * 32)  # refinement
    head += 6 * (32 * 8 + 8)  # salience
    head += 96 * 48 + 48 * 48  # part branch
    head += 6 * (34 * 32 + 32 * 32) + 32 * 48  # graph
    head += 32 * 48  # CLS branch
    head += 3 * 48 * 16 + 16 * 3  # gate
    assert cost.linear == backbone + head
    assert sum(cost.parameters.values()) == sum(p.numel() for p in model.parameters())
    assert model.training, "measuring leaves the mode as it was"


def test_invalid_settings_are_refused() -> None:
    vit = VisionTransformer(TINY_VIT)
    with pytest.raises(SkyPartError, match="unknown readout 'both'"):
        SkyPart(vit, HeadConfig(readout="both"))  # type: ignore[arg-type]
    with pytest.raises(SkyPartError, match="pooled_parts=3 is out of range; choose from 1 to prototypes=2"):
        SkyPart(vit, HeadConfig(prototypes=2))
    with pytest.raises(SkyPartError, match="unknown readout 'x'"):
        SkyPart(vit).with_readout("x")
    with pytest.raises(SkyPartError, match="token layers"):
        SkyPart(vit, HeadConfig(patch_layer=9)).eval()(random_images(1, 56, 56))


def test_the_same_seed_gives_the_same_head_and_keeps_the_global_random_state(shared_weights: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = SkyPart.from_backbone(str(shared_weights), TINY_HEAD, seed=3)
    assert torch.equal(torch.rand(1), expected)
    same, other = (SkyPart.from_backbone(str(shared_weights), TINY_HEAD, seed=seed) for seed in (3, 4))
    assert torch.equal(part_head(one).bank.prototypes, part_head(same).bank.prototypes)
    assert not torch.equal(part_head(one).bank.prototypes, part_head(other).bank.prototypes)
