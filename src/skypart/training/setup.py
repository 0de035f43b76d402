"""Build all parts of a training run from its recipe."""

import datetime
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import AdamW

from skypart.datasets import Dataset, Record, open_dataset
from skypart.datasets.sampler import BalancedSampler, index_locations
from skypart.errors import SkyPartError
from skypart.evaluation.published import short_title
from skypart.images.contrast import CONTRAST_VERSION
from skypart.images.preprocess import Preprocessing
from skypart.images.weather import RENDERING
from skypart.losses.geopart import GeoPartLoss
from skypart.model.cost import parameters_by_module
from skypart.model.embedder import check_input_size, model_file
from skypart.model.heads import describe_settings
from skypart.model.skypart import SkyPart
from skypart.model.storage import load_model
from skypart.progress import console
from skypart.training.average import MovingAverage
from skypart.training.checkpoint import code_version
from skypart.training.data import TrainingData, TrainingImages, fingerprint
from skypart.training.distributed import Workers, leader_first
from skypart.training.hard_negatives import location_similarity
from skypart.training.journal import load_wandb
from skypart.training.optimiser import build_optimiser
from skypart.training.precision import choose_precision
from skypart.training.recipe import DataRecipe, Recipe
from skypart.training.step import TrainingStep
from skypart.training.teacher import TeacherFeatures
from skypart.training.validation import HoldOut, hold_out


@dataclass
class Run:
    """The parts of a training run, ready to train."""

    recipe: Recipe
    workers: Workers
    folder: Path
    split: HoldOut
    data: TrainingData
    student: SkyPart
    average: MovingAverage | None
    teacher: TeacherFeatures | None
    loss: GeoPartLoss
    optimiser: AdamW
    step: TrainingStep
    preprocessing: Preprocessing
    facts: dict[str, Any]
    start: dict[str, Any]  # provenance of the model the run starts from; empty for a new head

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps per epoch."""
        return self.data.sampler.steps // self.recipe.batch.accumulate

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the whole schedule."""
        return self.steps_per_epoch * self.recipe.optimiser.epochs

    @property
    def last_step(self) -> int:
        """The step at which the run ends: the end of its schedule or, with `stop_after`, before."""
        epochs = self.recipe.optimiser.stop_after or self.recipe.optimiser.epochs
        return min(self.total_steps, self.steps_per_epoch * epochs)

    @property
    def trained_recipe(self) -> Recipe:
        """The recipe with the head and preprocessing actually used: a `backbone.start` model keeps its own."""
        backbone = replace(self.recipe.backbone, level=self.preprocessing.level, polar=self.preprocessing.polar)
        return replace(self.recipe, head=self.student.config, backbone=backbone)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What a checkpoint stores, by name."""
        modules: dict[str, nn.Module] = {"student": self.student, "loss": self.loss}
        if self.average is not None:
            modules["average"] = self.average.model
        return modules

    def provenance(self, progress: dict[str, Any]) -> dict[str, Any]:
        """How the student was trained, for its model file."""
        data, backbone = self.facts["data"], self.recipe.backbone
        before: dict[str, Any] = {}
        if backbone.start:
            trained = [self.start["training"]] if "training" in self.start else []
            before = {"start": backbone.start, "before": [*trained, *self.start.get("before", [])]}
        return {
            "backbone": self.start.get("backbone", backbone.start) if backbone.start else backbone.name,
            **before,
            "training": f"{progress['step']} steps on {data['locations']} locations of {data['name']}",
            "training_only_parameters": parameters_by_module(self.loss),
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {self.workers.device.type}",
            "progress": progress,
            # the model file has a recipe of its own: the one that was trained
            **{key: fact for key, fact in self.facts.items() if key != "recipe"},
        }


def prepare(recipe: Recipe, workers: Workers, records: Sequence[Record] | None = None) -> Run:
    """Open the data; build or load the model, losses, optimiser and teacher features.

    records: train on these instead of the training records of the data set.
    """
    folder = _check_folder(recipe, workers)
    torch.manual_seed(recipe.run.seed)
    dataset = open_training_data(recipe)
    chosen = dataset.train if records is None else records
    split = hold_out(chosen, recipe.data.validation, recipe.data.validation_drone, recipe.run.seed)
    student = build_student(recipe)
    start = student.provenance
    student.to(workers.device)
    if workers.is_leader:
        _report_other_head(recipe, student)
    data = _build_data(recipe, split, student.preprocessing, workers)
    teacher = _build_teacher(recipe, split, folder, workers)
    average = MovingAverage(student, recipe.distill.ema) if recipe.loss.distill and recipe.loss.ema else None
    torch.manual_seed(recipe.run.seed)  # again, so that the initial loss weights do not depend on the teacher
    loss = _build_loss(recipe, student, len(data.sampler.index.names), teacher, average)
    if workers.is_leader:
        _report_left_out(loss, student)
    return Run(
        recipe=recipe,
        workers=workers,
        folder=folder,
        split=split,
        data=data,
        student=student,
        average=average,
        teacher=teacher,
        loss=loss.to(workers.device),
        optimiser=build_optimiser(student, loss, recipe.optimiser),
        step=TrainingStep(student, loss, choose_precision(recipe, workers.device)),
        preprocessing=student.preprocessing,
        facts=_facts(recipe, dataset, split, data),
        start=start,
    )


def _check_folder(recipe: Recipe, workers: Workers) -> Path:
    """The run folder. Raises now for errors that would otherwise surface only after hours of teacher features."""
    if recipe.run.wandb and workers.is_leader:
        load_wandb()
    folder = Path(recipe.run.out)
    if folder.exists() and not folder.is_dir():
        raise SkyPartError(f"{folder}: is a file, but a run needs a folder; choose another run.out")
    return folder


def _report_other_head(recipe: Recipe, student: SkyPart) -> None:
    """Print the settings in which the head of `backbone.start` differs from the recipe."""
    if student.config == recipe.head:
        return
    wanted, actual = describe_settings(recipe.head), describe_settings(student.config)
    different = ", ".join(f"head.{key} = {actual[key]}" for key in actual if actual[key] != wanted.get(key))
    console.print(f"the head comes from {recipe.backbone.start}, not from the recipe: {different}")


def _build_teacher(recipe: Recipe, split: HoldOut, folder: Path, workers: Workers) -> TeacherFeatures | None:
    """The teacher's features, if the recipe has a teacher."""
    if not (recipe.loss.distill and recipe.loss.teacher and recipe.distill.teacher):
        return None
    with leader_first():
        return TeacherFeatures(
            recipe.distill.teacher, recipe.distill.teacher_size, split.train, folder / "teacher", workers.device
        )


