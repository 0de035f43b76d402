"""Model files: safetensors with the head, backbone, preprocessing, recipe and provenance in the header."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import build_backbone, describe_backbone
from skypart.model.heads import DEFAULT_KIND, HEADS, describe_settings, read_settings, settings_class
from skypart.model.skypart import SkyPart
from skypart.model.vit import check_shape
from skypart.model.weights_files import check_finite, check_keys, load_strictly, read_state
from skypart.version import __version__

FORMAT_VERSION = 2
MAX_INPUT_SIZE = 8_192
"""Edge of a model input, pixels."""
MAX_LAYERS, MAX_COUNT = 256, 1 << 20
"""Of the settings of a head."""
SECTIONS: dict[str, dict[str, type]] = {
    "head": {},
    "backbone": {},
    "preprocessing": {"size": int, "interpolation": str},
    "recipe": {},
    "provenance": {},
}
"""The JSON sections of a header, and the settings that each must contain."""
BACKBONE_SETTINGS: dict[str, dict[str, type]] = {"vit": {"grid": list}, "transformers": {"config": dict}}
"""The settings that each kind of backbone must contain."""
CARD_TEXTS = ("training", "before", "results", "licence_chain")
"""The entries of a provenance that the model card shows unchanged."""


def save_model(model: SkyPart, path: str | Path, dtype: Literal["float32", "float16"] = "float32") -> None:
    """Write `model` to `path` (.safetensors), atomically. float16 halves the file; statistics stay in float32."""
    target = Path(path)
    if target.suffix != ".safetensors":
        raise SkyPartError(f"{target}: a model file must end in .safetensors; rename it")
    if dtype not in ("float32", "float16"):
        raise SkyPartError(f"{target}: models cannot be saved in {dtype}; choose float32 or float16")
    narrow = torch.float16 if dtype == "float16" else torch.float32
    state = {
        key: (tensor.to(narrow) if tensor.is_floating_point() and tensor.ndim > 1 else tensor).cpu().contiguous()
        for key, tensor in model.state_dict().items()
    }
    metadata = {
        "format": "skypart",
        "format_version": str(FORMAT_VERSION),
        "skypart_version": __version__,
        "head": json.dumps(describe_settings(model.config)),
        "backbone": json.dumps(describe_backbone(model.backbone)),
        "preprocessing": json.dumps(model.preprocessing.describe()),
        "recipe": json.dumps(model.recipe),
        "provenance": json.dumps(model.provenance),
    }
    with atomic_path(target) as temporary:
        try:
            save_file(state, temporary, metadata=metadata)
        except SafetensorError as error:
            raise SkyPartError(f"cannot write {target}: {error}; free disk space or choose another folder") from error


def read_header(path: Path) -> dict[str, str]:
    """The metadata of any safetensors file; reads no weights."""
    if not path.is_file():
        raise SkyPartError(f"{path}: no such model file; check the path")
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise SkyPartError(f"{path}: not a readable safetensors file ({error}); download or save it again") from error


def read_metadata(path: Path) -> dict[str, Any]:
    """The header of a model file with its JSON fields parsed. Raises if it is not a SkyPart model."""
    header = read_header(path)
    if header.get("format") != "skypart":
        raise SkyPartError(
            f"{path}: contains weights but not a SkyPart model (perhaps only a backbone); "
            "build a model from it with `skypart new` or `skypart train`"
        )
    try:
        version = _check_type(int, json.loads(header["format_version"]), "format_version")
        if version > FORMAT_VERSION:
            raise SkyPartError(f"{path}: model format {version} is newer than {FORMAT_VERSION}; upgrade skypart")
        found: dict[str, Any] = header | {"format_version": version, "skypart_version": header["skypart_version"]}
        for section, settings in SECTIONS.items():
            found[section] = _check_settings(json.loads(header[section]), section, settings)
        _check_settings(found["backbone"], "backbone", BACKBONE_SETTINGS.get(found["backbone"].get("kind", "vit"), {}))
        if found["head"].get("kind", DEFAULT_KIND) == DEFAULT_KIND:
            _check_settings(found["head"], "head", {"altitude_bins": list})
        found["head"] = {k: tuple(value) if isinstance(value, list) else value for k, value in found["head"].items()}
    except KeyError as error:
        raise SkyPartError(f"{path}: the model's header is damaged (no {error}); download or save it again") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise SkyPartError(f"{path}: the model's header is damaged ({error}); download or save it again") from error
    return found


def _check_settings(content: Any, section: str, wanted: dict[str, type]) -> Any:
    """Return `content`. Raises KeyError or TypeError if it is not a dict with the `wanted` settings."""
    _check_type(dict, content, section)
    for name, kind in wanted.items():
        _check_type(kind, content[name], f"{name} of {section}")
    return content


def _check_type(kind: type, value: Any, name: str) -> Any:
    """Return `value`. Raises TypeError if its type is not exactly `kind` (a bool is not an int)."""
    if type(value) is not kind:
        raise TypeError(f"{name} is {value!r}")
    return value


def load_model(path: str | Path) -> SkyPart:
    """Read a model file. The model is in evaluation mode, in float32, on the CPU."""
    file = Path(path)
    header = read_metadata(file)
    kind = header["head"].get("kind", DEFAULT_KIND)
    if kind not in HEADS:
        raise SkyPartError(f"{file}: unknown head {kind!r}; upgrade skypart")
    for section, settings in (("head", settings_class(kind)), ("preprocessing", Preprocessing)):
        known = {field.name for field in fields(settings)} | ({"kind"} if section == "head" else set())
        if unknown := set(header[section]) - known:
            raise SkyPartError(f"{file}: unknown {section} settings {', '.join(sorted(unknown))}; upgrade skypart")
    size = header["preprocessing"]["size"]
    if not 1 <= size <= MAX_INPUT_SIZE:
        raise SkyPartError(f"{file}: the model's header is damaged (size is {size}); download or save it again")
    try:
        preprocessing = Preprocessing(**header["preprocessing"])
    except (TypeError, SkyPartError) as error:
        raise SkyPartError(f"{file}: the model's header is damaged ({error}); download or save it again") from error
    state = {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in read_state(file).items()}
    model = _build(file, header, state)
    load_strictly(model, state, str(file))
    check_finite(state, str(file))
    model.preprocessing = preprocessing
    model.recipe = header["recipe"]
    model.provenance = header["provenance"]
    return model.eval()


def _build(file: Path, header: dict[str, Any], state: dict[str, torch.Tensor]) -> SkyPart:
    """An untrained model as `header` describes it. Memory is taken only if the tensors of the file have its shapes."""
    try:
        settings = TypeAdapter(settings_class(header["head"].get("kind", DEFAULT_KIND))).validate_python(
            {key: value for key, value in header["head"].items() if key != "kind"}, strict=False
        )
        for name, value in asdict(settings).items():
            if isinstance(value, int) and value > (MAX_LAYERS if name.endswith("layers") else MAX_COUNT):
                raise ValueError(f"{name} of head is {value}")
        if header["backbone"].get("kind", "vit") == "vit":
            check_shape(header["backbone"])
            with torch.device("meta"):
                check_keys(SkyPart(build_backbone(header["backbone"]), settings), state, str(file))
        model = SkyPart(build_backbone(header["backbone"]), read_settings(header["head"]))
        if not all(1 <= tap <= model.backbone_interface.depth for tap in model.taps):
            raise ValueError(f"the head reads the blocks {model.taps} of {model.backbone_interface.depth}")
        return model
    except SkyPartError as error:
        if str(file) in str(error):
            raise
        raise SkyPartError(f"{file}: the model's header is damaged ({error}); download or save it again") from error
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise SkyPartError(f"{file}: the model's header is damaged ({reason}); download or save it again") from error


def card_fields(model: SkyPart) -> dict[str, Any]:
    """The fields of the model card template for `model`."""
    description = describe_backbone(model.backbone)
    return {
        "size": model.preprocessing.size,
        "interpolation": model.preprocessing.interpolation,
        "level": model.preprocessing.level,
        "parameters": f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M",
        "backbone": model.provenance.get("backbone", description["kind"]),
        "readout": model.head.readouts.current,
        **{key: model.provenance[key] for key in CARD_TEXTS if key in model.provenance},
    }
