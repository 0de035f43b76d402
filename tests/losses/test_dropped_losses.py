"""Losses that the paper tried and dropped, against plain loops."""

import math

import pytest
import torch
from torch import Tensor

from skypart.losses.config import LossConfig
from skypart.losses.geopart import GeoPartLoss, LossInputs
from skypart.losses.multi_similarity import MultiSimilarityLoss
from skypart.losses.part_transport import PartTransportLoss, sinkhorn, transport_scores
from skypart.losses.patch_mae import PatchMaeLoss
from skypart.losses.sparsity import SparsityLoss
from skypart.losses.triplet import triplet_loss
from tests.losses.cases import IS_DRONE, LOCATION, LOCATIONS, D, normal

EMBEDDING = normal(len(LOCATION), D, seed=3)


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))


def anchors() -> list[tuple[list[float], list[float]]]:
    """(positive, negative) cosines of each anchor of both views that has both."""
    found = []
    for i in range(len(LOCATION)):
        others = [j for j in range(len(LOCATION)) if bool(IS_DRONE[j]) != bool(IS_DRONE[i])]
        values = {j: cosine(EMBEDDING[i], EMBEDDING[j]) for j in others}
        positive = [values[j] for j in others if LOCATION[j] == LOCATION[i]]
        negative = [values[j] for j in others if LOCATION[j] != LOCATION[i]]
        if positive and negative:
            found.append((positive, negative))
    return found


@pytest.mark.parametrize("margin", [0.1, 0.3, 1.5])
def test_triplet_by_loops(margin: float) -> None:
    expected = [max(0.0, max(negative) - min(positive) + margin) for positive, negative in anchors()]
    found = triplet_loss(EMBEDDING, LOCATION, IS_DRONE, margin)
    assert float(found) == pytest.approx(sum(expected) / len(expected), rel=1e-9)


def test_multi_similarity_by_loops() -> None:
    expected = []
    for positive, negative in anchors():
        pulled = [s for s in positive if s - 0.1 < max(negative)]
        pushed = [s for s in negative if s + 0.1 > min(positive)]
        pull = math.log(1 + sum(math.exp(-2 * (s - 0.5)) for s in pulled)) / 2
        push = math.log(1 + sum(math.exp(50 * (s - 0.5)) for s in pushed)) / 50
        expected.append(pull + push)
    found = MultiSimilarityLoss()(EMBEDDING, LOCATION, IS_DRONE)
    assert float(found) == pytest.approx(sum(expected) / len(expected), rel=1e-9)


def test_sinkhorn_has_uniform_marginals() -> None:
    plan = sinkhorn(normal(3, 5, 4, seed=1).float())
    torch.testing.assert_close(plan.sum(-1), torch.full((3, 5), 1 / 5), atol=2e-3, rtol=0.02)
    torch.testing.assert_close(plan.sum(-2), torch.full((3, 4), 1 / 4), atol=1e-6, rtol=1e-5)


def test_transport_is_largest_for_the_same_parts_in_any_order() -> None:
    parts = normal(4, 6, 8, seed=2).float()
    scores = transport_scores(parts[:, torch.randperm(6, generator=torch.Generator().manual_seed(0))], parts)
    assert scores.argmax(dim=1).tolist() == [0, 1, 2, 3] and float(scores.diagonal().min()) > 0.9


def test_part_transport_pulls_pairs_together() -> None:
    parts = normal(len(LOCATION), 4, 6, seed=5).float().requires_grad_()
    loss = PartTransportLoss()
    before = loss(parts, LOCATION, IS_DRONE)
    (gradient,) = torch.autograd.grad(before, parts)
    after = loss(parts.detach() - 0.5 * gradient, LOCATION, IS_DRONE)
    assert float(after) < float(before.detach())
    alone = loss(parts, LOCATION, torch.ones_like(IS_DRONE))
    assert float(alone.detach()) == 0.0


def test_patch_mae_predicts_hidden_tokens_from_visible_ones() -> None:
    torch.manual_seed(0)
    loss = PatchMaeLoss(8, 2)
    tokens = normal(3, 5, 8, seed=6).float().requires_grad_()
    masked = torch.zeros(3, 5, dtype=torch.bool)
    masked[:, 1] = masked[0, 3] = True
    value = loss(tokens, masked)
    assert 0 < float(value.detach()) < 2
    (gradient,) = torch.autograd.grad(value, tokens, retain_graph=True)
    assert float(gradient[:, 1].abs().max()) == 0.0, "the target is a constant and hidden tokens are not seen"
    assert float(gradient[0, 0].abs().max()) > 0
    assert float(loss(tokens, torch.zeros_like(masked)).detach()) == 0.0


def test_they_are_off_by_default_and_one_switch_each() -> None:
    inputs = LossInputs(
        {
            "embedding": EMBEDDING.float(),
            "location": LOCATION,
            "is_drone": IS_DRONE,
            "descriptors": normal(len(LOCATION), 4, 6, seed=5).float(),
        },
        {"tokens": normal(2, 5, 8, seed=6).float(), "masked": torch.eye(2, 5, dtype=torch.bool)},
    )
    widths = {"embedding": D, "tokens": 8}
    usual = {"mar": False, "diversity": False, "patch_nce": False, "distill": False, "alt": False}
    plain = GeoPartLoss(LossConfig(**usual), LOCATIONS, widths)  # type: ignore[arg-type]
    assert {term.name for term in plain.terms} == {"circle", "proxy_anchor", "info_nce", "uapa"}
    for name in ("triplet", "multi_similarity", "part_transport", "patch_mae"):
        loss = GeoPartLoss(LossConfig(**usual, **{name: True}), LOCATIONS, widths)  # type: ignore[arg-type]
        report = loss(inputs)
        assert name in report.terms and bool(torch.isfinite(report.terms[name]))


def test_sparsity_is_zero_at_its_target_and_pulls_every_image_towards_it() -> None:
    """By hand: means of 1 and 0.5 are 0.25 above and below the target."""
    term = SparsityLoss(0.75)
    salience = torch.tensor([[1.0, 1.0], [1.0, 0.0]], requires_grad=True)
    loss = term(salience)
    assert loss.item() == pytest.approx(0.0625)
    (gradient,) = torch.autograd.grad(loss, salience)
    assert bool((gradient[0] > 0).all()) and bool((gradient[1] < 0).all())
    assert term(torch.tensor([[1.0, 0.5], [0.75, 0.75]])).item() == pytest.approx(0.0)
    assert not LossConfig().sparsity
