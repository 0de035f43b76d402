"""Properties of single losses beyond their formula."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from skypart.errors import SkyPartError
from skypart.losses.altitude import AltitudeLoss, has_altitude
from skypart.losses.circle import circle_from_pairs
from skypart.losses.cosine import at_least_float32, paired_cosine, unit_vectors
from skypart.losses.diversity import diversity_loss
from skypart.losses.info_nce import InfoNceLoss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss, random_mask, reconstruction_input
from skypart.losses.pairs import CrossViewPairs, log_one_plus_exp, masked_logsumexp, masked_mean
from skypart.losses.patch_nce import patch_nce_loss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from skypart.losses.self_distillation import self_distillation_loss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.losses.uapa import softened_divergence, uapa_loss, uapa_temperature
from tests.losses.cases import IS_DRONE, LOCATION, normal


def aggregate(tokens: Tensor, assignment: Tensor, visible: Tensor) -> Tensor:
    """Assignment-weighted mean of the visible tokens: (B, N, C), (B, N, K), (B, N) -> (B, K, C)."""
    weight = assignment * visible[..., None]
    return torch.einsum("bnk,bnc->bkc", weight, tokens) / weight.sum(1)[..., None]


def test_a_masked_token_does_not_reach_the_reconstruction() -> None:
    tokens, assignment = normal(2, 10, 5), normal(2, 10, 4, seed=1).softmax(-1)
    masked = random_mask(2, 10, 0.3, torch.Generator().manual_seed(0))

    def mixed(tokens: Tensor) -> Tensor:
        return reconstruction_input(assignment, masked, aggregate(tokens, assignment, ~masked))

    assert torch.equal(mixed(torch.where(masked[..., None], tokens + 7, tokens)), mixed(tokens))
    assert not torch.allclose(mixed(torch.where(masked[..., None], tokens, tokens + 7)), mixed(tokens))


def test_reconstruction_detaches_target_and_assignment() -> None:
    loss = MaskedReconstructionLoss(5, 7)
    tokens, assignment, descriptors = (
        normal(2, n, c, seed=c, dtype=torch.float32).requires_grad_() for n, c in [(6, 5), (6, 3), (3, 5)]
    )
    value = loss(tokens, assignment, random_mask(2, 6, 0.5, torch.Generator()), descriptors)
    found = torch.autograd.grad(value, [tokens, assignment, descriptors], allow_unused=True)
    assert found[0] is None and found[1] is None
    assert found[2] is not None and bool((found[2] != 0).any())


@pytest.mark.parametrize(("tokens", "ratio"), [(256, 0.3), (10, 0.25), (9, 0.0), (1, 0.4)])
def test_random_mask_hides_the_exact_share_of_every_image(tokens: int, ratio: float) -> None:
    masked = random_mask(50, tokens, ratio, torch.Generator().manual_seed(1))
    assert masked.sum(1).tolist() == [round(ratio * tokens)] * 50
    assert torch.equal(masked, random_mask(50, tokens, ratio, torch.Generator().manual_seed(1)))


def test_random_mask_reaches_every_position_equally() -> None:
    share = random_mask(4000, 16, 0.25, torch.Generator().manual_seed(2)).double().mean(0)
    deviation = math.sqrt(0.25 * 0.75 / 4000)
    assert float((share - 0.25).abs().max()) < 5 * deviation
    for ratio in (1.0, -0.1, math.nan):
        with pytest.raises(SkyPartError, match="mask ratio"):
            random_mask(1, 4, ratio, torch.Generator())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 32.0, 1e4, 1e30])
def test_uapa_temperature_lies_between_t0_and_twice_t0(scale: float) -> None:
    drone, satellite = (scale * normal(200, 120, seed=s, dtype=torch.float32) for s in (0, 1))
    temperature = uapa_temperature(drone, satellite)
    assert bool(((temperature >= 4) & (temperature <= 8)).all())
    for direction in ("reverse", "forward"):
        leaf = drone.clone().requires_grad_()
        loss = softened_divergence(leaf, satellite, temperature, direction)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        assert bool(loss.isfinite().all()) and bool(gradient.isfinite().all())
        assert loss.min().item() >= -1e-4


def test_uapa_temperature_rises_only_if_the_drone_is_less_certain() -> None:
    sure, unsure = torch.eye(120)[:1] * 100, torch.zeros(1, 120)
    assert uapa_temperature(unsure, sure).item() == pytest.approx(8.0, abs=1e-5)
    assert uapa_temperature(sure, unsure).item() == 4.0
    assert uapa_temperature(sure, sure).item() == 4.0
    assert uapa_temperature(torch.zeros(1, 1), torch.ones(1, 1)).item() == 4.0  # a single proxy


def test_uapa_moves_the_drone_and_never_the_satellite() -> None:
    embedding = normal(len(LOCATION), 5).requires_grad_()
    loss = uapa_loss(embedding, normal(6, 5, seed=1), LOCATION, IS_DRONE)
    (gradient,) = torch.autograd.grad(loss, embedding)
    paired = IS_DRONE & (LOCATION != 3)
    assert bool((gradient[paired].abs().sum(1) > 0).all())
    assert bool((gradient[~paired] == 0).all())


def test_patch_nce_does_not_depend_on_the_chunk_size() -> None:
    tokens = normal(len(LOCATION), 4, 5)
    prototype = torch.randint(3, tokens.shape[:2], generator=torch.Generator().manual_seed(0))
    values = [patch_nce_loss(tokens, prototype, LOCATION, IS_DRONE, anchors_at_once=n) for n in (1, 7, 1000)]
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-12)
    assert values[0].item() == pytest.approx(values[2].item(), rel=1e-12)


def test_patch_nce_never_stores_the_matrix_of_all_patches() -> None:
    tokens = normal(10, 30, 8).requires_grad_()
    kept = 0

    def count(x: Tensor) -> Tensor:
        nonlocal kept
        kept += x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        views = torch.arange(10) // 2, torch.arange(10) % 2 == 0
        patch_nce_loss(tokens, torch.zeros(10, 30, dtype=torch.long), *views, anchors_at_once=50)
    assert tokens.numel() < kept < 300 * 300


def test_info_nce_scale_is_limited_and_can_decrease_again() -> None:
    loss = InfoNceLoss(max_scale=100)
    assert loss.log_scale.exp().item() == pytest.approx(1 / 0.07)
    loss.log_scale.data.fill_(30.0)
    embedding = normal(len(LOCATION), 5, dtype=torch.float32)  # random: a lower scale is better
    (gradient,) = torch.autograd.grad(loss(embedding, LOCATION, IS_DRONE), loss.log_scale)
    assert loss.log_scale.exp().item() == pytest.approx(100)
    assert gradient.item() > 0


def test_proxy_anchor_refuses_a_location_without_proxy() -> None:
    for location in ([0, 6], [-1, 5]):
        with pytest.raises(SkyPartError, match=rf"locations {location[0]} to {location[1]}, .*6 proxies"):
            ProxyAnchorLoss(6, 5)(torch.zeros(2, 5), torch.tensor(location))
    assert ProxyAnchorLoss(6, 5)(torch.ones(2, 5), torch.tensor([0, 5])).isfinite()
    assert ProxyAnchorLoss(6, 5)(torch.ones(2, 5), torch.tensor([5, 5])).isfinite()
    assert ProxyAnchorLoss(6, 5)(torch.ones(0, 5), torch.tensor([], dtype=torch.long)).item() == 0.0


def test_distillation_detaches_its_targets() -> None:
    x, target = (normal(4, 8, seed=s, dtype=torch.float32).requires_grad_() for s in (0, 1))
    for loss in (self_distillation_loss(x, target), TeacherDistillationLoss(8, 8)(x, target)):
        student, teacher = torch.autograd.grad(loss, [x, target], allow_unused=True)
        assert teacher is None and bool((student != 0).any())


@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e4])
def test_extreme_constant_targets_stay_finite(scale: float) -> None:
    x, target = normal(4, 8, dtype=torch.float32).requires_grad_(), scale * normal(4, 8, seed=1).float()
    masked, assignment = torch.ones(1, 4, dtype=torch.bool), torch.full((1, 4, 4), 0.25)
    altitude = torch.tensor([1e6, -1e6, math.inf, math.nan])
    for loss in (
        self_distillation_loss(x, target),
        TeacherDistillationLoss(8, 8)(x, target),
        MaskedReconstructionLoss(8, 8)(target[None], assignment, masked, x[None]),
        AltitudeLoss(8, 8)(x, altitude, torch.ones(4, dtype=torch.bool)),
    ):
        (gradient,) = torch.autograd.grad(loss, x)
        assert loss.isfinite() and bool(gradient.isfinite().all())


def test_means_over_a_single_item_are_that_item() -> None:
    one, other = normal(1, 8, dtype=torch.float32), normal(1, 8, seed=1, dtype=torch.float32)
    gap = 1 - float(F.cosine_similarity(one, other))
    assert self_distillation_loss(one, other).item() == pytest.approx(gap, rel=1e-5)
    teacher = TeacherDistillationLoss(8, 8)
    assert teacher(one, other).item() == pytest.approx(teacher(one.repeat(3, 1), other.repeat(3, 1)).item(), rel=1e-5)
    mar, masked = MaskedReconstructionLoss(8, 8), torch.tensor([[True]])
    descriptor = mar.decoder(one).detach()
    expected = 1 - float(F.cosine_similarity(descriptor, other))
    assert mar(other[None], torch.ones(1, 1, 1), masked, one[None]).item() == pytest.approx(expected, rel=1e-5)
    altitude, metres = AltitudeLoss(8, 8), torch.tensor([225.0])
    error = float(altitude.head(one).detach()) - (225 - 150) / 150
    found = altitude(one, metres, torch.tensor([True])).item()
    assert abs(error) < 1 and found == pytest.approx(error**2 / 2, rel=1e-5)
    pair = torch.cat([one, other])
    proxies, views = normal(4, 8, seed=2, dtype=torch.float32), torch.tensor([True, False])
    single = uapa_loss(pair, proxies, torch.tensor([2, 2]), views)
    double = uapa_loss(pair.repeat(2, 1), proxies, torch.tensor([2, 2, 2, 2]), views.repeat(2))
    assert single.item() == pytest.approx(double.item(), rel=1e-5) and single.item() > 0
    assert masked_mean(torch.tensor([3.0, 5.0]), torch.tensor([False, True])).item() == 5.0
    assert diversity_loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]])).item() == pytest.approx(1.0)


def test_circle_weights_are_never_negative() -> None:
    similarity = torch.tensor([[0.9, 0.2]], dtype=torch.float64)
    pairs = CrossViewPairs(similarity, torch.tensor([[True, False]]))

    def loss(pace: list[float]) -> float:
        return circle_from_pairs(pairs, torch.tensor([pace], dtype=torch.float64), 0.25, 64.0).item()

    # pace above 1 + margin or below -margin: no pull, no push, and log(1 + e^0) is left
    assert loss([1.5, -0.5]) == pytest.approx(math.log(2))
    assert loss([1.0, -0.5]) == pytest.approx(math.log1p(math.exp(-64 * 0.25 * (0.9 - 0.75))))
    assert loss([1.5, 0.0]) == pytest.approx(math.log1p(math.exp(64 * 0.25 * (0.2 - 0.25))))


def test_cosines_of_tiny_vectors_shrink_instead_of_exploding() -> None:
    assert unit_vectors(torch.tensor([3e-9, 4e-9])).norm().item() == pytest.approx(0.5)
    assert unit_vectors(torch.tensor([3e-8, 4e-8])).norm().item() == pytest.approx(1.0)


def test_paired_cosine_reduces_the_last_axis() -> None:
    a, b = normal(2, 3, 4), normal(2, 3, 4, seed=1)
    torch.testing.assert_close(paired_cosine(a, b), F.cosine_similarity(a, b, dim=-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_only_half_precision_is_converted(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    converted = at_least_float32(x)
    assert converted.dtype == (dtype if dtype in (torch.float32, torch.float64) else torch.float32)
    assert (converted is x) == (converted.dtype == dtype)


@pytest.mark.parametrize("x", [-700.0, -1.0, 0.0, 19.0, 25.0, 33.0, 39.0, 41.0, 700.0])
def test_log_one_plus_exp_is_exact_in_float64(x: float) -> None:
    expected = max(x, 0.0) + math.log1p(math.exp(-abs(x)))
    assert log_one_plus_exp(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(expected, rel=4e-16)


def test_masked_logsumexp_ignores_what_is_not_selected() -> None:
    x = torch.tensor([[1.0, 2.0, 50.0], [4.0, 5.0, 6.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    found = masked_logsumexp(x, mask)
    assert found.tolist() == pytest.approx([math.log(math.exp(1) + math.exp(2)), 0.0])
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient[0, 2] == 0 and bool((gradient[1] == 0).all())
    deep = masked_logsumexp(x.detach().view(1, 1, 2, 3), mask.view(1, 1, 2, 3))
    assert torch.equal(deep, found.detach().view(1, 1, 2))


def test_only_drone_images_with_finite_altitude_count() -> None:
    altitude = torch.tensor([100.0, math.nan, math.inf, 100.0])
    assert has_altitude(altitude, torch.tensor([True, True, True, False])).tolist() == [True, False, False, False]
    loss = AltitudeLoss(2, 3)
    inputs = {"altitude": altitude, "is_drone": torch.tensor([True, True, True, False])}
    assert loss.applies(inputs)
    assert not loss.applies(inputs | {"is_drone": torch.tensor([False, True, True, False])})
