"""A comparison as data: which trainings, which rows of a table, which presets. One TOML file each."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skypart.errors import SkyPartError
from skypart.experiments.wrappers import WRAPPER_NAMES
from skypart.training.recipe import read_toml
from skypart.worlds.request import Request

MAX_RUNS = 1000
Profile = Literal["paper", "weatherprompt"]


class _Section(BaseModel):
    """A table of the TOML file; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunPlan(_Section):
    """One training. overrides: `section.key=value` over its recipe. start: the run whose model it starts from.

    recipe: if not the preset's; a file, or one per kind of data set. only: presets that include it; empty: all.
    more: further overrides in one preset.
    """

    name: Annotated[str, Field(min_length=1)]
    overrides: tuple[str, ...] = ()
    recipe: str | dict[str, str] = ""
    start: str = ""
    only: tuple[str, ...] = ()
    more: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class RowPlan(_Section):
    """One row of the tables: a run, read in one way.

    readout: an ablation of the same weights. wrapper: an inference-time departure from the single-pass protocol.
    block: rows of one block stand together. reference: the row that deltas are taken from; empty: the plan's.
    """

    name: Annotated[str, Field(min_length=1)]
    run: str
    readout: str = ""
    wrapper: str = ""
    block: str = ""
    reference: str = ""


class WorldPlan(_Section):
    """A rendered world for a preset that is given no data: the options of `skypart world make`."""

    like: str = Request.like
    locations: int = 200
    seed: int = 0
    image_size: int = 256
    views: int | None = None
    styles: str = ""
    spacing: float | None = None


class PresetPlan(_Section):
    """A budget. recipe: file, relative to the plan, or one per kind of data set. stated: how long it takes, and where.

    weather: profiles to evaluate under, besides clean. world: rendered when no data are given; test_world: what a
    transfer is tested on.
    """

    recipe: str | dict[str, str]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (42,)
    overrides: tuple[str, ...] = ()
    weather: tuple[Profile, ...] = ()
    stated: str = ""
    world: WorldPlan | None = None
    test_world: WorldPlan | None = None


class Plan(_Section):
    """A whole comparison.

    axes: settings of which every combination is a run, `axis -> label -> overrides`. reference: the row to compare
    with; empty: the first. lift: a label of the last axis; other labels are compared with it. quoted: whether the
    paper's rows stand beside ours. transfer: whether it is tested on other data. figures: kinds of figures to draw.
    paper: labels of the paper's tables that it corresponds to.
    """

    name: str
    title: str
    about: str = ""
    paper: tuple[str, ...] = ()
    presets: Annotated[dict[str, PresetPlan], Field(min_length=1)]
    runs: tuple[RunPlan, ...] = ()
    axes: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    rows: tuple[RowPlan, ...] = ()
    reference: str = ""
    lift: str = ""
    quoted: bool = False
    transfer: bool = False
    figures: tuple[Literal["weather", "pareto", "parts"], ...] = ()

    def all_runs(self, preset: str) -> list[RunPlan]:
        """The runs of a preset, those of the axes included."""
        combined: list[tuple[str, tuple[str, ...]]] = [("", ())] if self.axes else []
        for labels in self.axes.values():
            combined = [
                (", ".join(filter(None, (name, label))), (*overrides, *more))
                for name, overrides in combined
                for label, more in labels.items()
            ]
        made = [RunPlan(name=name, overrides=overrides) for name, overrides in combined]
        return [run for run in (*self.runs, *made) if not run.only or preset in run.only]

    def _lift_reference(self, name: str, runs: Sequence[str]) -> str:
        """The run that a run of the axes is compared with: the one with the label `lift` on the last axis."""
        before, comma, _ = name.rpartition(", ")
        other = f"{before}{comma}{self.lift}"
        return other if self.lift and other in runs and other != name else ""

    def all_rows(self, preset: str) -> list[RowPlan]:
        """The rows of a preset: those that the plan names, or one for each run."""
        runs = [run.name for run in self.all_runs(preset)]
        if not self.rows:
            return [RowPlan(name=name, run=name, reference=self._lift_reference(name, runs)) for name in runs]
        return [row for row in self.rows if row.run in runs]


