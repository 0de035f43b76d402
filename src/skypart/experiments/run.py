"""`skypart experiment`: print the plan, train what is missing, evaluate, compare, write tables and figures."""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from skypart.atomic import write_text
from skypart.datasets import open_dataset
from skypart.datasets.records import Dataset
from skypart.embedding import Embedder
from skypart.errors import SkyPartError
from skypart.evaluation.embedding import PreparedImages
from skypart.evaluation.protocol import check_splits
from skypart.evaluation.run import open_source
from skypart.experiments.measure import RowScores, load_scores, measure, save_scores
from skypart.experiments.plan import Plan, PresetPlan, RowPlan, RunPlan, WorldPlan, read_plan, recipe_file, slug
from skypart.experiments.wrappers import MODEL_WRAPPERS
from skypart.images.weather import RENDERING
from skypart.model.backbone import check_backbone
from skypart.model.cost import count_parameters
from skypart.model.embedder import load_torch
from skypart.model.heads import readout_names
from skypart.model.shared_trunk import SharedTrunkEmbedder, TrunkTokens
from skypart.progress import console as progress_console
from skypart.recipe_files import RECIPES
from skypart.training.distributed import Workers, start_workers, stop_workers
from skypart.training.loop import time_steps, train
from skypart.training.recipe import Recipe, load_recipe, read_toml
from skypart.training.setup import prepare
from skypart.worlds.make import make_world
from skypart.worlds.request import build_request

PLANS = RECIPES / "experiments"
"""The plans of a source checkout."""
TIMED_STEPS = 3


