"""Tent against a plain formula of the entropy and a plain step of SGD with numerical gradients."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model import SkyPart
from skypart.model.embedder import TorchEmbedder
from skypart.model.tent import TEMPERATURE, Tent, gallery_entropy
from tests.model.builders import TINY_HEAD, TINY_VIT, scrambled_vit

NORMS = (nn.LayerNorm, nn.modules.batchnorm._BatchNorm)


@pytest.fixture
def embedder() -> TorchEmbedder:
    model = SkyPart(scrambled_vit(TINY_VIT), TINY_HEAD).eval()
    model.preprocessing = Preprocessing(size=28)
    return TorchEmbedder(model)


def unit_rows(count: int, dim: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def plain_entropy(query: np.ndarray, gallery: np.ndarray) -> float:
    total = 0.0
    for row in query.astype(np.float64):
        weights = [math.exp(float(row @ other) / TEMPERATURE) for other in gallery.astype(np.float64)]
        for weight in weights:
            share = weight / sum(weights)
            total -= share * math.log(share)
    return total / len(query)


def test_entropy_follows_the_formula() -> None:
    query, gallery = unit_rows(4, 6, 0), unit_rows(5, 6, 1)
    found = gallery_entropy(torch.from_numpy(query), torch.from_numpy(gallery))
    assert float(found.mean()) == pytest.approx(plain_entropy(query, gallery), abs=1e-5)


def test_one_step_goes_down_the_numerical_gradient_of_the_norms_only(embedder: TorchEmbedder) -> None:
    gallery = unit_rows(5, embedder.dim, 1)
    inputs = np.random.default_rng(3).standard_normal((3, 3, 28, 28)).astype(np.float32)
    before = {name: tensor.clone() for name, tensor in embedder.model.state_dict().items()}
    unadapted = embedder.embed_inputs(inputs)
    rate = 0.01
    embedder.model.freeze(1)  # as after training; the norms of frozen blocks adapt as well
    tent = Tent(embedder, gallery, rate)
    np.testing.assert_allclose(tent.embed_inputs(inputs), unadapted, atol=1e-5)  # the first batch comes before its step
    for name, tensor in embedder.model.state_dict().items():
        assert torch.equal(tensor, before[name]), "the model itself stays"

    norms = {name for name, module in embedder.model.named_modules() if isinstance(module, NORMS)}
    changed = {name for name, p in tent.model.named_parameters() if not torch.equal(p, before_of(embedder, name))}
    assert "backbone.blocks.0.norm1.weight" in changed and {name.rpartition(".")[0] for name in changed} <= norms

    double = copy.deepcopy(embedder.model).double()
    for name in ("backbone.blocks.1.norm2.weight", "backbone.norm.bias"):
        parameter = dict(double.named_parameters())[name]
        entropies = []
        for shift in (1e-4, -1e-4):
            with torch.no_grad():
                parameter[5] += shift
                tokens = double.backbone_interface.finish(double.trunk(torch.from_numpy(inputs).double()), double.taps)
                vectors = double.head(tokens).embedding.numpy()
                parameter[5] -= shift
            entropies.append(plain_entropy(vectors, gallery))
        slope = (entropies[0] - entropies[1]) / 2e-4
        moved = float(dict(tent.model.named_parameters())[name].detach()[5] - before_of(embedder, name)[5])
        assert moved == pytest.approx(-rate * slope, rel=0.03, abs=2e-6)


def before_of(embedder: TorchEmbedder, name: str) -> torch.Tensor:
    return dict(embedder.model.named_parameters())[name].detach()


def test_entropy_falls_over_batches(embedder: TorchEmbedder) -> None:
    gallery = unit_rows(8, embedder.dim, 1)
    inputs = np.random.default_rng(3).standard_normal((4, 3, 28, 28)).astype(np.float32)
    tent = Tent(embedder, gallery, 0.01)
    entropies = [plain_entropy(tent.embed_inputs(inputs), gallery) for _ in range(8)]
    assert entropies[-1] < entropies[0]


def test_a_model_without_norms_is_refused(embedder: TorchEmbedder) -> None:
    for module in list(embedder.model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, NORMS):
                setattr(module, name, nn.Identity())
    with pytest.raises(SkyPartError, match="this model has none"):
        Tent(embedder, unit_rows(2, embedder.dim, 0))
