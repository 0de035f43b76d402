"""A recipe: every choice of a training run, typed, from a TOML file and `key=value` overrides."""

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from skypart.errors import SkyPartError
from skypart.images.augment import Augmentation
from skypart.losses.config import LossConfig
from skypart.model.skypart import HeadConfig

T = TypeVar("T")


@dataclass(frozen=True)
class DataRecipe:
    """What to train on. validation: share of the TRAINING locations kept out to choose the best epoch by."""

    root: str = ""
    kind: str = ""  # recognised from the layout if empty
    also: tuple[str, ...] = ()  # further folders whose training locations are added
    shares: tuple[float, ...] = ()  # of each folder's locations, root first, that a round takes; empty: all
    validation: float = 0.1
    validation_drone: int = 8  # drone images a validation location, evenly over its list
    workers: int = 1
    weather: Literal["", "paper", "weatherprompt", "both"] = ""  # online on drone images, one of ten conditions each
    weather_share: float = 1.0  # of the drone images


@dataclass(frozen=True)
class BackboneRecipe:
    """Where the tokens come from."""

    name: str = "dinov2_vits14"
    size: int = 448  # input pixels, divisible by the patch
    trainable_blocks: int = 6  # the last ones; the others run without gradient
    gradient_checkpointing: bool = False
    start: str = ""  # a SkyPart model file to fine-tune, instead of a fresh head on `name`
    level: bool = False  # lift weak contrast, as of fog, in every picture; a model of `start` that does goes on so


@dataclass(frozen=True)
class BatchRecipe:
    """P x M sampling. An epoch has `steps` optimiser steps; 0: as many as see each drone image once on average."""

    locations: int = 16  # P
    drone: int = 4  # M drone images a location
    satellite: int = 1  # satellite images a location
    steps: int = 0
    accumulate: int = 1  # batches an optimiser step
    near: int = 1  # locations of neighbouring names that come into a batch together, as hard negatives
    alike: bool = False  # those that look most alike to the model of backbone.start come together instead


@dataclass(frozen=True)
class OptimiserRecipe:
    """AdamW with three speeds, warm-up and a cosine to `floor` of the peak."""

    epochs: int = 60
    stop_after: int = 0  # epochs after which to stop, before the schedule ends; a second stage goes on. 0: none
    head_lr: float = 3e-4
    backbone_lr: float = 3e-5
    proxy_factor: float = 10.0  # proxies learn at this multiple of head_lr
    weight_decay: float = 0.05  # not on norms, biases, prototypes, s_g
    warmup_epochs: float = 5.0
    floor: float = 0.01
    clip: float = 1.0  # largest gradient norm; 0: none
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: see training/precision.py


@dataclass(frozen=True)
class DistillRecipe:
    """Teacher and moving average."""

    teacher: str = "dinov2_vitb14"  # name or file; empty: none
    teacher_size: int = 224  # pixels, of the uncorrupted image
    ema: float = 0.996
    mar_ratio: float = 0.30
    mar_ramp_epochs: float = 10.0
    patches: int = 64  # patches an image for patch NCE


@dataclass(frozen=True)
class RunRecipe:
    """Where results go and how often."""

    out: str = "runs/skypart"
    seed: int = 42
    validate_every: int = 1  # epochs
    checkpoint_every: int = 0  # steps; 0: at the end of each epoch
    keep: int = 2  # newest checkpoints kept
    log_every: int = 10  # steps
    wandb: str = ""  # project name; empty: not used
    device: str = "auto"


@dataclass(frozen=True)
class Recipe:
    """The whole recipe; each section is a table of the TOML file."""

    data: DataRecipe = field(default_factory=DataRecipe)
    backbone: BackboneRecipe = field(default_factory=BackboneRecipe)
    head: HeadConfig = field(default_factory=HeadConfig)
    batch: BatchRecipe = field(default_factory=BatchRecipe)
    augment: Augmentation = field(default_factory=Augmentation)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserRecipe = field(default_factory=OptimiserRecipe)
    distill: DistillRecipe = field(default_factory=DistillRecipe)
    run: RunRecipe = field(default_factory=RunRecipe)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested data, for files."""
        return asdict(self)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe, the one it `extends` first, and apply `section.key=value` overrides."""
    merged = _read_extended(Path(path), ())
    for override in overrides:
        _override(merged, override)
    return build_recipe(merged, str(path))