@dataclass(frozen=True)
class Options:
    """The options of `skypart experiment`. data: empty renders the preset's world. test: data of a transfer.

    backbones: replace the labels of the plan's axis `backbone`. seeds: instead of the preset's.
    """

    out: Path
    data: Path | None = None
    test: Path | None = None
    preset: str = "small"
    backbones: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    device: str = "auto"
    dry_run: bool = False
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One training: a run and a seed, with its complete recipe and folder."""

    run: RunPlan
    seed: int
    recipe: Recipe
    folder: Path

    @property
    def steps(self) -> int:
        """Optimiser steps, if the recipe fixes their number per epoch; else 0."""
        epochs = self.recipe.optimiser.stop_after or self.recipe.optimiser.epochs
        return self.recipe.batch.steps * epochs

    @property
    def model(self) -> Path:
        """The model to evaluate: the best by validation, or the last."""
        best = self.folder / "best.safetensors"
        return best if best.is_file() else self.folder / "model.safetensors"

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end with this recipe."""
        note = self.folder / "finished.json"
        try:
            stored = json.loads(note.read_text(encoding="utf-8"))
            return bool(_with_new_settings(stored) == _plain(self.recipe.to_dict()))
        except (OSError, ValueError, AttributeError):
            return False


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: scores of every row, a list over seeds each."""

    plan: Plan
    preset: str
    seeds: tuple[int, ...]
    dataset: Dataset
    rows: dict[str, list[RowScores]]
    about: dict[str, list[dict[str, Any]]]
    models: dict[str, Path]


def find_plan(name: str) -> Path:
    """The plan called `name`: a file, or one of recipes/experiments/."""
    path = Path(name)
    if path.suffix == ".toml":
        return path
    found = PLANS / f"{name}.toml"
    if not found.is_file():
        names = ", ".join(plan_names()) or "none here"
        raise SkyPartError(f"unknown experiment {name!r}; choose one of {names}, or pass a plan file (.toml)")
    return found


def plan_names() -> list[str]:
    """The comparisons of recipes/experiments/; the folder also holds recipes, which have no presets."""
    files = sorted(PLANS.glob("*.toml"))
    return [file.stem for file in files if "presets" in read_toml(file, "plan", "see recipes/experiments/")]


def run_experiment(name: str, options: Options) -> Comparison | None:
    """Run a comparison end to end; a second call resumes. None after a dry run."""
    plan_file = find_plan(name)
    plan = _with_backbones(read_plan(plan_file), options.backbones)
    preset = _preset(plan, options.preset, plan_file)
    seeds = options.seeds or preset.seeds
    if len(set(seeds)) < len(seeds):
        raise SkyPartError(f"seeds {', '.join(map(str, seeds))}: one is given twice; leave one out")
    data = options.data or _render(preset.world, options.out / "data" / "world", options.preset)
    dataset = open_dataset(data)
    test = dataset
    if plan.transfer:
        test = open_dataset(options.test or _render(preset.test_world, options.out / "data" / "test", options.preset))
    elif options.test is not None:
        raise SkyPartError(f"{plan.name}: --test is for comparisons that transfer; leave it out")
    check_splits(test)
    jobs = _jobs(plan, plan_file, preset, options, dataset, seeds)
    _check_data(plan, dataset, jobs)
    _check_readouts(plan.all_rows(options.preset), jobs)
    workers = start_workers(options.device)
    try:
        needed = _print_plan(plan, options, jobs, workers)
        if options.dry_run:
            return None
        _check_space(options.out, needed)
        write_text(options.out / "plan.json", plan.model_dump_json(indent=1) + "\n")
        for job in jobs:
            _train(job, jobs, workers)
    finally:
        stop_workers()
    return _evaluate(plan, preset, options, jobs, test, seeds)


def _preset(plan: Plan, name: str, source: Path) -> PresetPlan:
    if name not in plan.presets:
        raise SkyPartError(f"{source}: has no preset {name!r}; choose one of {', '.join(plan.presets)}")
    return plan.presets[name]


def _with_backbones(plan: Plan, names: Sequence[str]) -> Plan:
    """The plan with the backbones that the user named."""
    if not names:
        return plan
    if "backbone" not in plan.axes:
        raise SkyPartError(f"{plan.name}: compares no backbones; leave --backbone out")
    chosen = {Path(name).stem: (f'backbone.name="{name}"',) for name in names}
    if len(chosen) < len(names):
        raise SkyPartError(f"{plan.name}: two of the backbones have the same name; rename a file")
    return plan.model_copy(update={"axes": {**plan.axes, "backbone": chosen}})


def _render(world: WorldPlan | None, folder: Path, preset: str) -> Path:
    """Render the world of a preset; one that is there is kept."""
    if world is None:
        raise SkyPartError(f"preset {preset} renders no data of its own; pass --data FOLDER (and --test FOLDER)")
    request = build_request(
        None,
        styles=world.styles,
        locations=world.locations,
        seed=world.seed,
        like=world.like,
        image_size=world.image_size,
        views=world.views,
        spacing=world.spacing,
        maps=False,
    )
    make_world(folder, request)
    return folder


def _jobs(
    plan: Plan, plan_file: Path, preset: PresetPlan, options: Options, dataset: Dataset, seeds: Sequence[int]
) -> list[Job]:
    """All trainings with their recipes, checked before any work: heads, backbones, starts."""
    jobs: list[Job] = []
    folders = {run.name: slug(run.name) for run in plan.all_runs(options.preset)}
    for run in plan.all_runs(options.preset):
        file = recipe_file(plan_file, preset, run, dataset.kind)
        for seed in seeds:
            folder = options.out / "runs" / f"{folders[run.name]}-seed{seed}"
            recipe = load_recipe(
                file, [*preset.overrides, *run.overrides, *run.more.get(options.preset, ()), *options.overrides]
            )
            recipe = replace(
                recipe,
                data=replace(recipe.data, root=str(dataset.root), kind=dataset.kind),
                run=replace(recipe.run, out=str(folder), seed=seed, device=options.device),
            )
            if run.start:
                start = options.out / "runs" / f"{folders[run.start]}-seed{seed}" / "best.safetensors"
                recipe = replace(recipe, backbone=replace(recipe.backbone, start=str(start)))
            elif not recipe.backbone.start:
                _check_backbone(recipe.backbone.name, "--backbone NAME" if "backbone" in plan.axes else "")
            if recipe.loss.distill and recipe.loss.teacher and recipe.distill.teacher:
                check_backbone(recipe.distill.teacher)
            jobs.append(Job(run, seed, recipe, folder))
    return jobs


def _check_backbone(name: str, option: str) -> None:
    """Raise if a backbone cannot be had; the message says how to choose another one."""
    try:
        check_backbone(name)
    except SkyPartError as error:
        raise SkyPartError(f"{error}; another backbone: {option or '--set backbone.name=NAME'}") from error


def _check_data(plan: Plan, dataset: Dataset, jobs: Sequence[Job]) -> None:
    """Raise if the training data lack what the runs need: both views of several locations, and altitudes to compare."""
    views = {view: {r.location for r in dataset.train if r.view == view} for view in ("drone", "satellite")}
    for view, places in views.items():
        if not places:
            raise SkyPartError(
                f"{dataset.root}: has no {view} images to train on; see `skypart data check {dataset.root}`"
            )
    if len(views["drone"] & views["satellite"]) < 2:
        raise SkyPartError(f"{dataset.root}: fewer than two training locations have both views; add some")
    without = next((job.run.name for job in jobs if not job.recipe.loss.alt), None)
    has_altitudes = any(r.altitude is not None for r in dataset.train if r.view == "drone")
    if without is not None and any(job.recipe.loss.alt for job in jobs) and not has_altitudes:
        raise SkyPartError(
            f"{dataset.root}: has no altitudes, so that {plan.name} cannot compare {without!r} (no altitude loss) with "
            "the others; choose data with altitudes, or pass a plan without this run"
        )


def _check_readouts(rows: Sequence[RowPlan], jobs: Sequence[Job]) -> None:
    """Raise for a readout that the head of its run does not have."""
    for row in rows:
        job = next(each for each in jobs if each.run.name == row.run)
        names = readout_names(job.recipe.head)
        if row.readout and row.readout not in names:
            raise SkyPartError(
                f"row {row.name!r}: the head {job.recipe.head.kind} has no readout {row.readout!r}; "
                f"choose one of {', '.join(names)}"
            )


def _check_space(out: Path, needed: int) -> None:
    """Raise if the disk has not `needed` bytes left for the trainings; creates the folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out).free
    except OSError as error:
        raise SkyPartError(f"cannot write {out}: {error.strerror or error}; choose another folder (-o)") from error
    if free < needed:
        raise SkyPartError(
            f"{out}: the trainings need about {needed / 1e9:.1f} GB, but the disk has {free / 1e9:.1f} GB left; "
            "free disk space or choose another folder (-o)"
        )


