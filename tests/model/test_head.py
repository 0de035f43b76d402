"""Each module of the head against plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from skypart.model.heads.skypart.film import AltitudeFiLM
from skypart.model.heads.skypart.fusion import BRANCHES, ClsBranch, FusionGate
from skypart.model.heads.skypart.pooling import PartPooling
from skypart.model.heads.skypart.prototypes import PartAggregation, PrototypeBank, patch_centres, weighted_mean
from skypart.model.heads.skypart.salience import SalienceGate, gumbel_noise
from tests.model.builders import scramble

BATCH, PATCHES, PROTOTYPES, DIM = 3, 12, 5, 16


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assigned(seed: int = 1) -> Tensor:
    return torch.softmax(drawn(BATCH, PATCHES, PROTOTYPES, seed=seed), dim=-1)


def test_assignment_is_a_softmax_of_cosines_over_prototypes() -> None:
    bank = PrototypeBank(PROTOTYPES, DIM, temperature=0.07)
    tokens = drawn(BATCH, PATCHES, DIM)
    assignment = bank(tokens)
    torch.testing.assert_close(assignment.sum(dim=-1), torch.ones(BATCH, PATCHES))
    for b in range(BATCH):
        for i in range(PATCHES):
            cosines = [
                float(tokens[b, i] @ p) / float(tokens[b, i].norm() * p.norm()) for p in bank.prototypes.detach()
            ]
            powers = [math.exp(c / 0.07) for c in cosines]
            expected = [power / sum(powers) for power in powers]
            assert assignment[b, i].tolist() == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(bank(100 * tokens), assignment, atol=1e-5, rtol=1e-4)


def test_prototypes_start_orthogonal() -> None:
    prototypes = PrototypeBank(12, 256, 0.07).prototypes.detach()
    torch.testing.assert_close(prototypes @ prototypes.T, torch.eye(12), atol=1e-5, rtol=0)


def test_aggregation_is_a_weighted_mean_with_a_residual() -> None:
    aggregation = PartAggregation(DIM, 20)
    scramble(aggregation, 2)
    tokens, assignment = drawn(BATCH, PATCHES, DIM), assigned()
    visible = drawn(BATCH, PATCHES, seed=5) > 0
    for seen in (None, visible):
        found = aggregation(tokens, assignment, seen)
        for b in range(BATCH):
            for k in range(PROTOTYPES):
                total, mass = torch.zeros(DIM), 0.0
                for i in range(PATCHES):
                    if seen is None or seen[b, i]:
                        total = total + assignment[b, i, k] * tokens[b, i]
                        mass += float(assignment[b, i, k])
                mean = total / mass
                norm, first, act, second = aggregation.refine
                expected = mean + second(act(first(norm(mean))))
                torch.testing.assert_close(found[b, k], expected, atol=1e-5, rtol=1e-5)


def test_hidden_tokens_do_not_matter_even_if_not_finite() -> None:
    tokens, assignment = drawn(BATCH, PATCHES, DIM), assigned()
    visible = torch.ones(BATCH, PATCHES, dtype=torch.bool)
    visible[:, 3] = False
    expected = weighted_mean(tokens, assignment, visible)
    tokens[:, 3] = float("nan")
    assert torch.equal(weighted_mean(tokens, assignment, visible), expected)


def test_a_prototype_without_patches_gives_zeros_not_nan() -> None:
    assignment = torch.zeros(1, PATCHES, 2)
    assignment[..., 0] = 1.0
    assert weighted_mean(drawn(1, PATCHES, DIM), assignment)[0, 1].tolist() == [0.0] * DIM


def test_centroids_are_weighted_means_of_patch_centres() -> None:
    rows, columns = 3, 4
    centres = patch_centres((rows, columns), torch.zeros(1))
    expected = [((c + 0.5) / columns, (r + 0.5) / rows) for r in range(rows) for c in range(columns)]
    assert [tuple(xy) for xy in centres[0].tolist()] == [pytest.approx(xy) for xy in expected]
    assignment = assigned()
    found = weighted_mean(centres, assignment)
    for b in range(BATCH):
        for k in range(PROTOTYPES):
            mass = sum(float(assignment[b, i, k]) for i in range(PATCHES))
            for axis in range(2):
                mean = sum(float(assignment[b, i, k]) * expected[i][axis] for i in range(PATCHES)) / mass
                assert float(found[b, k, axis]) == pytest.approx(mean, abs=1e-5)
    # All of a prototype in one patch: its centre.
    alone = torch.zeros(1, PATCHES, 1)
    alone[0, 6] = 1.0
    assert weighted_mean(centres, alone)[0, 0].tolist() == pytest.approx(expected[6])


def salience_gate(minimum: int, logits: Tensor) -> tuple[SalienceGate, Tensor]:
    """A gate whose logit is the first channel of its input, and such an input."""
    gate = SalienceGate(2, 2, bias=2.0, temperature=0.5, min_active=minimum)
    gate.mlp = nn.Linear(2, 1, bias=False)  # type: ignore[assignment]
    gate.mlp.weight.data = torch.tensor([[1.0, 0.0]])
    return gate, torch.stack([logits, torch.zeros_like(logits)], dim=-1)


def test_salience_in_evaluation_has_no_noise_a_floor_and_exact_zeros() -> None:
    logits = torch.tensor([[3.0, -1.0, 0.2, -4.0, -2.0], [-1.0, -2.0, -3.0, -4.0, -5.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    gate, descriptors = salience_gate(3, logits)
    gate.eval()
    with torch.no_grad():
        found = gate(descriptors)
    for b in range(3):
        ranked = sorted(range(5), key=lambda k: -float(logits[b, k]))
        for k in range(5):
            soft = 1 / (1 + math.exp(-float(logits[b, k]) / 0.5))
            is_open = soft > 0.5 or k in ranked[:3]
            assert bool(found.active[b, k]) == is_open
            if is_open:
                assert float(found.weight[b, k]) == pytest.approx(soft, abs=1e-6)
            else:
                assert float(found.weight[b, k]) == 0.0
    assert torch.equal(gate(descriptors, noise=torch.full((3, 5), 9.0)).weight, found.weight)
    assert found.active.sum(dim=1).tolist() == [3, 3, 5]


def test_salience_in_training_adds_the_noise_given_and_keeps_the_floor() -> None:
    logits = torch.tensor([[0.5, -0.5, -1.0, -2.0, -3.0]])
    gate, descriptors = salience_gate(2, logits)
    gate.train()
    noise = torch.tensor([[-2.0, 3.0, 0.0, 0.0, 6.0]])
    found = gate(descriptors, noise)
    soft = torch.sigmoid((logits + noise) / 0.5)
    assert found.active.tolist() == [[False, True, False, False, True]]
    torch.testing.assert_close(found.weight, soft * found.active)
    counts = {int(gate(descriptors).active.sum()) for _ in range(200)}
    assert min(counts) == 2, "the floor holds under noise"
    assert len(counts) > 1, "noise is drawn"


def test_closed_prototypes_still_learn() -> None:
    logits = torch.tensor([[2.0, 1.0, -1.0, -2.0]], requires_grad=True)
    gate, descriptors = salience_gate(1, logits)
    gate.eval()
    found = gate(descriptors)
    assert found.weight[0, 2:].tolist() == [0.0, 0.0]
    found.weight.sum().backward()
    assert logits.grad is not None
    soft = torch.sigmoid(logits.detach() / 0.5)
    torch.testing.assert_close(logits.grad, soft * (1 - soft) / 0.5)


def test_min_active_above_the_number_of_prototypes_opens_all() -> None:
    gate, descriptors = salience_gate(9, -torch.ones(1, 4))
    assert gate.eval()(descriptors).active.all()


def test_salience_starts_open() -> None:
    gate = SalienceGate(256, 64, bias=2.0, temperature=0.5, min_active=4).eval()
    assert gate(drawn(8, 12, 256)).active.float().mean() == 1.0


def test_gumbel_noise_has_the_right_moments() -> None:
    noise = gumbel_noise(torch.zeros(200_000), torch.Generator().manual_seed(0))
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)
    assert noise.isfinite().all()


def test_pooling_takes_the_most_salient_in_prototype_order() -> None:
    pooling = PartPooling(DIM, 3, 24)
    descriptors = drawn(2, PROTOTYPES, DIM)
    order = torch.tensor([[0.1, 5.0, 0.3, 4.0, 4.5], [9.0, 8.0, -1.0, -2.0, 7.0]])
    weight = torch.sigmoid(order)
    found = pooling.select(descriptors, weight, order).reshape(2, 3, DIM)
    for b, chosen in enumerate([[1, 3, 4], [0, 1, 4]]):
        for slot, k in enumerate(chosen):
            torch.testing.assert_close(found[b, slot], descriptors[b, k] * weight[b, k])
    # Saturated weights still rank by their logits.
    order = torch.tensor([[40.0, 50.0, 60.0, 70.0, 80.0]])
    assert torch.equal(pooling.select(descriptors[:1], torch.ones(1, 5), order), descriptors[:1, 2:].flatten(1))
    assert pooling(found.flatten(1)).shape == (2, 24)


def test_cls_branch() -> None:
    branch = ClsBranch(DIM, 24)
    scramble(branch, 3)
    branch.eval()
    cls = drawn(BATCH, DIM)
    norm = branch.norm
    assert norm.running_mean is not None and norm.running_var is not None
    for b in range(BATCH):
        x = branch.project.weight @ cls[b]
        expected = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(branch(cls)[b], expected.clamp_min(0), atol=1e-5, rtol=1e-5)


def test_fusion_starts_at_the_stated_weights_and_sums_to_one() -> None:
    gate = FusionGate(24, 16)
    branches = nn.functional.normalize(drawn(200, 3, 24), dim=-1)
    _, weights = gate(branches)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(200))
    assert weights.mean(dim=0).tolist() == pytest.approx([0.576, 0.212, 0.212], abs=0.005)
    assert (weights.max(dim=0).values - weights.min(dim=0).values).max() < 0.02
    scramble(gate, 1)
    embedding, weights = gate(branches)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(200))
    assert (weights.max(dim=0).values - weights.min(dim=0).values).min() > 0.1, "depends on the image"
    for b in range(5):
        mixed = sum(weights[b, j] * branches[b, j] for j in range(3))
        assert isinstance(mixed, Tensor)
        torch.testing.assert_close(embedding[b], mixed / mixed.norm(), atol=1e-6, rtol=1e-5)


def test_the_gate_does_not_see_branches_outside_the_readout() -> None:
    gate = FusionGate(24, 16)
    scramble(gate, 1)
    branches = nn.functional.normalize(drawn(4, 3, 24), dim=-1)
    for readout, kept in BRANCHES.items():
        embedding, weights = gate(branches, readout)
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(4))
        assert (weights > 0).tolist() == [list(kept)] * 4
        other = branches.clone()
        other[:, [j for j in range(3) if not kept[j]]] = float("nan")
        assert torch.equal(gate(other, readout)[0], embedding)
        if sum(kept) == 1:
            torch.testing.assert_close(embedding, branches[:, kept.index(True)])


BINS = (150.0, 200.0, 250.0, 300.0)


def film() -> AltitudeFiLM:
    module = AltitudeFiLM(DIM, BINS)
    scramble(module, 6)
    return module


def test_film_starts_as_the_identity() -> None:
    tokens = drawn(2, PATCHES, DIM)
    module = AltitudeFiLM(DIM, BINS).train()
    assert torch.equal(module(tokens, torch.tensor([150.0, 300.0])), tokens)


def test_film_in_training_uses_the_nearest_bin_or_the_mean() -> None:
    module, tokens = film().train(), drawn(6, PATCHES, DIM)
    altitude = torch.tensor([150.0, 171.0, 262.0, 900.0, float("nan"), float("inf")])
    found = module(tokens, altitude)
    for b, index in enumerate([0, 0, 2, 3]):
        torch.testing.assert_close(found[b], module.gamma[index] * tokens[b] + module.beta[index])
    for b in (4, 5):
        torch.testing.assert_close(found[b], module.mean(tokens[b]))
    torch.testing.assert_close(module(tokens, None), module.mean(tokens))


def test_mean_film_equals_the_mean_of_film_outputs() -> None:
    module, tokens = film(), drawn(BATCH, PATCHES, DIM)
    module.train()
    every = torch.stack([module(tokens, torch.full((BATCH,), altitude)) for altitude in BINS])
    module.eval()
    torch.testing.assert_close(module(tokens), every.mean(dim=0), atol=1e-6, rtol=0)


def test_film_in_evaluation_ignores_altitude_bit_by_bit() -> None:
    module, tokens = film().eval(), drawn(BATCH, PATCHES, DIM)
    for altitude in (None, torch.full((BATCH,), 150.0), torch.full((BATCH,), float("nan"))):
        assert torch.equal(module(tokens, altitude), module.mean(tokens))


def test_without_bins_all_images_share_one() -> None:
    module = AltitudeFiLM(DIM, ())
    assert module.gamma.shape == (1, DIM)
    tokens = drawn(2, PATCHES, DIM)
    assert torch.equal(module.train()(tokens, torch.tensor([100.0, 200.0])), module.mean(tokens))
