"""Circle and proxy anchor against pytorch-metric-learning; label smoothing against torch."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import CircleLoss
from pytorch_metric_learning.losses import ProxyAnchorLoss as OracleProxyAnchor
from torch.nn import functional as F

from skypart.losses.circle import circle_loss
from skypart.losses.info_nce import info_nce_loss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from tests.losses.cases import IS_DRONE, LOCATION, normal


def sampled(locations: int, drones: int, satellites: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Location and view of a batch with this many images per location."""
    location = torch.arange(locations).repeat_interleave(drones + satellites)
    return location, (torch.arange(len(location)) % (drones + satellites)) < drones


@pytest.mark.parametrize("layout", [(LOCATION, IS_DRONE), sampled(16, 4, 1), sampled(5, 1, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_circle_equals_pytorch_metric_learning_on_cross_view_pairs(
    layout: tuple[torch.Tensor, torch.Tensor], seed: int
) -> None:
    location, is_drone = layout
    embedding = normal(len(location), 8, seed=seed)
    cross = is_drone[:, None] != is_drone[None, :]
    same = location[:, None] == location[None, :]
    pairs = (*(cross & same).nonzero(as_tuple=True), *(cross & ~same).nonzero(as_tuple=True))
    expected = CircleLoss(0.25, 64)(embedding, indices_tuple=pairs)
    assert circle_loss(embedding, location, is_drone).item() == pytest.approx(expected.item(), rel=1e-8)


@pytest.mark.parametrize("layout", [(LOCATION, IS_DRONE), sampled(16, 4, 1)])
def test_proxy_anchor_equals_pytorch_metric_learning(layout: tuple[torch.Tensor, torch.Tensor]) -> None:
    location, _ = layout
    embedding = normal(len(location), 8)
    ours = ProxyAnchorLoss(20, 8).double()
    oracle = OracleProxyAnchor(20, 8, 0.1, 32).double()
    oracle.proxies.data.copy_(ours.proxies.data)
    assert ours(embedding, location).item() == pytest.approx(oracle(embedding, location).item(), rel=1e-10)


def test_info_nce_with_one_pair_per_location_is_torch_cross_entropy() -> None:
    location, is_drone = sampled(7, 1, 1)
    embedding = normal(len(location), 8)
    logits = F.normalize(embedding[is_drone]) @ F.normalize(embedding[~is_drone]).T / 0.07
    expected = sum(F.cross_entropy(x, torch.arange(7), label_smoothing=0.1) for x in (logits, logits.T)) / 2
    found = info_nce_loss(embedding, location, is_drone, torch.tensor(-math.log(0.07), dtype=torch.float64))
    assert found.item() == pytest.approx(torch.as_tensor(expected).item(), rel=1e-10)
