from dataclasses import replace

import pytest
import torch

from skypart.model.heads.skypart.head import SkyPartOutput, measure_health
from skypart.model.skypart import SkyPart
from tests.model.builders import random_images


def output(model: SkyPart, assignment: torch.Tensor) -> SkyPartOutput:
    with torch.no_grad():
        found: SkyPartOutput = model(random_images(2, 56, 56))
    return replace(found, assignment=assignment)


def test_uniform_assignment_has_maximal_entropies(tiny_model: SkyPart) -> None:
    health = measure_health(output(tiny_model, torch.full((2, 16, 6), 1 / 6)))
    assert health.usage_entropy == pytest.approx(1.0, abs=1e-6)
    assert health.patch_entropy == pytest.approx(1.0, abs=1e-6)
    assert health.largest == pytest.approx(1 / 6)
    assert not health.collapsed


def test_hard_assignment_with_equal_shares_is_healthy(tiny_model: SkyPart) -> None:
    labels = torch.arange(32).reshape(2, 16) % 6
    health = measure_health(output(tiny_model, torch.nn.functional.one_hot(labels, 6).float()))
    assert health.usage_entropy > 0.99 and health.patch_entropy == pytest.approx(0.0, abs=1e-6)
    assert not health.collapsed


def test_one_prototype_with_all_patches_is_a_collapse(tiny_model: SkyPart) -> None:
    taken = torch.zeros(2, 16, 6)
    taken[..., 3] = 1.0
    health = measure_health(output(tiny_model, taken))
    assert health.usage_entropy == pytest.approx(0.0, abs=1e-6) and health.largest == 1.0
    assert health.collapsed
    almost = 0.85 * taken + 0.15 / 6
    assert measure_health(output(tiny_model, almost)).collapsed


def test_active_count_and_gate_come_from_the_output(tiny_model: SkyPart) -> None:
    found = output(tiny_model, torch.full((2, 16, 6), 1 / 6))
    active = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    gate = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])
    health = measure_health(replace(found, active=active, gate=gate))
    assert health.active == 5.0 and health.gate == pytest.approx((0.4, 0.3, 0.3))
    assert set(health.scalars()) == {
        "usage_entropy", "patch_entropy", "largest_share", "active", "gate_part", "gate_cls", "gate_graph",
    }  # fmt: skip
