"""The plan of a comparison as it is printed: its trainings, and how long they take by a few timed steps."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from skypart.experiments.jobs import Job
from skypart.experiments.plan import Plan
from skypart.model.cost import count_parameters
from skypart.training.distributed import Workers
from skypart.training.loop import time_steps
from skypart.training.recipe import Recipe
from skypart.training.setup import prepare

TIMED_STEPS = 3


def print_title(plan: Plan, preset: str, jobs: Sequence[Job]) -> None:
    """What a comparison is, and how long it took where it was measured."""
    console = Console()
    trainings = "1 training" if len(jobs) == 1 else f"{len(jobs)} trainings"
    console.print(f"[bold]{plan.title}[/]  preset {preset}, {trainings}", highlight=False)
    if stated := plan.presets[preset].stated:
        console.print(f"stated: {stated}", highlight=False)


def print_estimate(jobs: Sequence[Job], workers: Workers) -> int:
    """Print the trainings and how long they take by a few timed steps of each kind.

    Returns the bytes on disk that they need, about.
    """
    if not workers.is_leader:
        return 0
    trials: dict[str, Trial] = {}
    total, models, checkpoints = 0.0, 0, 0
    for job in jobs:
        if job.finished or job.run.start:
            continue
        if job.run.name not in trials:
            trials[job.run.name] = _try_steps(job.recipe, workers)
        trial = trials[job.run.name]
        models += 2 * 4 * trial.parameters  # the best and the last model, in float32
        checkpoints = max(checkpoints, (job.recipe.run.keep + 1) * 5 * 4 * trial.parameters)
        total += trial.seconds * max(job.steps, 1)
    print_runs(jobs, trials)
    takes = f"training takes about {_duration(total)} here" if total else "nothing to train"
    Console().print(f"{takes}; evaluation is extra", highlight=False)
    return models + checkpoints


def print_runs(jobs: Sequence[Job], trials: Mapping[str, "Trial"]) -> None:
    """A table of the trainings. trials: by run, where steps were timed."""
    table = RichTable("run", "seed", "steps", "images per step", "head", "estimate", "state")
    for job in jobs:
        batch = job.recipe.batch
        images = batch.locations * (batch.drone + batch.satellite) * batch.accumulate
        timed = job.run.name in trials and not job.finished
        table.add_row(
            job.run.name,
            str(job.seed),
            str(job.steps or "by data"),
            str(images),
            job.recipe.head.kind,
            _duration(trials[job.run.name].seconds * max(job.steps, 1)) if timed else "",
            "finished" if job.finished else "to train",
        )
    Console().print(table)


class Trial(NamedTuple):
    """What a few steps tell about a run. seconds: per optimiser step. parameters: of the model."""

    seconds: float
    parameters: int


def _try_steps(recipe: Recipe, workers: Workers) -> Trial:
    """A few steps in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="skypart-timing-") as folder:
        short = replace(
            recipe,
            run=replace(recipe.run, out=folder),
            distill=replace(recipe.distill, teacher=""),
            batch=replace(recipe.batch, alike=False),
        )
        run = prepare(short, workers)
        return Trial(time_steps(run, TIMED_STEPS), count_parameters(run.student))


def _duration(seconds: float) -> str:
    """`45 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
