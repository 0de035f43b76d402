"""Evaluation with shared tokens gives the embeddings that a whole forward pass gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from skypart.model.embedder import TorchEmbedder
from skypart.model.shared_trunk import SharedTrunkEmbedder, TrunkTokens
from skypart.model.skypart import SkyPart
from skypart.training.recipe import load_recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "experiments" / "small.toml"


def model(seed: int, *overrides: str) -> SkyPart:
    recipe = load_recipe(RECIPE, ["backbone.size=56", *overrides])
    made = SkyPart.from_backbone("untrained:vits14", recipe.head, seed)
    for name, parameter in made.named_parameters():  # different heads and last blocks, the same first ones
        if "blocks.9." in name or "head" in name:
            parameter.data += seed * 0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return made


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 3, 56, 56)).astype(np.float32)


def test_shared_tokens_give_the_same_embeddings_for_every_model(inputs: np.ndarray) -> None:
    tokens = TrunkTokens()
    for each in (model(0), model(0, "head.kind=gem", "head.layer=10"), model(0, "head.kind=cls")):
        whole = TorchEmbedder(each).embed_inputs(inputs)
        shared = SharedTrunkEmbedder(each, "cpu", 8, tokens)
        np.testing.assert_allclose(shared.embed_inputs(inputs), whole, atol=2e-6)
        np.testing.assert_allclose(shared.embed_inputs(inputs[::-1].copy()), whole[::-1], atol=2e-6)
    assert len(tokens) == len(inputs)  # the first eight blocks ran once per image


def test_models_with_other_frozen_weights_do_not_share(inputs: np.ndarray) -> None:
    tokens = TrunkTokens()
    first, second = model(0), model(0)
    with torch.no_grad():
        second.get_parameter("backbone.blocks.3.mlp.fc1.weight").mul_(1.5)
    SharedTrunkEmbedder(first, "cpu", 8, tokens).embed_inputs(inputs)
    shared = SharedTrunkEmbedder(second, "cpu", 8, tokens).embed_inputs(inputs)
    np.testing.assert_allclose(shared, TorchEmbedder(second).embed_inputs(inputs), atol=2e-6)
    assert len(tokens) == 2 * len(inputs)


def test_a_head_that_reads_a_frozen_block_runs_whole(inputs: np.ndarray) -> None:
    tokens = TrunkTokens()
    low = model(0, "head.patch_layer=6")
    shared = SharedTrunkEmbedder(low, "cpu", 8, tokens)
    np.testing.assert_array_equal(shared.embed_inputs(inputs), TorchEmbedder(low).embed_inputs(inputs))
    assert len(tokens) == 0


def test_the_limit_bounds_memory_but_not_the_answers(inputs: np.ndarray) -> None:
    tokens = TrunkTokens(limit=2 * 17 * 384 * 4)
    each = model(0)
    shared = SharedTrunkEmbedder(each, "cpu", 8, tokens)
    np.testing.assert_allclose(shared.embed_inputs(inputs), TorchEmbedder(each).embed_inputs(inputs), atol=2e-6)
    assert len(tokens) == 2