def _print_plan(plan: Plan, options: Options, jobs: Sequence[Job], workers: Workers) -> int:
    """The trainings, their steps, and how long they take by a few timed steps of each kind.

    Returns the bytes on disk that they need, about.
    """
    if not workers.is_leader:
        return 0
    console = Console()
    console.print(f"[bold]{plan.title}[/]  preset {options.preset}, {len(jobs)} trainings", highlight=False)
    if stated := plan.presets[options.preset].stated:
        console.print(f"stated: {stated}", highlight=False)
    table = RichTable("run", "seed", "steps", "images per step", "head", "estimate", "state")
    trials: dict[str, Trial] = {}
    total, models, checkpoints = 0.0, 0, 0
    for job in jobs:
        state = "finished" if job.finished else "to train"
        estimate = ""
        if not job.finished and not job.run.start:
            if job.run.name not in trials:
                trials[job.run.name] = _try_steps(job.recipe, workers)
            trial = trials[job.run.name]
            models += 2 * 4 * trial.parameters  # the best and the last model, in float32
            checkpoints = max(checkpoints, (job.recipe.run.keep + 1) * 5 * 4 * trial.parameters)
            took = trial.seconds * max(job.steps, 1)
            total += took
            estimate = _duration(took)
        batch = job.recipe.batch
        images = batch.locations * (batch.drone + batch.satellite) * batch.accumulate
        table.add_row(
            job.run.name, str(job.seed), str(job.steps or "by data"), str(images), job.recipe.head.kind, estimate, state
        )
    console.print(table)
    takes = f"training takes about {_duration(total)} here" if total else "nothing to train"
    console.print(f"{takes}; evaluation is extra", highlight=False)
    return models + checkpoints


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