def _build_loss(
    recipe: Recipe, student: SkyPart, locations: int, teacher: TeacherFeatures | None, average: MovingAverage | None
) -> GeoPartLoss:
    """The training objective, without the terms whose inputs neither head, teacher nor moving average provides."""
    widths = dict(student.head.widths)
    available = {"embedding", "location", "is_drone", "altitude", *student.head.loss_inputs}
    if teacher is not None:
        widths["teacher"] = teacher.dim
        available.add("teacher")
    if average is not None:
        available.add("ema_embedding")
    return GeoPartLoss(recipe.loss, locations, widths, available)


def _report_left_out(loss: GeoPartLoss, student: SkyPart) -> None:
    """Print which loss terms of the recipe are left out because the head does not provide their inputs."""
    expected = {"teacher", "ema"}  # the recipe itself has no teacher or moving average
    terms = [name for name in loss.left_out if name not in expected]
    if terms:
        console.print(f"left out, since the head {student.config.kind} has no inputs for them: {', '.join(terms)}")


def _facts(recipe: Recipe, dataset: Dataset, split: HoldOut, data: TrainingData) -> dict[str, Any]:
    """What checkpoints and model files record about a run."""
    return {
        "recipe": recipe.to_dict(),
        "code": code_version(),
        "weather": RENDERING,
        "level": CONTRAST_VERSION,
        "data": {
            "name": dataset.name,
            "kind": dataset.kind,
            "fingerprint": fingerprint(split.train),
            "locations": len(data.sampler.index.names),
            "images": len(split.train),
        },
    }


def open_training_data(recipe: Recipe) -> Dataset:
    """The data set of the recipe, from one or several folders. Raises if the recipe has none."""
    if not recipe.data.root:
        raise SkyPartError("the recipe has no data; add data.root=FOLDER to the command or the recipe")
    first = open_dataset(Path(recipe.data.root), recipe.data.kind or None)
    if not recipe.data.also:
        return replace(first, name=short_title(first))
    train, titles = list(first.train), [short_title(first)]
    for number, folder in enumerate(recipe.data.also, start=2):
        more = open_dataset(Path(folder))
        train += [replace(record, location=f"{number}/{record.location}") for record in more.train]
        titles.append(short_title(more))
    return replace(first, name=", ".join(titles), train=train)


def build_student(recipe: Recipe) -> SkyPart:
    """A new head on the recipe's backbone, or its start model. Sets frozen blocks and gradient checkpointing."""
    if recipe.backbone.start:
        student = load_model(model_file(recipe.backbone.start))
        student.head.adopt(recipe.head)
    else:
        student = SkyPart.from_backbone(recipe.backbone.name, recipe.head, recipe.run.seed)
    student.preprocessing = replace(
        student.preprocessing,
        size=check_input_size(student, recipe.backbone.size),
        level=recipe.backbone.level or student.preprocessing.level,
        polar=recipe.backbone.polar or student.preprocessing.polar,
    )
    student.freeze(recipe.backbone.trainable_blocks)
    student.backbone_interface.gradient_checkpointing = recipe.backbone.gradient_checkpointing
    return student.train()


def _build_data(recipe: Recipe, split: HoldOut, preprocessing: Preprocessing, workers: Workers) -> TrainingData:
    """The sampler and loader over the training records."""
    batch, seed = recipe.batch, recipe.run.seed
    drones = sum(record.view == "drone" for record in split.train)
    steps = batch.steps or math.ceil(drones / (batch.locations * batch.drone * batch.accumulate))
    similarity = None
    if batch.alike:
        with leader_first():
            similarity = location_similarity(
                split.train,
                recipe.backbone.start,
                recipe.backbone.size,
                Path(recipe.run.out),
                workers.device,
                choose_precision(recipe, workers.device).frozen,
            )
    sampler = BalancedSampler(
        split.train,
        batch.locations,
        batch.drone,
        batch.satellite,
        steps * batch.accumulate,
        seed,
        batch.near,
        similarity,
        _location_shares(recipe.data, split.train),
    )
    images = TrainingImages(
        split.train, preprocessing, recipe.augment, recipe.data.weather, seed, recipe.data.weather_share
    )
    return TrainingData(images, sampler, recipe.data.workers, workers)


def _location_shares(data: DataRecipe, records: Sequence[Record]) -> NDArray[np.float64] | None:
    """The share (n,) of each training location in label order, as set for its folder; None if all are equal."""
    if not data.shares:
        return None
    by_folder = {str(number): share for number, share in enumerate(data.shares[1:], start=2)}
    names = index_locations(records).names
    return np.array([by_folder.get(name.partition("/")[0] if "/" in name else "", data.shares[0]) for name in names])
