"""Training checkpoints: one safetensors file with everything a bit-exact resume needs, written atomically."""

import json
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW

from skypart.atomic import atomic_path, sync_folder
from skypart.errors import SkyPartError
from skypart.model.skypart import stored_name
from skypart.model.weights_files import load_strictly
from skypart.progress import console
from skypart.version import __version__

FORMAT_VERSION = 1
_NAME = re.compile(r"^step-(\d{8})\.ckpt\.safetensors$")


class DamagedCheckpointError(SkyPartError):
    """A checkpoint so damaged that no version of SkyPart can read it."""


@dataclass
class Progress:
    """The progress of a run, apart from its tensors.

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
    """Write `step-N.ckpt.safetensors`, then delete all but the newest `keep`.

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
    for leftover in folder.glob(".*tmp*"):  # ours or safetensors', from a process that was killed while writing
        with suppress(OSError):  # not ours to delete, or gone
            leftover.unlink()
    with atomic_path(path) as temporary:
        try:
            save_file({k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}, temporary, metadata)
        except SafetensorError as error:
            raise SkyPartError(f"cannot write {path}: {error}; free disk space or choose another folder") from error
    with suppress(OSError):  # before older ones are deleted: a power cut must not keep the deletions alone
        sync_folder(folder)
    found = list_checkpoints(folder)
    position = found.index(path)
    for other in [*found[: max(position + 1 - keep, 0)], *filter(_is_damaged, found[position + 1 :])]:
        with suppress(OSError):  # one more than `keep` does no harm
            other.unlink()
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first."""
    return sorted(path for path in folder.glob("step-*.ckpt.safetensors") if _NAME.match(path.name))


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest intact checkpoint. Skips damaged ones with a warning; raises for any other problem."""
    for path in reversed(list_checkpoints(folder)):
        try:
            read_facts(path)
            return path
        except DamagedCheckpointError as error:
            console.print(f"[yellow]skipping {path.name}: {error}[/]")
    return None


def _is_damaged(path: Path) -> bool:
    """Whether no run can resume from this checkpoint. False if it merely cannot be read here and now."""
    try:
        read_facts(path)
    except SkyPartError as error:
        return isinstance(error, DamagedCheckpointError)
    return False


def read_facts(path: Path) -> tuple[Progress, dict[str, Any]]:
    """Progress and facts of a checkpoint, from its header. Also checks that the file holds every tensor in full."""
    try:
        with path.open("rb") as stream:  # safetensors reports every problem as a missing file
            stream.read(1)
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
    except SafetensorError as error:
        raise DamagedCheckpointError(f"{path}: not a readable checkpoint ({error}); use an older one") from error
    except OSError as error:
        raise SkyPartError(
            f"{path}: cannot be read ({error.strerror or error}); fix its permissions or the disk, or move it away to "
            "resume from an older one"
        ) from error
    if header.get("format") != "skypart-training":
        raise SkyPartError(f"{path}: not a training checkpoint; choose another file, or move it out of the run folder")
    try:
        if int(header["format_version"]) > FORMAT_VERSION:
            raise SkyPartError(f"{path}: written by a newer skypart; upgrade it to resume")
        return Progress(**json.loads(header["progress"])), json.loads(header["facts"])
    except (KeyError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: its header is damaged ({error}); use an older one") from error
    except TypeError as error:
        raise SkyPartError(
            f"{path}: written by another version of skypart ({error}); resume with the version that wrote it"
        ) from error


def load_checkpoint(path: Path, modules: Mapping[str, nn.Module], optimiser: AdamW) -> Progress:
    """Restore modules, optimiser and random state. Returns the progress of the run."""
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
    """The name of each parameter, by `id(parameter)`."""
    return {
        id(parameter): f"{name}.{stored_name(key)}"
        for name, module in modules.items()
        for key, parameter in module.named_parameters()
    }


def _strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, without it."""
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}


def code_version() -> str:
    """The package version and, in a git checkout, the commit, marked as dirty if files have changed."""
    module = Path(__file__).resolve()
    try:
        # fails for a package that is installed inside some other repository
        _git(module.parent, "ls-files", "--error-unmatch", "--", module.name)
        return f"{__version__}+{_git(module.parent, 'describe', '--always', '--dirty', '--abbrev=12')}"
    except (OSError, subprocess.SubprocessError):
        return __version__


def _git(folder: Path, *arguments: str) -> str:
    """The output of `git ARGUMENTS` in `folder`."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
