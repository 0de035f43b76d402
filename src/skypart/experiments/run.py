"""`skypart experiment`: print the plan, train what is missing, evaluate, compare, write tables and figures."""

import itertools
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from skypart.atomic import write_text
from skypart.datasets import open_dataset
from skypart.datasets.records import Dataset
from skypart.datasets.registry import find_rendered_kind
from skypart.embedding import Embedder
from skypart.errors import SkyPartError
from skypart.evaluation.embedding import PreparedImages
from skypart.evaluation.protocol import check_splits
from skypart.evaluation.run import open_source
from skypart.experiments.estimate import print_estimate, print_runs, print_title
from skypart.experiments.jobs import Job, Options, check_data, check_readouts, check_space, make_jobs
from skypart.experiments.measure import RowScores, load_scores, measure, save_scores
from skypart.experiments.plan import Plan, PresetPlan, RowPlan, WorldPlan, read_plan, slug
from skypart.experiments.wrappers import MODEL_WRAPPERS
from skypart.images.weather import RENDERING
from skypart.model.embedder import load_torch
from skypart.model.shared_trunk import SharedTrunkEmbedder, TrunkTokens
from skypart.progress import console as progress_console
from skypart.recipe_files import RECIPES
from skypart.training.distributed import Workers, leader_first, start_workers, stop_workers
from skypart.training.loop import train
from skypart.training.recipe import read_toml
from skypart.training.setup import prepare
from skypart.worlds.make import make_world
from skypart.worlds.request import Request, build_request

PLANS = RECIPES / "experiments"
"""The plans of a source checkout."""


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
    names = plan_names()
    if name not in names:
        listed = ", ".join(names) or "none here"
        raise SkyPartError(f"unknown experiment {name!r}; choose one of {listed}, or pass a plan file (.toml)")
    return PLANS / f"{name}.toml"


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
    if options.test is not None and not plan.transfer:
        raise SkyPartError(f"{plan.name}: --test is for comparisons that transfer; leave it out")
    opened = _open_given(plan, options)
    worlds = _missing_worlds(plan, preset, options, list(opened))
    train_world = worlds.get("world")
    if train_world is None:
        root, kind = opened["world"].root, opened["world"].kind
    else:
        root, kind = _world_folder(options, "world"), find_rendered_kind(train_world.like)
    jobs = make_jobs(plan, plan_file, preset, options, root, kind, seeds)
    check_readouts(plan.all_rows(options.preset), jobs)
    workers = start_workers(options.device)
    try:
        if workers.is_leader:
            print_title(plan, options.preset, jobs)
        if not _render(worlds, opened, options):
            print_runs(jobs, {})
            Console().print("steps can be timed once the world is rendered, which a dry run does not do")
            return None
        dataset, test = opened["world"], opened["test" if plan.transfer else "world"]
        check_splits(test)
        check_data(plan, dataset, jobs)
        needed = print_estimate(jobs, workers)
        if options.dry_run:
            return None
        check_space(options.out, needed)
        write_text(options.out / "plan.json", plan.model_dump_json(indent=1) + "\n")
        _train_all(jobs, workers)
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


def _render(worlds: Mapping[str, Request], opened: dict[str, Dataset], options: Options) -> bool:
    """Render worlds and add them to `opened`; finished ones are kept. False in a dry run if one is not there."""
    for name, request in worlds.items():
        folder = _world_folder(options, name)
        if options.dry_run and not folder.is_dir():
            return False
        if not options.dry_run:
            with leader_first():
                make_world(folder, request)
        opened[name] = open_dataset(folder)
    return True


def _open_given(plan: Plan, options: Options) -> dict[str, Dataset]:
    """The data sets that the user named: `world` to train on, `test` to test a transfer on; checked."""
    given = {name: path for name, path in (("world", options.data), ("test", options.test)) if path is not None}
    opened = {name: open_dataset(path) for name, path in given.items()}
    tested = "test" if plan.transfer else "world"
    if tested in opened:
        check_splits(opened[tested])
    return opened


def _world_folder(options: Options, name: str) -> Path:
    """Where a comparison renders a world."""
    return options.out / "data" / name


def _missing_worlds(plan: Plan, preset: PresetPlan, options: Options, given: Sequence[str]) -> dict[str, Request]:
    """The worlds to render because no data set was given, with their options."""
    worlds = {"world": preset.world, "test": preset.test_world} if plan.transfer else {"world": preset.world}
    return {name: _request(world, options.preset) for name, world in worlds.items() if name not in given}


def _request(world: WorldPlan | None, preset: str) -> Request:
    """The options of a preset's world."""
    if world is None:
        raise SkyPartError(f"preset {preset} renders no data of its own; pass --data FOLDER (and --test FOLDER)")
    return build_request(
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


def _train_all(jobs: Sequence[Job], workers: Workers) -> None:
    """Train what is missing. On a CPU, runs of one seed share the tokens of frozen blocks: they see the same images."""
    for _, of_seed in itertools.groupby(jobs, lambda job: job.seed):
        tokens = TrunkTokens(1 << 30)
        for job in of_seed:
            _train(job, jobs, workers, tokens)


def _train(job: Job, jobs: Sequence[Job], workers: Workers, tokens: TrunkTokens) -> None:
    """Train a job to its end; resumes a stopped one. tokens: of the blocks that runs of this seed leave frozen."""
    if job.finished:
        return
    recipe = job.recipe
    if job.run.start:  # without validation there is no best model
        (before,) = [each for each in jobs if each.run.name == job.run.start and each.seed == job.seed]
        recipe = replace(recipe, backbone=replace(recipe.backbone, start=str(before.model)))
    progress_console.print(f"training {job.run.name}, seed {job.seed}", highlight=False, markup=False)
    run = prepare(recipe, workers)
    if workers.device.type == "cpu":  # a GPU has no memory to spare for them
        run.step.share_trunk(tokens)
    result = train(run)
    if not result.finished:
        raise KeyboardInterrupt
    if workers.is_leader:
        shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
        write_text(job.folder / "finished.json", json.dumps(job.recipe.to_dict()) + "\n")


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
