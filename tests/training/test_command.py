"""`skypart train` as a process: killed, interrupted, resumed, and overfitting."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from skypart.cli import app
from skypart.datasets import open_dataset
from skypart.errors import SkyPartError
from skypart.model.embedder import load
from skypart.training import loop, run
from skypart.training.checkpoint import Progress, list_checkpoints, newest_checkpoint, read_facts
from skypart.training.data import TrainingImages
from skypart.training.overfit import overfit
from skypart.training.recipe import Recipe
from skypart.training.run import STOPPED, train_recipe
from skypart.training.setup import build_student, prepare
from skypart.training.validation import HoldOut, validate
from tests.training.fake_data import make_sues, swap_tiles
from tests.training.small_runs import ALONE, PREPROCESSING, small_recipe, write_recipe

FORK = multiprocessing.get_context("fork")
RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def sixty_steps(root: Path, out: Path) -> Recipe:
    """60 steps in 4 epochs with every loss on, a checkpoint every 10 steps."""
    recipe = small_recipe(root, out)
    return replace(
        recipe,
        data=replace(recipe.data, workers=1),
        batch=replace(recipe.batch, steps=15),
        optimiser=replace(recipe.optimiser, epochs=4),
        run=replace(recipe.run, checkpoint_every=10, log_every=10),
    )


def start(file: Path) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=train_recipe, args=(file, [], False))
    process.start()
    return process


def wait_for_step(out: Path, step: int, alive: multiprocessing.process.BaseProcess) -> None:
    while not any(int(path.name[5:13]) >= step for path in list_checkpoints(out / "checkpoints")):
        assert alive.is_alive(), "the run ended early"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(sues: Path, tmp_path: Path) -> None:
    straight = write_recipe(tmp_path / "a.toml", sixty_steps(sues, tmp_path / "a"))
    broken = write_recipe(tmp_path / "b.toml", sixty_steps(sues, tmp_path / "b"))
    whole = start(straight)
    killed = start(broken)
    wait_for_step(tmp_path / "b", 30, killed)
    os.kill(killed.pid or 0, signal.SIGKILL)
    killed.join()
    newest = newest_checkpoint(tmp_path / "b" / "checkpoints")
    assert newest is not None and 30 <= read_facts(newest)[0].step < 60
    again = start(broken)
    again.join()
    whole.join()
    assert (whole.exitcode, killed.exitcode, again.exitcode) == (0, -signal.SIGKILL, 0)
    ends = [tmp_path / name / "checkpoints" / "step-00000060.ckpt.safetensors" for name in "ab"]
    with safe_open(ends[0], "pt") as one, safe_open(ends[1], "pt") as other:
        assert set(one.keys()) == set(other.keys())
        kinds = {"student/", "average/", "optimiser/", "loss/log_variance", "rng/"}
        assert all(any(key.startswith(kind) for key in one.keys()) for kind in kinds)  # noqa: SIM118
        for key in one.keys():  # noqa: SIM118
            assert torch.equal(one.get_tensor(key), other.get_tensor(key)), key
    facts = [read_facts(path) for path in ends]
    assert facts[0][0] == facts[1][0]  # step, best and history


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_and_the_same_command_resumes(sues: Path, tmp_path: Path) -> None:
    recipe = sixty_steps(sues, tmp_path / "out")
    recipe = replace(recipe, run=replace(recipe.run, checkpoint_every=3))
    file = write_recipe(tmp_path / "recipe.toml", recipe)
    command = [sys.executable, "-m", "skypart.cli", "train", str(file), "data.workers=2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not list_checkpoints(tmp_path / "out" / "checkpoints"):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # like a terminal, also to the loading processes
    output, errors = process.communicate()
    assert process.returncode == STOPPED, errors
    assert "Traceback" not in errors
    newest = newest_checkpoint(tmp_path / "out" / "checkpoints")
    assert newest is not None
    step = read_facts(newest)[0].step
    assert 3 <= step < 60 and f"stopped at step {step}; start the same command again" in output
    assert not (tmp_path / "out" / "model.safetensors").exists()
    summary, code = train_recipe(file, [], False)
    assert "trained 60 steps" in summary and code == 0


def test_the_command_trains_and_prints_the_model_file(sues: Path, tmp_path: Path) -> None:
    file = write_recipe(tmp_path / "recipe.toml", small_recipe(sues, tmp_path / "out", teacher=False))
    done = CliRunner().invoke(app, ["train", str(file), "epochs=1", "batch.steps=2"])
    assert done.exit_code == 0, done.output
    assert "trained 2 steps" in done.output and "best by validation" in done.output
    image = next((sues / "satellite-view").rglob("*.png"))
    assert load(tmp_path / "out" / "model.safetensors").embed([image]).shape == (1, 48)
    assert load(tmp_path / "out" / "best.safetensors").size == 28


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["data.root="], "data.root"),
        (["data.root=/nowhere"], "/nowhere"),
        (["backbone.size=30"], "use 28"),
        (["batch.locations=64"], "batch.locations"),
        (["backbone.name=untrained:huge"], "untrained:huge"),
        (["backbone.trainable_blocks=9"], "trainable_blocks"),
        (["run.device=cuda"], "cuda"),
    ],
)
def test_user_errors_are_clear_messages(sues: Path, tmp_path: Path, overrides: list[str], word: str) -> None:
    if word == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    file = write_recipe(tmp_path / "recipe.toml", small_recipe(sues, tmp_path / "out", teacher=False))
    with pytest.raises(SkyPartError) as error:
        train_recipe(file, overrides, False)
    assert word in str(error.value)
    assert not (tmp_path / "out").exists()


def overfitting(root: Path, out: Path, rate: float = 1e-3) -> Recipe:
    """All blocks of the tiny backbone learn, because its random features are useless."""
    recipe = small_recipe(root, out, teacher=False)
    return replace(
        recipe,
        backbone=replace(recipe.backbone, trainable_blocks=4),
        optimiser=replace(recipe.optimiser, head_lr=rate, backbone_lr=1e-3),
    )


def before_training(recipe: Recipe, locations: int) -> float:
    """The untrained model's score on the pairs that `overfit` learns."""
    records = [r for r in open_dataset(Path(recipe.data.root)).train if int(r.location) <= locations]
    drone, tiles = ([r for r in records if r.view == view] for view in ("drone", "satellite"))
    images = TrainingImages(records, PREPROCESSING, recipe.augment, "", 0)
    return validate(build_student(recipe), HoldOut(records, drone, tiles), images, ALONE.device)["score"]