def _train(job: Job, jobs: Sequence[Job], workers: Workers) -> None:
    """Train a job to its end; resumes a stopped one."""
    if job.finished:
        return
    recipe = job.recipe
    if job.run.start:  # without validation there is no best model
        (before,) = [each for each in jobs if each.run.name == job.run.start and each.seed == job.seed]
        recipe = replace(recipe, backbone=replace(recipe.backbone, start=str(before.model)))
    progress_console.print(f"training {job.run.name}, seed {job.seed}", highlight=False, markup=False)
    result = train(prepare(recipe, workers))
    if not result.finished:
        raise KeyboardInterrupt
    if workers.is_leader:
        shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
        write_text(job.folder / "finished.json", json.dumps(job.recipe.to_dict()) + "\n")


def _with_new_settings(stored: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A stored recipe with the defaults of settings that did not exist yet, so that a finished run stays finished."""
    defaults = _plain(Recipe().to_dict())
    return {
        section: values if section == "head" else defaults.get(section, {}) | values
        for section, values in stored.items()
    }


def _plain(value: Any) -> Any:
    """Data as JSON returns it."""
    return json.loads(json.dumps(value))


def _evaluate(
    plan: Plan, preset: PresetPlan, options: Options, jobs: Sequence[Job], test: Dataset, seeds: Sequence[int]
) -> Comparison:
    """Scores of every row and seed; those that are there for the same model and data are kept."""
    rows: dict[str, list[RowScores]] = {}
    about: dict[str, list[dict[str, Any]]] = {}
    models: dict[str, Path] = {}
    tokens, prepared = TrunkTokens(2 << 30), PreparedImages(1 << 30)
    for row in plan.all_rows(options.preset):
        for seed in seeds:
            (job,) = [each for each in jobs if each.run.name == row.run and each.seed == seed]
            scores, facts = _row_scores(row, job, preset, options, test, tokens, prepared)
            rows.setdefault(row.name, []).append(scores)
            about.setdefault(row.name, []).append(facts)
            models.setdefault(row.name, job.model)
    return Comparison(plan, options.preset, tuple(seeds), test, rows, about, models)


def _row_scores(
    row: RowPlan,
    job: Job,
    preset: PresetPlan,
    options: Options,
    test: Dataset,
    tokens: TrunkTokens,
    prepared: PreparedImages,
) -> tuple[RowScores, dict[str, Any]]:
    """Scores of one row and seed, from the file or measured. tokens: of the blocks that the runs left frozen."""
    device = "cpu" if options.device == "auto" else options.device
    model = load_torch(job.model, device, readout=row.readout or None).model
    frozen = model.backbone_interface.depth - job.recipe.backbone.trainable_blocks
    embedder: Embedder = SharedTrunkEmbedder(model, device, frozen, tokens)
    if row.wrapper in MODEL_WRAPPERS:
        embedder = MODEL_WRAPPERS[row.wrapper](embedder)
    file = options.out / "scores" / f"{slug(row.name)}-seed{job.seed}.npz"
    key = {
        "model": embedder.digest,
        "data": str(test.root.resolve()),
        "weather": list(preset.weather),
        "wrapper": row.wrapper,
        "rendering": RENDERING,
    }
    if file.is_file() and (stored := load_scores(file)) is not None:
        scores, facts = stored
        if {name: facts.get(name) for name in key} == key:
            return scores, facts
    started = time.monotonic()
    source = replace(open_source(embedder, options.out / "cache"), prepared=prepared)
    with source.cache:
        scores = measure(source, test, preset.weather, row.wrapper)
    facts = {**key, "row": row.name, "seed": job.seed, "seconds": round(time.monotonic() - started, 1)}
    save_scores(file, scores, facts)
    return scores, facts
