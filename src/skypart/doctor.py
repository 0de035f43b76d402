"""`skypart doctor`: what is installed on this machine, what is missing, and how to install it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from skypart.embedding.runtimes import has_torch
from skypart.embedding.shipped import verified_graph
from skypart.errors import SkyPartError

PACKAGES = {
    "numpy": "", "onnxruntime": "", "pillow": "", "opencv-python-headless": "", "scipy": "",
    "rasterio": "", "pyproj": "",
    "torch": "pip install 'skypart[torch]'  (other models, GPUs)",
    "safetensors": "pip install 'skypart[torch]'  (model files)",
    "huggingface_hub": "pip install 'skypart[torch]'  (models of the hub)",
    "tensorboard": "pip install 'skypart[train]'  (training curves)",
    "transformers": "pip install 'skypart[transformers]'  (other backbones, e.g. DINOv3)",
    "wandb": "pip install 'skypart[wandb]'  (second training logger)",
    "openvino": "pip install 'skypart[openvino]'  (runs exported .xml models)",
    "nncf": "pip install 'skypart[export]'  (`skypart export`, int8)",
}  # fmt: skip


def report() -> list[tuple[str, str, str]]:
    """Rows of (item, found, how to install it); the last is empty if nothing is missing."""
    from skypart.version import __version__

    rows = [("skypart", __version__, ""), ("python", platform.python_version(), "")]
    for name, remedy in PACKAGES.items():
        try:
            rows.append((name, version(name), ""))
        except PackageNotFoundError:
            rows.append((name, "not installed", remedy or "reinstall skypart"))
    return [*rows, _engine(), *_machine(), *_torch(_cores()), *_weights()]


def _engine() -> tuple[str, str, str]:
    """Which engine runs which model, and why."""
    engines = {}
    known = (
        ("PyTorch", "torch", ".safetensors"),
        ("ONNX Runtime", "onnxruntime", ".onnx"),
        ("OpenVINO", "openvino", ".xml"),
    )
    for name, package, suffix in known:
        if package == "torch" and not has_torch():
            continue
        try:
            engines[suffix] = f"{name} {version(package)}"
        except PackageNotFoundError:
            continue
    found = ", ".join(f"{engine} for {suffix}" for suffix, engine in engines.items())
    others = "" if ".safetensors" in engines else "; other models need PyTorch"
    reason = (
        "the suffix of the model selects it; locate runs `default` in ONNX Runtime, which is faster than PyTorch; "
        f"OpenVINO is a little faster still, but takes seconds longer to start{others}"
    )
    remedy = "" if ".xml" in engines else "pip install 'skypart[export]', then `skypart export default --to openvino`"
    return "engine", f"{found} ({reason})", remedy


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _machine() -> list[tuple[str, str, str]]:
    """Cores, memory, and what PyTorch sees."""
    rows = [("cores", str(_cores()), "")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        rows.append(("memory", f"{memory:.1f} GiB", ""))
    return rows


def _torch(cores: int) -> list[tuple[str, str, str]]:
    """Threads and accelerators of PyTorch; nothing if it is not installed."""
    try:
        import torch

        from skypart.training.precision import has_native_bfloat16
    except ModuleNotFoundError:
        return []
    threads = torch.get_num_threads()
    rows = [("torch threads", str(threads), "" if threads <= cores else "set OMP_NUM_THREADS")]
    native = has_native_bfloat16()
    if native is not None:
        support = "native: optimiser.precision=bfloat16 trains faster" if native else "emulated: slower than float32"
        rows.append(("bfloat16 on the CPU", support, ""))
    devices = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    none = "none found by torch: runs on the CPU"
    remedy = "" if devices else "if this machine has a GPU: install a GPU build of torch"
    rows.append(("accelerators", ", ".join(devices) or none, remedy))
    return rows


def _weights() -> list[tuple[str, str, str]]:
    """The folders searched for weights, and the backbones found there; without PyTorch, only the default model."""
    if not has_torch():
        try:
            return [("default model", f"{verified_graph()} (verified)", "")]
        except SkyPartError as error:
            return [("default model", str(error), "reinstall skypart")]
    from skypart.model.catalogue import backbone_entries, default_entry
    from skypart.model.sources import weights_folders

    rows = []
    for folder in weights_folders():
        count = len([entry for entry in folder.iterdir() if not entry.name.startswith(".")]) if folder.is_dir() else 0
        rows.append(("weights folder", f"{folder} ({count} files)" if folder.is_dir() else f"{folder} (absent)", ""))
    default = default_entry()
    rows.append(("default model", f"{default.file} ({default.state})" if default.file else default.about, ""))
    for entry in backbone_entries():
        remedy = "" if entry.file else f"{entry.state} ({entry.about})"
        rows.append((entry.name, entry.file or "not on this disk", remedy))
    return rows


def print_report(rows: list[tuple[str, str, str]]) -> None:
    """Print the rows as a table. Long paths wrap and are never truncated."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for title in ("item", "found", "how to install it"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
