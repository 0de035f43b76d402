"""Recipes: all settings of a training run, typed, from a TOML file and `key=value` overrides."""

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from skypart.errors import SkyPartError
from skypart.images.augment import Augmentation
from skypart.losses.config import LossConfig
from skypart.model.heads import DEFAULT_KIND, HeadSettings, describe_settings, settings_class
from skypart.recipe_files import find_recipe, recipe_names

MAX_BYTES = 1 << 20
"""Larger files are no recipes."""
T = TypeVar("T")
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
LearningRate = Annotated[float, Field(ge=0, le=1e3)]
Epochs = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True)
class DataRecipe:
    """The training data. validation: share of the TRAINING locations held out to choose the best epoch."""

    root: str = ""
    kind: str = ""  # detected from the folder layout if empty
    also: tuple[str, ...] = ()  # more folders whose training locations are added
    shares: tuple[float, ...] = ()  # share of each folder's locations, root first, in one round; empty: all
    validation: ShareBelowOne = 0.1
    validation_drone: Count = 8  # drone images per validation location, evenly spaced
    workers: Natural = 1
    weather: Literal["", "paper", "weatherprompt", "both"] = ""  # rendered on drone images, one of ten conditions each
    weather_share: Share = 1.0  # share of the drone images that get weather


@dataclass(frozen=True)
class BackboneRecipe:
    """The backbone and which of its blocks learn."""

    name: str = "dinov2_vits14"
    size: Count = 448  # input pixels, divisible by the patch
    trainable_blocks: int = 6  # number of trainable blocks, counted from the end; the others are frozen
    gradient_checkpointing: bool = False
    start: str = ""  # a SkyPart model file to fine-tune, instead of a new head on `name`
    level: bool = False  # stretch weak contrast in every image; a `start` model that does so keeps doing it
    polar: bool = False  # warp satellite tiles to polar coordinates (dropped by the paper); a `start` model keeps it


@dataclass(frozen=True)
class BatchRecipe:
    """P x M sampling. steps: optimiser steps per epoch; 0: enough to see each drone image once on average."""

    locations: Annotated[int, Field(ge=2)] = 16  # P; one location has no negatives
    drone: Count = 4  # M drone images per location
    satellite: Count = 1  # satellite images per location
    steps: Natural = 0
    accumulate: Count = 1  # batches per optimiser step
    near: Count = 1  # hard negatives: so many locations with neighbouring names come into a batch together
    alike: bool = False  # choose as hard negatives the locations that the model of backbone.start confuses instead


@dataclass(frozen=True)
class OptimiserRecipe:
    """AdamW with three learning rates, warm-up and a cosine schedule down to `floor` of the peak."""

    epochs: Count = 60
    stop_after: Natural = 0  # stop after this many epochs, before the schedule ends; 0: run to the end
    head_lr: LearningRate = 3e-4
    backbone_lr: LearningRate = 3e-5
    proxy_factor: Annotated[float, Field(ge=0, le=1e6)] = 10.0  # proxies learn at this multiple of head_lr
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.05  # not on norms, biases, prototypes, s_g
    warmup_epochs: Epochs = 5.0
    floor: Share = 0.01
    cycles: Count = 1  # cosine cycles after warm-up; above 1: warm restarts
    clip: Annotated[float, Field(ge=0)] = 1.0  # largest gradient norm; 0: no clipping
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: see training/precision.py


@dataclass(frozen=True)
class DistillRecipe:
    """Teacher, moving average and masked reconstruction. ema: decay of the moving average."""

    teacher: str = "dinov2_vitb14"  # name or file; empty: no teacher
    teacher_size: Count = 224  # input pixels of the teacher, which sees the original image
    ema: Share = 0.996
    mar_ratio: ShareBelowOne = 0.30  # share of the patches that are masked
    mar_ramp_epochs: Epochs = 10.0
    patches: Count = 64  # patches per image for patch NCE


