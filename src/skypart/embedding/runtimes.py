"""The registry of runtimes: load a model with the runtime for its file suffix."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from skypart.embedding.interface import Embedder
from skypart.errors import SkyPartError

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

TORCH_PACKAGES = frozenset({"torch", "safetensors", "huggingface_hub"})
"""What the extra `torch` installs."""


def register_runtime(suffix: str, loader: str) -> None:
    """Load model files with `suffix` (such as `.npz`) by `loader`, the `module:function` of a `Loader`."""
    RUNTIMES[suffix.lower()] = loader


def load(
    path_or_name: str | Path, device: str = "cpu", size: int | None = None, readout: str | None = None
) -> Embedder:
    """Load a model file, a folder, OWNER/NAME[@REVISION] of the hub, or `default`, the shipped model.

    Files that `skypart export` wrote (`.onnx`, `.xml`) run in ONNX Runtime or OpenVINO. Without PyTorch, so does
    `default`; its embeddings are the same within rounding, and indexes fit both.

    device: such as `cpu` or `cuda:1`. size: input size in pixels, if not the model's own; the patch must divide it.
    readout: an ablation of the same weights (`cls`, `part`, `no_graph`).
    """
    target = RUNTIMES.get(Path(path_or_name).suffix.lower(), RUNTIMES[DEFAULT])
    if target == RUNTIMES[DEFAULT] and not has_torch():
        target = _without_torch(str(path_or_name), str(device), size, readout)
    module, _, function = target.partition(":")
    loader: Loader = getattr(import_module(module), function)
    return loader(str(path_or_name), str(device), size, readout)


def load_fastest(path_or_name: str | Path, device: str = "cpu", size: int | None = None) -> Embedder:
    """Like `load`, but `default` on the CPU runs in ONNX Runtime: the same results within rounding, in less time.

    docs/results/inference-speed.md compares the engines.
    """
    from skypart.embedding.onnx import load_shipped, shipped_size
    from skypart.embedding.shipped import shipped_graph

    shipped = str(path_or_name) == "default" and device == "cpu" and shipped_graph().is_file()
    if shipped and size in (None, shipped_size()):
        return load_shipped("default")
    return load(path_or_name, device, size)


def is_on_hub(name: str) -> bool:
    """Whether `load` would look for a model on the Hugging Face hub: OWNER/NAME, and no file or folder is called so."""
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).suffix.lower() in RUNTIMES:
        return False
    return not Path(name).exists()


def install_torch(extra: str = "torch") -> str:
    """How to install PyTorch, with an extra of this package, for messages."""
    index = "https://download.pytorch.org/whl/cpu"
    return f"pip install 'skypart[{extra}]' (without a GPU, first: pip install torch --index-url {index})"


def has_torch() -> bool:
    """Whether PyTorch is installed; it is in the extra `torch`."""
    return find_spec("torch") is not None


def _without_torch(name: str, device: str, size: int | None, readout: str | None) -> str:
    """The loader of a model that PyTorch would load. Raises unless it is the shipped model, as it was exported."""
    from skypart.embedding.onnx import shipped_size

    if name == "default" and device == "cpu" and readout is None and size in (None, shipped_size()):
        return "skypart.embedding.onnx:load_shipped"
    if name == "default":
        wanted = f"with readout {readout!r}" if readout else f"at {size} pixels"
        wanted = f"on {device!r}" if device != "cpu" else wanted
        raise SkyPartError(f"the default model {wanted} needs PyTorch; {install_torch()}")
    if not is_on_hub(name) and not Path(name).exists():
        raise SkyPartError(
            f"{name}: no such file, and not the name of a model that runs without PyTorch; give `default` or an export "
            f"(.onnx, .xml). For other models: {install_torch()}"
        )
    raise SkyPartError(f"{name}: needs PyTorch; {install_torch()}, or use `default` or an export")