def build_recipe(sections: Mapping[str, Any], source: str) -> Recipe:
    """Turn nested data into a Recipe; an unknown key is an error that names the nearest one."""
    recipe = _build(Recipe, sections, source, "")
    _check(recipe, source)
    return recipe


_RANGES = {
    "head.prototypes": (1, math.inf),
    "head.part_dim": (1, math.inf),
    "head.embedding_dim": (1, math.inf),
    "head.assignment_temperature": (1e-6, math.inf),
    "head.refine_hidden": (1, math.inf),
    "head.salience_hidden": (1, math.inf),
    "head.salience_temperature": (1e-6, math.inf),
    "head.graph_layers": (1, math.inf),
    "head.graph_heads": (1, math.inf),
    "head.gate_hidden": (1, math.inf),
    "optimiser.head_lr": (0, 1e3),
    "optimiser.backbone_lr": (0, 1e3),
    "optimiser.proxy_factor": (0, 1e6),
    "optimiser.weight_decay": (0, 1e3),
    "optimiser.warmup_epochs": (0, 1e6),
    "optimiser.floor": (0, 1),
    "optimiser.clip": (0, math.inf),
    "distill.ema": (0, 1),
    "distill.mar_ramp_epochs": (0, 1e6),
    "distill.patches": (1, math.inf),
    "distill.teacher_size": (1, math.inf),
    "augment.crop": (1e-3, 1),
    "augment.aspect": (1, 100),
    "augment.grey": (0, 1),
    "augment.blur": (0, 1),
    "augment.dusk": (0, 1),
    "augment.haze": (0, 1),
    "augment.coarse": (0, 1),
    "augment.jpeg": (0, 1),
    "augment.cast": (0, 10),
    "augment.tone": (0, 3),
    "augment.photo": (0, 1),
    "augment.night": (0, 1),
    "augment.sharp": (0, 1),
    "augment.mirror": (0, 1),
}
"""Keys whose values beyond these bounds, or NaN, train the wrong way or not at all."""


def _check(recipe: Recipe, source: str) -> None:
    """Refuse values that cannot work together."""
    positive = {
        "batch.locations": recipe.batch.locations - 1,  # one location has no negatives
        "batch.drone": recipe.batch.drone,
        "batch.satellite": recipe.batch.satellite,
        "batch.accumulate": recipe.batch.accumulate,
        "batch.near": recipe.batch.near,
        "optimiser.epochs": recipe.optimiser.epochs,
        "run.keep": recipe.run.keep,
        "run.validate_every": recipe.run.validate_every,
        "run.log_every": recipe.run.log_every,
        "backbone.size": recipe.backbone.size,
        "batch.steps": recipe.batch.steps + 1,
        "run.checkpoint_every": recipe.run.checkpoint_every + 1,
        "data.workers": recipe.data.workers + 1,
        "data.validation_drone": recipe.data.validation_drone,
        "optimiser.stop_after": recipe.optimiser.stop_after + 1,
        "run.seed": recipe.run.seed + 1,
    }
    for key, value in positive.items():
        if value < 1:
            raise SkyPartError(f"{source}: {key} is too small for training; raise it")
    for key, (least, most) in _RANGES.items():
        section, name = key.split(".")
        value = getattr(getattr(recipe, section), name)
        if not least <= value <= most:
            bounds = f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
            raise SkyPartError(f"{source}: {key} = {value!r} cannot be trained with; choose one {bounds}")
    if recipe.head.part_dim % recipe.head.graph_heads:
        raise SkyPartError(f"{source}: head.graph_heads must divide head.part_dim = {recipe.head.part_dim}")
    if not 0 <= recipe.distill.mar_ratio < 1:
        raise SkyPartError(
            f"{source}: distill.mar_ratio = {recipe.distill.mar_ratio!r} is the share of the patches that is hidden; "
            "choose one in [0, 1)"
        )
    _check_bins(recipe, source)
    if recipe.batch.alike and not (recipe.backbone.start and recipe.batch.near > 1):
        raise SkyPartError(f"{source}: batch.alike needs a trained model in backbone.start and batch.near above 1")
    if not 0 <= recipe.data.validation < 1:
        raise SkyPartError(f"{source}: data.validation is a share of the locations; choose one in [0, 1)")
    if recipe.data.shares and not (
        len(recipe.data.shares) == 1 + len(recipe.data.also) and all(0 < share <= 1 for share in recipe.data.shares)
    ):
        raise SkyPartError(
            f"{source}: data.shares names a share in (0, 1] for data.root and for each folder of data.also, "
            f"{1 + len(recipe.data.also)} in all"
        )
    if not 0 <= recipe.data.weather_share <= 1:
        raise SkyPartError(f"{source}: data.weather_share is a share of the drone images; choose one in [0, 1]")