@dataclass(frozen=True)
class RunRecipe:
    """Where results go and how often they are written."""

    out: str = "runs/skypart"
    seed: Natural = 42
    validate_every: Count = 1  # epochs
    checkpoint_every: Natural = 0  # steps; 0: only at the end of each epoch
    keep: Count = 2  # number of checkpoints to keep
    log_every: Count = 10  # steps
    wandb: str = ""  # W&B project; empty: no W&B
    device: str = "auto"


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. Each section is a table of the TOML file. `head.kind` chooses the head and its settings."""

    data: DataRecipe = field(default_factory=DataRecipe)
    backbone: BackboneRecipe = field(default_factory=BackboneRecipe)
    head: HeadSettings = field(default_factory=lambda: settings_class(DEFAULT_KIND)())
    batch: BatchRecipe = field(default_factory=BatchRecipe)
    augment: Augmentation = field(default_factory=Augmentation)
    loss: LossConfig = field(default_factory=LossConfig)
    optimiser: OptimiserRecipe = field(default_factory=OptimiserRecipe)
    distill: DistillRecipe = field(default_factory=DistillRecipe)
    run: RunRecipe = field(default_factory=RunRecipe)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as nested dicts, for files."""
        return asdict(self) | {"head": describe_settings(self.head)}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe on top of the one it `extends`, then apply `section.key=value` overrides."""
    merged = _read_extended(find_recipe(path), ())
    chosen: dict[str, Any] = {}
    for override in overrides:
        _apply_override(chosen, override, merged)
    return build_recipe(_merge(merged, chosen), str(path))


def build_recipe(sections: Mapping[str, Any], source: str) -> Recipe:
    """Build a Recipe from nested dicts. Raises for an unknown key and names the closest known one."""
    recipe = _build(Recipe, sections, source, "")
    _check(recipe, source)
    return recipe


def _check(recipe: Recipe, source: str) -> None:
    """Raise for values that do not work together. Limits of single values are on their fields."""
    if recipe.loss.alt and getattr(recipe.head, "altitude_bins", None) == ():
        raise SkyPartError(
            f"{source}: head.altitude_bins is empty, but the altitude loss is on; list the data's altitudes in metres, "
            "or set loss.alt=false if they are unknown"
        )
    if recipe.batch.alike and not (recipe.backbone.start and recipe.batch.near > 1):
        raise SkyPartError(f"{source}: batch.alike needs a trained model in backbone.start and batch.near above 1")
    shares, folders = recipe.data.shares, 1 + len(recipe.data.also)
    if shares and not (len(shares) == folders and all(0 < share <= 1 for share in shares)):
        raise SkyPartError(
            f"{source}: data.shares needs one share in (0, 1] for data.root and for each folder of data.also, "
            f"{folders} in all"
        )


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the tables `above` into `below`. Settings of another kind of head are not inherited."""
    merged = {section: dict(values) for section, values in below.items()}
    kind = above.get("head", {}).get("kind")
    if kind is not None and "head" in merged and kind != merged["head"].get("kind", DEFAULT_KIND):
        known = {f.name for f in fields(settings_class(kind))}
        merged["head"] = {key: value for key, value in merged["head"].items() if key in known}
    for section, values in above.items():
        merged[section] = merged.get(section, {}) | values
    return merged


