"""Heads turn the tokens of a backbone into one embedding. A new head is one file here and one line in HEADS."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch

from skypart.errors import SkyPartError
from skypart.model.heads.interface import Draws, Head, HeadOutput, HeadSettings, Readouts

HEADS = {
    "skypart": "skypart.model.heads.skypart.head:PartHead",
    "cls": "skypart.model.heads.cls:ClsHead",
    "gem": "skypart.model.heads.gem:GemHead",
    "lpn": "skypart.model.heads.lpn:LpnHead",
    "fsra": "skypart.model.heads.fsra:FsraHead",
    "netvlad": "skypart.model.heads.netvlad:NetVladHead",
    "salad": "skypart.model.heads.salad:SaladHead",
    "boq": "skypart.model.heads.boq:BoqHead",
}
"""Kind of a head -> `module:class`, imported on first use."""
DEFAULT_KIND = "skypart"
"""The kind of head in recipes and model files without `kind`."""

__all__ = [
    "DEFAULT_KIND",
    "HEADS",
    "Draws",
    "Head",
    "HeadOutput",
    "HeadSettings",
    "Readouts",
    "build_head",
    "describe_settings",
    "head_class",
    "read_settings",
    "readout_names",
    "settings_class",
]


def head_class(kind: str) -> type[Head]:
    """The class of heads of `kind`."""
    if kind not in HEADS:
        raise SkyPartError(f"unknown head {kind!r}; choose one of {', '.join(HEADS)}")
    module, _, name = HEADS[kind].partition(":")
    found: type[Head] = getattr(import_module(module), name)
    return found


def settings_class(kind: str) -> type[HeadSettings]:
    """The settings dataclass of heads of `kind`."""
    return head_class(kind).settings_class


def describe_settings(settings: HeadSettings) -> dict[str, Any]:
    """Settings as a dict for a model file or a recipe. `kind` is omitted for the default head."""
    kind = {} if settings.kind == DEFAULT_KIND else {"kind": settings.kind}
    return kind | settings.to_dict()


def read_settings(description: Mapping[str, Any]) -> HeadSettings:
    """The inverse of `describe_settings`; lists become tuples. Raises TypeError for unknown settings."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in description.items()
    }
    return settings_class(str(fields.pop("kind", DEFAULT_KIND)))(**fields)


def readout_names(settings: HeadSettings) -> tuple[str, ...]:
    """The readouts of a head with these settings, the default first; takes no memory for weights."""
    with torch.device("meta"):
        return build_head(settings, 64).readouts.names


def build_head(settings: HeadSettings, dim: int) -> Head:
    """A new head for tokens of width `dim`, initialised from torch's global generator."""
    return head_class(settings.kind)(settings, dim)
