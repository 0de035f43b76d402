"""Everything a run is made of, put together from its recipe."""

import datetime
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from skypart.model.embedder import checked_size, model_file
from skypart.model.skypart import SkyPart
from skypart.model.storage import load_model
from skypart.progress import console
from skypart.training.alike import likeness
from skypart.training.average import MovingAverage
from skypart.training.checkpoint import code_version
from skypart.training.data import TrainingData, TrainingImages, fingerprint
from skypart.training.distributed import Workers, leader_first
from skypart.training.journal import load_wandb
from skypart.training.optimiser import build_optimiser
from skypart.training.precision import precision_of
from skypart.training.recipe import DataRecipe, Recipe
from skypart.training.step import TrainingStep
from skypart.training.teacher import TeacherFeatures
from skypart.training.validation import HoldOut, hold_out


@dataclass
class Run:
    """The parts of a training run, ready to go."""

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
    start: dict[str, Any]  # provenance of the model it starts from; empty for a fresh head

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps an epoch."""
        return self.data.sampler.steps // self.recipe.batch.accumulate

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the whole schedule."""
        return self.steps_per_epoch * self.recipe.optimiser.epochs

    @property
    def last_step(self) -> int:
        """The step at which the run ends: that of its schedule, or before."""
        epochs = self.recipe.optimiser.stop_after or self.recipe.optimiser.epochs
        return min(self.total_steps, self.steps_per_epoch * epochs)

    @property
    def trained_recipe(self) -> Recipe:
        """The recipe with the head and the levelling that were trained: a model of `backbone.start` keeps its own."""
        backbone = replace(self.recipe.backbone, level=self.preprocessing.level)
        return replace(self.recipe, head=self.student.config, backbone=backbone)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What a checkpoint stores, by name."""
        modules: dict[str, nn.Module] = {"student": self.student, "loss": self.loss}
        if self.average is not None:
            modules["average"] = self.average.model
        return modules

    def provenance(self, progress: dict[str, Any]) -> dict[str, Any]:
        """How the student came to be, for its model file."""
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
            **{key: fact for key, fact in self.facts.items() if key != "recipe"},  # the model file has the trained one
        }


def prepare(recipe: Recipe, workers: Workers, records: Sequence[Record] | None = None) -> Run:
    """Open the data, build or load the model, losses, optimiser and teacher features.

    records: train on these instead of the data set's training records.
    """
    if recipe.run.wandb and workers.leads:
        load_wandb()  # told now, not after hours of teacher features
    torch.manual_seed(recipe.run.seed)
    dataset = open_training_data(recipe)
    folder = Path(recipe.run.out)
    if folder.exists() and not folder.is_dir():
        raise SkyPartError(f"{folder}: is a file, but a run needs a folder; choose another run.out")
    split = hold_out(
        dataset.train if records is None else records,
        recipe.data.validation,
        recipe.data.validation_drone,
        recipe.run.seed,
    )
    student = build_student(recipe)
    start = student.provenance
    student.to(workers.device)
    if workers.leads and student.config != recipe.head:
        asked, has = asdict(recipe.head), asdict(student.config)
        other = ", ".join(f"head.{key} = {has[key]}" for key in has if has[key] != asked[key])
        console.print(f"the head is that of {recipe.backbone.start}, not the recipe's: {other}")
    preprocessing = student.preprocessing
    data = _training_data(recipe, split, preprocessing, workers)
    teacher = None
    if recipe.loss.distill and recipe.loss.teacher and recipe.distill.teacher:
        with leader_first():
            teacher = TeacherFeatures(
                recipe.distill.teacher, recipe.distill.teacher_size, split.train, folder / "teacher", workers.device
            )
    torch.manual_seed(recipe.run.seed)  # again: the same start whether or not a teacher was built above
    loss = GeoPartLoss(
        recipe.loss if teacher is not None else replace(recipe.loss, teacher=False),
        locations=len(data.sampler.index.names),
        embedding_dim=student.config.embedding_dim,
        part_dim=student.config.part_dim,
        teacher_dim=teacher.dim if teacher is not None else student.config.embedding_dim,
        part_pooled_dim=student.config.pooled_parts * student.config.part_dim,
    ).to(workers.device)
    follows = recipe.loss.distill and recipe.loss.ema
    facts = {
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
    return Run(
        recipe=recipe,
        workers=workers,
        folder=folder,
        split=split,
        data=data,
        student=student,
        average=MovingAverage(student, recipe.distill.ema) if follows else None,
        teacher=teacher,
        loss=loss,
        optimiser=build_optimiser(student, loss, recipe.optimiser),
        step=TrainingStep(student, loss, precision_of(recipe, workers.device)),
        preprocessing=preprocessing,
        facts=facts,
        start=start,
    )


def open_training_data(recipe: Recipe) -> Dataset:
    """The data set of the recipe, of one or several folders, or a sentence about how to name one."""
    if not recipe.data.root:
        raise SkyPartError("the recipe names no data: add data.root=FOLDER to the command or the recipe")
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
    """A fresh head on the recipe's backbone, or the model it starts from, with frozen blocks and checkpointing set."""
    if recipe.backbone.start:
        student = load_model(model_file(recipe.backbone.start)).with_readout(recipe.head.readout)
    else:
        student = SkyPart.from_backbone(recipe.backbone.name, recipe.head, recipe.run.seed)
    student.preprocessing = replace(
        student.preprocessing,
        size=checked_size(student, recipe.backbone.size),
        level=recipe.backbone.level or student.preprocessing.level,
    )
    student.freeze(recipe.backbone.trainable_blocks)
    student.tokens_from.gradient_checkpointing = recipe.backbone.gradient_checkpointing
    return student.train()


def _training_data(recipe: Recipe, split: HoldOut, preprocessing: Preprocessing, workers: Workers) -> TrainingData:
    """Sampler and loader over the records that are trained on."""
    batch, seed = recipe.batch, recipe.run.seed
    drones = sum(record.view == "drone" for record in split.train)
    steps = batch.steps or math.ceil(drones / (batch.locations * batch.drone * batch.accumulate))
    alike = None
    if batch.alike:
        with leader_first():
            alike = likeness(
                split.train,
                recipe.backbone.start,
                recipe.backbone.size,
                Path(recipe.run.out),
                workers.device,
                precision_of(recipe, workers.device).still,
            )
    sampler = BalancedSampler(
        split.train,
        batch.locations,
        batch.drone,
        batch.satellite,
        steps * batch.accumulate,
        seed,
        batch.near,
        alike,
        _shares(recipe.data, split.train),
    )
    images = TrainingImages(
        split.train, preprocessing, recipe.augment, recipe.data.weather, seed, recipe.data.weather_share
    )
    return TrainingData(images, sampler, recipe.data.workers, workers)


def _shares(data: DataRecipe, records: Sequence[Record]) -> NDArray[np.float64] | None:
    """(n,) the share of each training location in label order: its folder's; None where all come equally often."""
    if not data.shares:
        return None
    of_folder = {str(number): share for number, share in enumerate(data.shares[1:], start=2)}
    names = index_locations(records).names
    return np.array([of_folder.get(name.partition("/")[0] if "/" in name else "", data.shares[0]) for name in names])
