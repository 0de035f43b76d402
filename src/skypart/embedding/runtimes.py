"""Open a model with the runtime that its file asks for."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from skypart.embedding.interface import Embedder

RUNTIMES = {
    ".safetensors": "skypart.model.embedder:load_torch",
}
"""Suffix of a model file -> `module:function` that loads it, imported on first use. A new runtime adds a line here.

The function takes (name, device, size, readout) as `load` does."""
DEFAULT = ".safetensors"
"""The runtime of folders, hub names and `default`."""


def load(
    path_or_name: str | Path, device: str = "cpu", size: int | None = None, readout: str | None = None
) -> Embedder:
    """Load a model file, a folder, OWNER/NAME[@REVISION] of the hub, or `default`, the shipped model.

    device: such as `cpu` or `cuda:1`. size: input size in pixels, if not the model's own; the patch must divide it.
    readout: an ablation of the same weights (`cls`, `part`, `no_graph`).
    """
    target = RUNTIMES.get(Path(path_or_name).suffix.lower(), RUNTIMES[DEFAULT])
    module, _, function = target.partition(":")
    opener: Callable[[str, str, int | None, str | None], Embedder] = getattr(import_module(module), function)
    return opener(str(path_or_name), str(device), size, readout)