@pytest.mark.slow
def test_overfit_reaches_100_percent_through_the_command(tmp_path: Path) -> None:
    root = swap_tiles(make_sues(tmp_path / "data", locations=7, per_altitude=2))
    file = write_recipe(tmp_path / "recipe.toml", overfitting(root, tmp_path / "out", rate=3e-3))
    done = CliRunner().invoke(app, ["train", str(file), "--overfit"])
    assert done.exit_code == 0, done.output
    assert "R@1 100 % in both directions" in done.output


@pytest.mark.slow
def test_overfit_memorises_a_few_locations_and_never_resumes(tmp_path: Path) -> None:
    root = swap_tiles(make_sues(tmp_path / "data", locations=4, per_altitude=1))
    steps = []
    assert before_training(overfitting(root, tmp_path / "new"), 3) < 50.0
    for _ in range(2):
        result = overfit(overfitting(root, tmp_path / "out"), ALONE, locations=3)
        assert result.progress.best == 100.0 and result.finished
        assert result.progress.history[-1]["D2S R@1"] == result.progress.history[-1]["S2D R@1"] == 100.0
        steps.append(result.progress.step)
    assert steps[0] == steps[1] > 0
    header = newest_checkpoint(tmp_path / "out-overfit" / "checkpoints")
    assert header is not None and read_facts(header)[1]["data"]["locations"] == 3


def test_a_failed_overfit_is_an_error_with_a_remedy(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "validate", lambda *_: {"score": 40.0, "D2S AP": 40.0, "S2D AP": 40.0})
    recipe = overfitting(sues, tmp_path / "out")
    file = write_recipe(tmp_path / "recipe.toml", recipe)
    monkeypatch.setattr(run, "overfit", lambda *_: loop.train(prepare(recipe, ALONE)))  # ten steps instead of 400
    with pytest.raises(SkyPartError, match=r"only 40\.0 %.*skypart data check"):
        train_recipe(file, [], True)


def test_only_the_first_process_prints_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = loop.Result(tmp_path / "model.safetensors", None, Progress(step=7), 0.0, True)
    monkeypatch.setattr(run, "load_recipe", lambda *_: Recipe())
    monkeypatch.setattr(run, "prepare", lambda *_: None)
    monkeypatch.setattr(run, "train", lambda *_: result)
    for rank, expected in enumerate((f"trained 7 steps: {result.model}\n", "")):
        workers = replace(ALONE, rank=rank, world=2)
        monkeypatch.setattr(run, "start_workers", lambda *_, workers=workers: workers)
        done = CliRunner().invoke(app, ["train", "recipe.toml"])
        assert (done.exit_code, done.output) == (0, expected)
