"""Training checkpoints: one safetensors file with everything a bit-exact resume needs, written whole or not at all."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError
from skypart.model.skypart import stored_name
from skypart.model.weights_files import load_strictly
from skypart.progress import console
from skypart.version import __version__

FORMAT_VERSION = 1
_NAME = re.compile(r"^step-(\d{8})\.ckpt\.safetensors$")


class DamagedCheckpointError(SkyPartError):
    """A checkpoint that no version of SkyPart could read."""


@dataclass
class Progress:
    """Where a run stands, beyond its tensors.

    step: optimiser steps done. best: the best validation score so far and its step. history: validation results.
    """

    step: int = 0
    best: float = -1.0  # below any score, and valid JSON
    best_step: int = -1
    history: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(
    folder: Path,
    modules: Mapping[str, nn.Module],
    optimiser: AdamW,
    progress: Progress,
    facts: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write `step-N.ckpt.safetensors`, then drop all but the newest `keep`.

    modules: by name (student, average, loss). facts: recipe, data fingerprint, code version.
    """
    tensors = {f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    names = parameter_names(modules)
    for parameter, state in optimiser.state.items():
        for key, value in state.items():
            tensors[f"optimiser/{names[id(parameter)]}/{key}"] = torch.as_tensor(value)
    tensors["rng/torch"] = torch.get_rng_state()
    metadata = {
        "format": "skypart-training",
        "format_version": str(FORMAT_VERSION),
        "progress": json.dumps(vars(progress)),
        "facts": json.dumps(dict(facts)),
    }
    path = folder / f"step-{progress.step:08d}.ckpt.safetensors"
    for left in folder.glob(".*tmp*"):  # ours or safetensors', of a process killed while it wrote
        left.unlink()
    with atomic_path(path) as temporary:
        try:
            save_file({k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}, temporary, metadata)
        except SafetensorError as error:
            raise SkyPartError(f"cannot write {path}: {error}; free the disk or choose another place") from error
    found = list_checkpoints(folder)
    place = found.index(path)
    for other in [*found[: max(place + 1 - keep, 0)], *filter(_is_damaged, found[place + 1 :])]:
        other.unlink()
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first."""
    return sorted(path for path in folder.glob("step-*.ckpt.safetensors") if _NAME.match(path.name))


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; a damaged newer one is named and passed over, any other trouble is an error."""
    for path in reversed(list_checkpoints(folder)):
        try:
            read_facts(path)
            return path
        except DamagedCheckpointError as error:
            console.print(f"[yellow]passing over {path.name}: {error}[/]")
    return None


def _is_damaged(path: Path) -> bool:
    """Whether nothing can go on from this checkpoint; not where it only cannot be read here and now."""
    try:
        read_facts(path)
    except SkyPartError as error:
        return isinstance(error, DamagedCheckpointError)
    return False


def read_facts(path: Path) -> tuple[Progress, dict[str, Any]]:
    """Progress and facts of a checkpoint, from its header; every tensor's place in the file is checked."""
    try:
        with path.open("rb") as stream:  # safetensors calls every trouble a missing file
            stream.read(1)
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
    except SafetensorError as error:
        raise DamagedCheckpointError(f"{path}: not a readable checkpoint ({error}); use an older one") from error
    except OSError as error:
        raise SkyPartError(
            f"{path}: cannot be read ({error.strerror or error}); mend its rights or its disk, or move it away to go "
            "on from an older one"
        ) from error
    if header.get("format") != "skypart-training":
        raise SkyPartError(f"{path}: not a training checkpoint; name another file, or move it out of the run's folder")
    try:
        if int(header["format_version"]) > FORMAT_VERSION:
            raise SkyPartError(f"{path}: written by a newer skypart; upgrade it to resume")
        return Progress(**json.loads(header["progress"])), json.loads(header["facts"])
    except (KeyError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: its header is damaged ({error}); use an older one") from error
    except TypeError as error:
        raise SkyPartError(f"{path}: written by another skypart ({error}); go on with the one that wrote it") from error


def load_checkpoint(path: Path, modules: Mapping[str, nn.Module], optimiser: AdamW) -> Progress:
    """Put modules, optimiser and random state back as they were; returns where the run stood."""
    progress, _ = read_facts(path)
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for name, module in modules.items():
        load_strictly(module, _strip_prefix(tensors, f"{name}/"), f"{path} ({name})")
    names = parameter_names(modules)
    state: dict[Tensor, dict[str, Tensor]] = {}
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            stored = _strip_prefix(tensors, f"optimiser/{names[id(parameter)]}/")
            if stored:
                state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device) for key, value in stored.items()
                }
    optimiser.state.clear()
    optimiser.state.update(state)
    torch.set_rng_state(tensors["rng/torch"])
    return progress


def parameter_names(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    """Names of all parameters by identity."""
    return {
        id(parameter): f"{name}.{stored_name(key)}"
        for name, module in modules.items()
        for key, parameter in module.named_parameters()
    }


def _strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, without it."""
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}


def code_version() -> str:
    """The package version and, in a checkout, its commit, marked if files were changed."""
    here = Path(__file__).resolve()
    try:
        _git(here.parent, "ls-files", "--error-unmatch", "--", here.name)  # not a repository around an installed one
        return f"{__version__}+{_git(here.parent, 'describe', '--always', '--dirty', '--abbrev=12')}"
    except (OSError, subprocess.SubprocessError):
        return __version__


def _git(folder: Path, *words: str) -> str:
    """What git says in `folder`."""
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
