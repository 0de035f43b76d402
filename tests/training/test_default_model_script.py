"""`make train-default`: the order, start models and data of the stages of the default model."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from skypart.training.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]
ABOUT = "recipes/default-model/provenance.json"
STARTS = ("02-larger-images/model", "07-full-size/model", "mean-after-08", "mean-after-09")


def commands_of(tmp_path: Path, shared: bool = True, **settings: str) -> list[list[str]]:
    """The commands that the script runs, each a list of words. shared: whether the developers' copies exist."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    backbone = tmp_path / "shared" / "weights" / "dinov2_vits14_descendant.safetensors"
    if shared:
        for folder in (backbone.parent, tmp_path / "shared" / "data"):
            folder.mkdir(parents=True)
        backbone.touch()
    tools = {"SKYPART": "echo", "TORCHRUN": "echo", "PYTHON": "echo", "SHARED": "shared"}
    done = subprocess.run(
        ["sh", "recipes/default-model/train.sh"],
        cwd=tmp_path,
        env=os.environ | tools | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("readout", ["full", "cls"])
def test_each_stage_starts_from_the_previous_one_on_rendered_images(readout: str, tmp_path: Path) -> None:
    commands = commands_of(tmp_path, READOUT=readout)
    folder = "runs/default-model" if readout == "full" else "runs/default-model/cls"
    made: set[str] = set()
    runs: list[str] = []
    means: list[list[str]] = []
    before = earlier = ""
    for words in commands:
        if words[:2] == ["world", "make"]:
            made.add(words[2])
        if words[:2] == ["-m", "skypart.model.mean"]:
            assert words[2:4] == [earlier, before], "the mean is of the last two models"
            means.append(words[4:])
            earlier, before = before, words[words.index("-o") + 1]
        if "train" not in words:
            continue
        recipe_file, *overrides = words[words.index("train") + 1 :]
        recipe = load_recipe(tmp_path / recipe_file, overrides)
        assert recipe.backbone.start == before, recipe_file
        assert {recipe.data.root, *recipe.data.also} <= made, recipe_file
        assert vars(recipe.head)["readout"] == readout
        assert recipe.loss.part == recipe.loss.alt == (readout == "full")
        earlier, before = before, f"{recipe.run.out}/model.safetensors"
        runs.append(recipe.run.out)
    assert len(set(runs)) == len(runs) == len(list((ROOT / "recipes" / "default-model").glob("[0-9]*.toml"))) == 10
    name = "default" if readout == "full" else readout
    assert means == [
        ["--share", "0.3", "-o", f"{folder}/mean-after-08.safetensors"],
        ["--share", "0.5", "-o", f"{folder}/mean-after-09.safetensors"],
        ["--share", "0.5", "-o", f"runs/default-model/{name}.safetensors", "--about", ABOUT],
    ]


def test_selected_stages_render_only_the_images_they_need(tmp_path: Path) -> None:
    commands = commands_of(tmp_path, READOUT="cls", STAGES="01 02")
    recipes = [words[words.index("train") + 1] for words in commands if "train" in words]
    assert recipes == [f"recipes/default-model/{stage}.toml" for stage in ("01-small-images", "02-larger-images")]
    made = [words[2] for words in commands if words[:2] == ["world", "make"]]
    assert made == ["runs/default-model/data/real", "runs/default-model/data/procedural"]
    assert not any("skypart.model.mean" in words for words in commands)


def test_selected_later_stages_start_from_stages_of_the_same_readout(tmp_path: Path) -> None:
    commands = commands_of(tmp_path, READOUT="cls", STAGES="03 08 09 10")
    trainings = [words[words.index("train") + 1 :] for words in commands if "train" in words]
    starts = [load_recipe(tmp_path / file, overrides).backbone.start for file, *overrides in trainings]
    folder = "runs/default-model/cls"
    assert starts == [f"{folder}/{name}.safetensors" for name in STARTS]
    assert sum("skypart.model.mean" in words for words in commands) == 3


def test_data_and_backbone_are_downloaded_without_the_developers_copies(tmp_path: Path) -> None:
    commands = commands_of(tmp_path, shared=False)
    fetched = [words[2] for words in commands if words[:2] == ["data", "fetch"]]
    assert fetched == ["naip-california", "kentucky", "oam-mosaics"]
    assert ["new", "dinov2_vits14", "-o", "runs/default-model/untrained.safetensors"] in commands
    sources = {word for words in commands if words[:2] == ["world", "make"] for word in words if "/public/" in word}
    assert {Path(source).parent for source in sources} == {Path("runs/default-model/public")}
    trainings = [words for words in commands if "train" in words]
    assert trainings and all("backbone.name=dinov2_vits14" in words for words in trainings)
