from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from skypart.datasets import open_dataset
from skypart.datasets.sampler import index_locations
from skypart.errors import SkyPartError
from skypart.model.embedder import load
from skypart.model.storage import save_model
from skypart.training import hard_negatives as module
from skypart.training.hard_negatives import location_similarity
from skypart.training.recipe import build_recipe
from tests.training.small_runs import small_recipe, small_run

CPU = torch.device("cpu")


@pytest.fixture
def start(sues: Path, tmp_path: Path) -> str:
    """A model file of the small recipe."""
    save_model(small_run(sues, tmp_path / "first", teacher=False).student, tmp_path / "start.safetensors")
    return str(tmp_path / "start.safetensors")


def test_similarity_is_the_mean_of_both_directions_between_first_images(sues: Path, start: str, tmp_path: Path) -> None:
    records = list(open_dataset(sues).train)
    found = location_similarity(records, start, 28, tmp_path / "out", CPU)
    index, embedder = index_locations(records), load(start, size=28)
    drone = embedder.embed([records[images[0]].path for images in index.drone])
    tile = embedder.embed([records[images[0]].path for images in index.satellite])
    for a, b in ((0, 1), (3, 2), (4, 4)):
        assert found[a, b] == pytest.approx((drone[a] @ tile[b] + drone[b] @ tile[a]) / 2, abs=1e-5)
    assert np.array_equal(found, found.T)


def test_similarity_uses_the_precision_of_the_run(sues: Path, start: str, tmp_path: Path) -> None:
    records = list(open_dataset(sues).train)
    exact = location_similarity(records, start, 28, tmp_path / "single", CPU)
    found = location_similarity(records, start, 28, tmp_path / "half", CPU, torch.bfloat16)
    assert found.dtype == np.float32 and not np.array_equal(found, exact)
    np.testing.assert_allclose(found, exact, atol=0.02)


def test_similarity_is_computed_once_per_model_and_data(
    sues: Path, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = list(open_dataset(sues).train)
    first = location_similarity(records, start, 28, tmp_path, CPU)
    monkeypatch.setattr(module, "embed_paths", None)  # computing again would fail
    assert np.array_equal(location_similarity(records, start, 28, tmp_path, CPU), first)
    with pytest.raises(TypeError):
        location_similarity(records, start, 42, tmp_path, CPU)
    with pytest.raises(TypeError):
        location_similarity([r for r in records if r.location != records[0].location], start, 28, tmp_path, CPU)


def test_a_batch_contains_locations_that_the_start_model_confuses(sues: Path, start: str, tmp_path: Path) -> None:
    recipe = small_recipe(sues, tmp_path, teacher=False)
    run = small_run(
        sues,
        tmp_path,
        teacher=False,
        backbone=replace(recipe.backbone, start=start),
        batch=replace(recipe.batch, near=2, alike=True),
    )
    expected = location_similarity(run.split.train, start, 28, tmp_path, CPU)
    sampler = run.data.sampler
    assert sampler.similarity is not None and np.array_equal(sampler.similarity, expected)
    batch = sampler.epoch(0)[0]
    names = [run.split.train[draw.record].location for draw in batch[:: sampler.images_per_location]]
    first, second = (sampler.index.names.index(name) for name in names[:2])
    others = np.delete(expected[first], first)
    assert expected[first, second] == others.max()


@pytest.mark.parametrize("batch", [{"alike": True, "near": 4}, {"alike": True}])
def test_alike_needs_a_start_model_and_near_above_one(batch: dict[str, object]) -> None:
    backbone = {} if "near" in batch else {"start": "model.safetensors"}
    with pytest.raises(SkyPartError, match=r"batch\.alike needs"):
        build_recipe({"batch": batch, "backbone": backbone}, "recipe.toml")