def _check_bins(recipe: Recipe, source: str) -> None:
    """Refuse altitude bins that would get no image, or none where altitudes are learned."""
    bins = recipe.head.altitude_bins
    if not all(map(math.isfinite, bins)) or any(low >= high for low, high in pairwise(bins)):
        raise SkyPartError(
            f"{source}: head.altitude_bins = {list(bins)} must be increasing numbers of metres; sort them"
        )
    if recipe.loss.alt and not bins:
        raise SkyPartError(
            f"{source}: head.altitude_bins is empty, but altitudes are learned; name the data's altitudes in metres, "
            "or set loss.alt=false where they are unknown"
        )


def _read_extended(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The tables of a recipe over those it extends."""
    if path.resolve() in seen:
        raise SkyPartError(f"{path}: recipes extend each other in a circle; remove one `extends`")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SkyPartError(f"{path}: no such recipe; see the folder recipes/") from None
    except OSError as error:
        raise SkyPartError(f"{path}: cannot be read ({error.strerror}); name a recipe file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SkyPartError(f"{path}: not valid TOML ({error}); mend that line") from error
    parent = content.pop("extends", None)
    for section, values in content.items():
        if not isinstance(values, dict):
            raise SkyPartError(f"{path}: {section} stands outside of any [section]; put it under its own")
    if parent is None:
        return content
    merged = _read_extended(path.parent / str(parent), (*seen, path.resolve()))
    for section, values in content.items():
        merged[section] = merged.get(section, {}) | values
    return merged


def _override(sections: dict[str, Any], text: str) -> None:
    """Apply one `section.key=value`; the section may be left out where only one has the key."""
    key, equals, raw = text.partition("=")
    if not equals:
        raise SkyPartError(f"override {text!r} is not key=value; write for example optimiser.epochs=5")
    section, dot, name = key.strip().rpartition(".")
    if not dot:
        owners = [f.name for f in fields(Recipe) if name in _names(f.name)]
        if len(owners) != 1:
            choices = [f"{owner}.{name}" for owner in owners] or difflib.get_close_matches(name, _all_keys(), 3, 0.4)
            raise SkyPartError(f"override {text!r}: which key is {name!r}? Perhaps {', '.join(choices) or 'none'}")
        section = owners[0]
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    sections.setdefault(section, {})[name] = value


def _names(section: str) -> list[str]:
    """The keys of a section."""
    return [f.name for f in fields(get_type_hints(Recipe)[section])]


def _all_keys() -> list[str]:
    """Every `section.key`, and every key alone."""
    dotted = [f"{f.name}.{name}" for f in fields(Recipe) for name in _names(f.name)]
    return dotted + [key.rpartition(".")[2] for key in dotted]


def _build(cls: type[T], values: Mapping[str, Any], source: str, prefix: str) -> T:
    """Make a dataclass of plain data, field by field, with types checked and unknown keys refused."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.0)
            raise SkyPartError(f"{source}: unknown key {prefix}{key}; did you mean {prefix}{near[0]}?")
        if is_dataclass(hints[key]) and isinstance(value, Mapping):
            built[key] = _build(hints[key], value, source, f"{prefix}{key}.")
        else:
            built[key] = _typed(hints[key], value, source, f"{prefix}{key}")
    return cls(**built)


def _typed(hint: Any, value: Any, source: str, key: str) -> Any:
    """`value` as the type of its field: ints may stand for floats, lists for tuples, nothing else is bent."""
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list):
        value = tuple(float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value)
    try:
        return TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError as error:
        wanted = error.errors()[0]["msg"]
        raise SkyPartError(f"{source}: {key} = {value!r} does not fit ({wanted}); correct it") from error
