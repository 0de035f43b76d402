"""Every head learns on a tiny world with the command that a user gives: `head.kind=NAME`."""

import json
from pathlib import Path

import pytest

from skypart.model.heads import HEADS
from skypart.training.loop import train
from skypart.training.recipe import load_recipe
from skypart.training.setup import prepare
from tests.training.small_runs import ALONE, small_recipe, write_recipe

SMALL = {
    "skypart": [],
    "cls": [],
    "gem": ["head.embedding_dim=48"],
    "lpn": ["head.embedding_dim=48"],
    "fsra": ["head.embedding_dim=48"],
    "netvlad": ["head.embedding_dim=48", "head.clusters=4", "head.channels=16"],
    "salad": ["head.embedding_dim=48", "head.clusters=4", "head.channels=8", "head.scene_channels=16"],
    "boq": ["head.embedding_dim=48", "head.channels=24", "head.heads=4", "head.rows=2", "head.queries=6"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(HEADS))
def test_a_head_learns_on_the_tiny_world(kind: str, sues: Path, tmp_path: Path) -> None:
    file = write_recipe(tmp_path / "recipe.toml", small_recipe(sues, tmp_path / "run", teacher=False))
    recipe = load_recipe(
        file,
        [
            f"head.kind={kind}",
            *SMALL[kind],
            *("optimiser.epochs=12", "head_lr=0.005", "backbone_lr=0.002", "trainable_blocks=4", "data.validation=0"),
            *("loss.distill=false", "loss.part=false", "loss.alt=false", "loss.patch_nce=false", "loss.circle=false"),
            *("augment.crop=1", "augment.grey=0", "augment.blur=0"),
        ],
    )
    result = train(prepare(recipe, ALONE))
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [record["term_info_nce"] for record in log if record["kind"] == "train"]
    assert result.finished and len(losses) == 60
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    assert last < 0.7 * first, (first, last)
