"""The registry of runtimes: load a model with the runtime for its file suffix."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from skypart.embedding.interface import Embedder

Loader: TypeAlias = Callable[[str, str, int | None, str | None], Embedder]
"""Loads a model; called as loader(path_or_name, device, size, readout), with the arguments of `load`."""

RUNTIMES = {
    ".safetensors": "skypart.model.embedder:load_torch",
    ".onnx": "skypart.embedding.onnx:load_onnx",
    ".xml": "skypart.embedding.openvino:load_openvino",
}
"""Suffix of a model file -> `module:function` of its `Loader`, imported when first used. See docs/extending.md."""

DEFAULT = ".safetensors"
"""The runtime of folders, hub names, `default`, and files with any other suffix."""


def register_runtime(suffix: str, loader: str) -> None:
    """Load model files with `suffix` (such as `.npz`) by `loader`, the `module:function` of a `Loader`."""
    RUNTIMES[suffix.lower()] = loader


def load(
    path_or_name: str | Path, device: str = "cpu", size: int | None = None, readout: str | None = None
) -> Embedder:
    """Load a model file, a folder, OWNER/NAME[@REVISION] of the hub, or `default`, the shipped model.

    Files that `skypart export` wrote (`.onnx`, `.xml`) run in ONNX Runtime or OpenVINO.

    device: such as `cpu` or `cuda:1`. size: input size in pixels, if not the model's own; the patch must divide it.
    readout: an ablation of the same weights (`cls`, `part`, `no_graph`).
    """
    target = RUNTIMES.get(Path(path_or_name).suffix.lower(), RUNTIMES[DEFAULT])
    module, _, function = target.partition(":")
    loader: Loader = getattr(import_module(module), function)
    return loader(str(path_or_name), str(device), size, readout)