def read_toml(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    """The content of a TOML file. kind: what it should be, for error messages; remedy: if there is no such file."""
    try:
        if path.exists() and not path.is_dir() and (not path.is_file() or path.stat().st_size > MAX_BYTES):
            raise SkyPartError(f"{path}: no file of at most {MAX_BYTES:,} bytes; choose a {kind} file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SkyPartError(f"{path}: no such {kind}; {remedy}") from None
    except OSError as error:
        raise SkyPartError(f"{path}: cannot be read ({error.strerror}); choose a {kind} file") from None
    except (ValueError, RecursionError) as error:
        raise SkyPartError(f"{path}: not valid TOML ({error}); fix that line") from error


def _read_extended(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The tables of a recipe, merged into those of the recipe it extends."""
    if path.resolve() in seen:
        raise SkyPartError(f"{path}: recipes extend each other in a circle; remove one `extends`")
    content = read_toml(path, "recipe", f"give a file, or one of {', '.join(recipe_names())}")
    parent = content.pop("extends", None)
    if parent is not None and not (isinstance(parent, str) and parent.isprintable()):
        raise SkyPartError(f"{path}: extends must be the name of a recipe file; correct it")
    for section, values in content.items():
        if not isinstance(values, dict):
            raise SkyPartError(f"{path}: {section} is outside of any [section]; move it into its section")
    if parent is None:
        return content
    return _merge(_read_extended(path.parent / str(parent), (*seen, path.resolve())), content)


def _apply_override(sections: dict[str, Any], text: str, below: Mapping[str, Any]) -> None:
    """Add one `section.key=value` to `sections`. The section may be omitted if only one section has the key.

    below: the tables to override.
    """
    key, equals, raw = text.partition("=")
    if not equals:
        raise SkyPartError(f"override {text!r} is not key=value; write for example optimiser.epochs=5")
    section, dot, name = key.strip().rpartition(".")
    if not dot:
        kind = (below.get("head", {}) | sections.get("head", {})).get("kind", DEFAULT_KIND)
        names = {f.name: [each.name for each in fields(_section_class(f.name, kind))] for f in fields(Recipe)}
        owners = [owner for owner, keys in names.items() if name in keys]
        if len(owners) != 1:
            dotted = [f"{owner}.{key}" for owner, keys in names.items() for key in keys]
            every = dotted + [key.rpartition(".")[2] for key in dotted]
            choices = [f"{owner}.{name}" for owner in owners] or difflib.get_close_matches(name, every, 3, 0.4)
            raise SkyPartError(
                f"override {text!r}: unknown key {name!r}; did you mean {' or '.join(choices) or 'none'}?"
            )
        section = owners[0]
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    sections.setdefault(section, {})[name] = value


def _section_class(section: str, head_kind: str) -> Any:
    """The dataclass of a section."""
    return settings_class(head_kind) if section == "head" else get_type_hints(Recipe)[section]


def _build(cls: type[T], values: Mapping[str, Any], source: str, prefix: str) -> T:
    """Build a dataclass from nested dicts. Checks types and limits, rejects unknown keys."""
    hints = get_type_hints(cls, include_extras=True)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            choices = [*known, "kind"] if issubclass(cls, HeadSettings) else known  # kind chose the class
            near = difflib.get_close_matches(key, choices, 1, 0.0)
            raise SkyPartError(f"{source}: unknown key {prefix}{key}; did you mean {prefix}{near[0]}?")
        if is_dataclass(hints[key]) and isinstance(value, Mapping):
            section = dict(value)
            kind = str(section.pop("kind", DEFAULT_KIND)) if hints[key] is HeadSettings else ""
            section_class = settings_class(kind) if kind else hints[key]
            built[key] = _build(section_class, section, source, f"{prefix}{key}.")
        else:
            built[key] = _check_value(hints[key], value, source, f"{prefix}{key}")
    try:
        return cls(**built)
    except SkyPartError as error:  # values of one section that do not work together
        raise SkyPartError(f"{source}: {prefix}{error}") from error


def _check_value(hint: Any, value: Any, source: str, key: str) -> Any:
    """`value`, checked against the type of its field. Converts only ints to floats and lists to tuples."""
    plain = getattr(hint, "__origin__", hint)
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(value, list):
        value = tuple(float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value)
    try:
        return TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        limits = _limits(hint)
        if limits and problem["type"] in _LIMIT_ERRORS:
            raise SkyPartError(f"{source}: {key} = {value!r} is out of range; choose a value {limits}") from error
        raise SkyPartError(f"{source}: {key} = {value!r} is not valid ({problem['msg']}); correct it") from error


_LIMIT_ERRORS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"}
"""Pydantic's error types for values beyond a limit."""


def _limits(hint: Any) -> str:
    """The limits of an annotated field in words; empty if there are none."""
    found: dict[str, float] = {}
    for extra in getattr(hint, "__metadata__", ()):
        for limit in extra.metadata if isinstance(extra, FieldInfo) else ():
            found |= {name: getattr(limit, name) for name in ("ge", "gt", "le", "lt") if hasattr(limit, name)}
    low, high = found.get("ge", found.get("gt", -math.inf)), found.get("le", found.get("lt", math.inf))
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f"at least {low:g}" if "ge" in found else f"above {low:g}"
    if "lt" in found:
        return f"in [{low:g}, {high:g})"
    return f"between {low:g} and {high:g}"
