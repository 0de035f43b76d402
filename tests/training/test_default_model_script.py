"""`make train-default`: the stages of the default model follow each other, and each finds its pictures."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from skypart.training.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("readout", ["full", "cls"])
def test_each_stage_starts_from_the_one_before_on_pictures_that_were_made(readout: str, tmp_path: Path) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    backbone = tmp_path / "shared" / "weights" / "dinov2_vits14_descendant.safetensors"
    for folder in (backbone.parent, tmp_path / "shared" / "data"):
        folder.mkdir(parents=True)
    backbone.touch()
    tools = {"SKYPART": "echo", "TORCHRUN": "echo", "PYTHON": "echo", "SHARED": "shared", "READOUT": readout}
    done = subprocess.run(
        ["sh", "recipes/default-model.sh"],
        cwd=tmp_path,
        env=os.environ | tools,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    made = {words[2] for words in commands if words[:2] == ["world", "make"]}
    trainings = [words[words.index("train") + 1 :] for words in commands if "train" in words]
    runs, before, earlier = set(), "", ""
    for recipe_file, *overrides in trainings:
        recipe = load_recipe(tmp_path / recipe_file, overrides)
        assert recipe.backbone.start == before, recipe_file
        assert {recipe.data.root, *recipe.data.also} <= made, recipe_file
        assert recipe.head.readout == readout
        earlier, before = before, f"{recipe.run.out}/model.safetensors"
        runs.add(recipe.run.out)
    assert len(runs) == len(trainings) == len(list((ROOT / "recipes").glob("default-model*.toml")))
    name = "default" if readout == "full" else readout
    assert ["-", earlier, before, f"runs/default-model/{name}.safetensors"] in commands
