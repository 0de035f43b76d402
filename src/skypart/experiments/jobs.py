"""The trainings of a comparison, with their recipes, and what is checked before the first one starts."""

import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skypart.datasets.records import Dataset
from skypart.errors import SkyPartError
from skypart.experiments.plan import Plan, PresetPlan, RowPlan, RunPlan, recipe_file, slug
from skypart.model.backbone import check_backbone
from skypart.model.heads import readout_names
from skypart.training.recipe import Recipe, load_recipe
from skypart.training.resume import MAY_DIFFER


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
            return bool(_portable(_with_new_settings(stored)) == _portable(_plain(self.recipe.to_dict())))
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return False


def _with_new_settings(stored: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A stored recipe with the defaults of settings that did not exist yet, so that a finished run stays finished."""
    defaults = _plain(Recipe().to_dict())
    return {
        section: values if section == "head" else defaults.get(section, {}) | values
        for section, values in stored.items()
    }


def _portable(recipe: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A recipe without the settings that affect no result, so that a comparison may be moved and stays finished.

    Paths inside of the comparison's folder are relative to it; the data set's path is absolute.
    """
    folder = Path(recipe["run"]["out"]).parent.parent

    def inside(path: str) -> str:
        return f"<out>/{Path(path).relative_to(folder)}" if Path(path).is_relative_to(folder) else path

    kept = {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in MAY_DIFFER}
        for section, values in recipe.items()
    }
    root, start = inside(recipe["data"]["root"]), inside(recipe["backbone"]["start"])
    kept["data"]["root"] = root if root.startswith("<out>") else str(Path(root).resolve())
    kept["data"]["also"] = recipe["data"]["also"]
    kept["backbone"]["start"] = start
    return kept


def _plain(value: Any) -> Any:
    """Data as JSON returns it."""
    return json.loads(json.dumps(value))


def make_jobs(
    plan: Plan, plan_file: Path, preset: PresetPlan, options: Options, root: Path, kind: str, seeds: Sequence[int]
) -> list[Job]:
    """All trainings with their recipes, checked before any work: heads, backbones, starts.

    root, kind: of the training data, which may not be rendered yet.
    All runs of the first seed come first: a comparison that breaks off has whole seeds.
    """
    jobs: list[Job] = []
    runs = plan.all_runs(options.preset)
    for seed, run in itertools.product(seeds, runs):
        file = recipe_file(plan_file, preset, run, kind)
        folder = options.out / "runs" / f"{slug(run.name)}-seed{seed}"
        recipe = load_recipe(
            file, [*preset.overrides, *run.overrides, *run.more.get(options.preset, ()), *options.overrides]
        )
        recipe = replace(
            recipe,
            data=replace(recipe.data, root=str(root), kind=kind),
            run=replace(recipe.run, out=str(folder), seed=seed, device=options.device),
        )
        if run.start:
            start = options.out / "runs" / f"{slug(run.start)}-seed{seed}" / "best.safetensors"
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


def check_data(plan: Plan, dataset: Dataset, jobs: Sequence[Job]) -> None:
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


def check_readouts(rows: Sequence[RowPlan], jobs: Sequence[Job]) -> None:
    """Raise for a readout that the head of its run does not have."""
    for row in rows:
        job = next(each for each in jobs if each.run.name == row.run)
        names = readout_names(job.recipe.head)
        if row.readout and row.readout not in names:
            raise SkyPartError(
                f"row {row.name!r}: the head {job.recipe.head.kind} has no readout {row.readout!r}; "
                f"choose one of {', '.join(names)}"
            )


def check_space(out: Path, needed: int) -> None:
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