def read_plan(path: Path) -> Plan:
    """Read a plan and check that it holds together; an error names the file and the key."""
    content = read_toml(path, "plan", "see recipes/experiments/")
    plan = build_plan({"name": path.stem, **content}, str(path))
    for named in (*(preset.recipe for preset in plan.presets.values()), *(run.recipe for run in plan.runs)):
        for recipe in [named] if isinstance(named, str) else named.values():
            if recipe and not _is_file(path.parent / recipe):
                raise SkyPartError(f"{path}: its recipe {recipe} does not exist; correct the path")
    return plan


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, or a folder without permission
        return False


def build_plan(content: Mapping[str, Any], source: str) -> Plan:
    """A plan from plain data."""
    try:
        plan = Plan.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise SkyPartError(f"{source}: {key}: {problem['msg']}; correct it") from error
    combinations = math.prod(len(labels) for labels in plan.axes.values())
    if combinations + len(plan.runs) > MAX_RUNS:
        raise SkyPartError(f"{source}: has {combinations + len(plan.runs):,} runs, more than {MAX_RUNS}; shorten axes")
    for preset in plan.presets:
        _check(plan, preset, source)
    return plan


def _check(plan: Plan, preset: str, source: str) -> None:
    """Raise for names that are used twice or do not exist."""
    runs, rows = plan.all_runs(preset), plan.all_rows(preset)
    if not runs:
        raise SkyPartError(f"{source}: preset {preset} has no runs; add [[runs]] or [axes]")
    for kind, names in (("runs", [run.name for run in runs]), ("rows", [row.name for row in rows])):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SkyPartError(f"{source}: two {kind} are called {twice!r}; rename one")
        slugs = [slug(name) for name in names]
        same = next((name for name, short in zip(names, slugs, strict=True) if slugs.count(short) > 1), None)
        if same is not None:
            raise SkyPartError(f"{source}: {same!r} and another of the {kind} share a folder; rename one")
    for run in plan.runs:
        other = next((name for name in (*run.only, *run.more) if name not in plan.presets), None)
        if other is not None:
            raise SkyPartError(
                f"{source}: run {run.name!r} names the preset {other!r}; choose one of {', '.join(plan.presets)}"
            )
    known = {run.name for run in runs}
    for run in runs:
        if run.start and run.start not in known:
            raise SkyPartError(f"{source}: run {run.name!r} starts from {run.start!r}, which is no run of this plan")
    every = {run.name for each in plan.presets for run in plan.all_runs(each)}
    for row in plan.rows:
        if row.run not in every:
            raise SkyPartError(f"{source}: row {row.name!r} reads {row.run!r}, which is no run of this plan")
        if row.wrapper and row.wrapper not in WRAPPER_NAMES:
            raise SkyPartError(
                f"{source}: row {row.name!r} has the unknown wrapper {row.wrapper!r}; "
                f"choose one of {', '.join(WRAPPER_NAMES)}"
            )
    named = {row.name for row in rows}
    for reference in {plan.reference, *(row.reference for row in rows)} - {""}:
        if reference not in named:
            raise SkyPartError(f"{source}: the reference {reference!r} is no row of preset {preset}")


def slug(name: str) -> str:
    """A folder name for a run or row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def recipe_file(plan_file: Path, preset: PresetPlan, run: RunPlan, kind: str) -> Path:
    """The recipe of a run for a kind of data set: its own, or the preset's."""
    recipe = run.recipe or preset.recipe
    if isinstance(recipe, str):
        return plan_file.parent / recipe
    if kind not in recipe:
        raise SkyPartError(f"{plan_file}: has no recipe for {kind} data, only for {', '.join(recipe)}")
    return plan_file.parent / recipe[kind]
