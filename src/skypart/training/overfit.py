"""`skypart train --overfit`: check in minutes, on any machine, that training can memorise a few locations."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from skypart.datasets import Record
from skypart.images.augment import NO_AUGMENTATION
from skypart.training.distributed import Workers, leader_first
from skypart.training.loop import Result, train
from skypart.training.recipe import Recipe
from skypart.training.resume import MODELS
from skypart.training.setup import Run, open_training_data, prepare
from skypart.training.validation import HoldOut

DRONES_PER_LOCATION = 8


def overfit(recipe: Recipe, workers: Workers, locations: int = 6) -> Result:
    """Train on `locations` locations without augmentation until R@1 on them is 100 % in both directions.

    The number of locations is rounded so that all processes get equal shares. The run succeeded if the result is
    `finished` with a best score of 100.
    """
    dataset = open_training_data(recipe)
    chosen = sorted({record.location for record in dataset.train})[: max(locations, workers.world)]
    chosen = chosen[: len(chosen) // workers.world * workers.world] or chosen
    records = [record for name in chosen for record in _select_images(dataset.train, name)]
    steps = 10
    small = replace(
        recipe,
        augment=NO_AUGMENTATION,
        data=replace(recipe.data, validation=0.0, weather="", shares=()),
        batch=replace(recipe.batch, locations=len(chosen), drone=min(4, recipe.batch.drone), steps=steps, accumulate=1),
        optimiser=replace(recipe.optimiser, epochs=40, stop_after=0, warmup_epochs=1.0),
        distill=replace(recipe.distill, teacher="", mar_ramp_epochs=5.0),
        run=replace(recipe.run, out=f"{recipe.run.out}-overfit", validate_every=1, keep=1),
    )
    with leader_first():  # never resume
        if workers.is_leader:
            shutil.rmtree(Path(small.run.out) / "checkpoints", ignore_errors=True)
            for name in MODELS:
                (Path(small.run.out) / name).unlink(missing_ok=True)
    run = _validate_on_training_pairs(prepare(small, workers, records))
    return train(run, done=lambda result: result["score"] >= 100.0)


def _select_images(records: Sequence[Record], name: str) -> list[Record]:
    """At most DRONES_PER_LOCATION drone images and all tiles of the location `name`."""
    images = [record for record in records if record.location == name]
    drone = [record for record in images if record.view == "drone"]
    step = max(1, len(drone) // DRONES_PER_LOCATION)
    return drone[::step][:DRONES_PER_LOCATION] + [record for record in images if record.view == "satellite"]


def _validate_on_training_pairs(run: Run) -> Run:
    """Let `run` validate on its own training pairs."""
    drone = [record for record in run.split.train if record.view == "drone"]
    satellite = [record for record in run.split.train if record.view == "satellite"]
    run.split = HoldOut(run.split.train, drone, satellite)
    return run
