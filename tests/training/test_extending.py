"""The worked examples of docs/extending.md: a head and a loss term, each one file and one registration."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import skypart
from skypart.errors import SkyPartError
from skypart.losses import geopart
from skypart.model import SkyPart, heads, load_model
from skypart.model.storage import read_header
from skypart.training.loop import train
from skypart.training.recipe import Recipe, load_recipe
from skypart.training.setup import prepare
from tests.model.builders import random_images
from tests.training.small_runs import ALONE, small_recipe, write_recipe

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture
def mean_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setitem(heads.HEADS, "mean", "mean_head:MeanHead")


def recipe_of(root: Path, out: Path, *overrides: str) -> Recipe:
    file = write_recipe(out.with_suffix(".toml"), small_recipe(root, out))
    return load_recipe(file, ["head.kind=mean", *overrides])


@pytest.mark.usefixtures("mean_head")
def test_a_head_is_one_file_and_one_line(sues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_of(sues, tmp_path / "run", "head.layer=3")
    assert recipe.to_dict()["head"] == {"kind": "mean", "embedding_dim": 48, "layer": 3}
    run = prepare(recipe, ALONE)
    output = " ".join(capsys.readouterr().err.split())
    assert "left out, since the head mean has no inputs for them: patch_nce, mar, diversity" in output
    terms = {"circle", "proxy_anchor", "info_nce", "uapa", "teacher", "ema", "altitude"}
    assert {term.name for term in run.loss.terms} == terms
    before = run.student.head.state_dict()["project.weight"].clone()
    result = train(run)
    assert result.finished and not torch.equal(run.student.head.state_dict()["project.weight"], before)

    assert json.loads(read_header(result.model)["head"]) == {"kind": "mean", "embedding_dim": 48, "layer": 3}
    model = load_model(result.model)
    assert model.head.settings == recipe.head and model.taps == (3,)
    images = random_images(2, 28, 28)
    with torch.no_grad():
        tokens = model.backbone(images, taps=(3,))[0]
        by_hand = model.head.project(tokens.patches.mean(1))  # type: ignore[operator]
        by_hand = by_hand / by_hand.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(model(images).embedding, by_hand)
    embedder = skypart.load(result.model)
    photo = np.full((40, 50, 3), 90, dtype=np.uint8)
    assert embedder.embed([photo]).shape == (1, 48) and not embedder.can_explain
    with pytest.raises(SkyPartError, match="no parts to show"):
        embedder.explain(photo)
    again = prepare(recipe, ALONE)
    assert train(again).progress.step == result.progress.step, "the same command resumes"


@pytest.mark.usefixtures("mean_head")
def test_settings_of_another_head_are_not_inherited_and_refused_if_set(sues: Path, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match=r"unknown key head\.prototypes"):
        recipe_of(sues, tmp_path / "run", "head.prototypes=4")
    file = tmp_path / "mine.toml"
    file.write_text('extends = "run.toml"\n[head]\nkind = "mean"\nlayer = 2\n')
    assert vars(load_recipe(file).head) == {"embedding_dim": 48, "layer": 2}
    file.write_text('extends = "run.toml"\n[head]\nkind = "mean"\npooled_parts = 2\n')
    with pytest.raises(SkyPartError, match=r"unknown key head\.pooled_parts"):
        load_recipe(file)


def test_an_unknown_head_is_an_error_that_lists_the_known_ones(sues: Path, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="unknown head 'mean'; choose one of skypart"):
        recipe_of(sues, tmp_path / "run")


def test_a_loss_term_is_one_file_and_one_line(sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from norm_loss import NormLoss

    monkeypatch.setattr(geopart, "TERMS", (*geopart.TERMS, NormLoss))
    run = prepare(small_recipe(sues, tmp_path, teacher=False), ALONE)
    assert run.loss.terms[-1].name == "norm" and run.loss.terms[-1].needs == ("part_pooled",)
    result = train(run)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert result.finished and all(record["term_norm"] > 0 for record in log if record["kind"] == "train")


def test_a_model_file_of_an_unknown_head_asks_for_a_newer_version(
    tiny_model: SkyPart, tmp_path: Path, mean_head: None, monkeypatch: pytest.MonkeyPatch, sues: Path
) -> None:
    model = prepare(recipe_of(sues, tmp_path / "run"), ALONE).student
    skypart.save(model, tmp_path / "mean.safetensors")
    monkeypatch.delitem(heads.HEADS, "mean")
    with pytest.raises(SkyPartError, match=r"mean\.safetensors: unknown head 'mean'; upgrade skypart"):
        skypart.load(tmp_path / "mean.safetensors")
