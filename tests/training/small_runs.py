"""Small recipes and runs shared by the tests of this folder."""

from dataclasses import replace
from pathlib import Path

import torch

from skypart.images.preprocess import Preprocessing
from skypart.losses.config import LossConfig
from skypart.model.heads.skypart.head import HeadConfig
from skypart.training.distributed import Workers
from skypart.training.recipe import (
    BackboneRecipe,
    BatchRecipe,
    DataRecipe,
    DistillRecipe,
    OptimiserRecipe,
    Recipe,
    RunRecipe,
)
from skypart.training.setup import Run, prepare

ALONE = Workers(0, 1, torch.device("cpu"))
PREPROCESSING = Preprocessing(size=28)
SMALL_HEAD = HeadConfig(
    prototypes=6, part_dim=32, embedding_dim=48, refine_hidden=40, salience_hidden=8, gate_hidden=16
)


def small_recipe(root: Path, out: Path, teacher: bool = True) -> Recipe:
    """Every loss on, a tiny backbone at 28 px, 4 locations x (2 drone + 1 satellite), 5 steps per epoch, 2 epochs;
    in float32 on every machine."""
    return Recipe(
        data=DataRecipe(root=str(root), workers=0, validation=0.25, validation_drone=4),
        backbone=BackboneRecipe(name="untrained:tiny", size=28, trainable_blocks=2),
        head=SMALL_HEAD,
        batch=BatchRecipe(locations=4, drone=2, steps=5),
        loss=LossConfig(mar_hidden=32, altitude_hidden=16),
        optimiser=OptimiserRecipe(epochs=2, warmup_epochs=0.4, precision="float32"),
        distill=DistillRecipe(
            teacher="untrained:tiny" if teacher else "", teacher_size=28, mar_ramp_epochs=1.0, patches=4
        ),
        run=RunRecipe(out=str(out), log_every=1, device="cpu"),
    )


def small_run(root: Path, out: Path, teacher: bool = True, **sections: object) -> Run:
    """A prepared run of the small recipe; `sections` replace whole sections of it."""
    return prepare(replace(small_recipe(root, out, teacher), **sections), ALONE)  # type: ignore[arg-type]


def write_recipe(path: Path, recipe: Recipe) -> Path:
    """The recipe as a TOML file."""
    lines = []
    for section, values in recipe.to_dict().items():
        lines.append(f"[{section}]")
        for key, value in values.items():
            text = str(value).lower() if isinstance(value, bool) else repr(value)
            lines.append(f"{key} = {list(value) if isinstance(value, tuple) else text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
