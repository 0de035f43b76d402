"""Read weights files without unpickling objects, and check their keys strictly."""

import argparse
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from skypart.errors import SkyPartError

TORCH_SUFFIXES = frozenset({".pth", ".pt", ".bin", ".tar", ".ckpt"})
# Training checkpoints nest the weights. DINO and iBOT publish and evaluate the EMA teacher.
_NESTED = ("teacher", "state_dict", "model", "student")


def read_state(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a `.safetensors` file or, with `weights_only`, of a torch file, on the CPU."""
    if not path.is_file():
        raise SkyPartError(f"{path}: no such weights file; check the path, or see `skypart doctor`")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError, LookupError, MemoryError) as error:
            raise SkyPartError(f"{path}: not a readable safetensors file ({error}); download it again") from error
    if path.suffix not in TORCH_SUFFIXES:
        raise SkyPartError(
            f"{path}: weights must be .safetensors or {', '.join(sorted(TORCH_SUFFIXES))}; convert the file"
        )
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "GLOBAL" not in str(error):
            raise SkyPartError(f"{path}: not a torch file, or a damaged one; download it again") from error
        raise SkyPartError(
            f"{path}: contains pickled objects, which could run code, and was not opened; "
            "save only its state_dict, preferably as .safetensors"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise SkyPartError(f"{path}: not a readable torch file ({_first_line(error)}); download it again") from error
    return _find_state_dict(content, path)


def _find_state_dict(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict inside the content of a torch file, which may be a training checkpoint."""
    while isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        if tensors:
            return tensors
        nested = next((content[key] for key in _NESTED if isinstance(content.get(key), Mapping)), None)
        if nested is None:
            break
        content = nested
    raise SkyPartError(f"{path}: contains no state dict; save the model's state_dict() instead")


def load_strictly(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load `state` into `module`. Raises with a list of keys that are missing, unexpected or of the wrong shape."""
    check_keys(module, state, source)
    module.load_state_dict(dict(state))


def check_finite(state: Mapping[str, Tensor], source: str) -> None:
    """Raise if a weight is NaN or infinite: every embedding would be NaN, or wrong in silence."""
    bad = sorted(key for key, tensor in state.items() if tensor.is_floating_point() and not tensor.isfinite().all())
    if bad:
        raise SkyPartError(
            f"{source}: weights are NaN or infinite {_format_list(bad, 4)}; download the file again, or use an earlier "
            "checkpoint of the training"
        )


def check_keys(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Raise with a list of keys that are missing, unexpected or of the wrong shape."""
    wanted = module.state_dict()
    problems = []
    if missing := sorted(set(wanted) - set(state)):
        problems.append(f"missing {_format_list(missing)}")
    if unexpected := sorted(set(state) - set(wanted)):
        problems.append(f"unexpected {_format_list(unexpected)}")
    wrong = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(wanted[key].shape)}"
        for key in sorted(set(wanted) & set(state))
        if state[key].shape != wanted[key].shape
    ]
    if wrong:
        problems.append(f"wrong shape {_format_list(wrong)}")
    if problems:
        raise SkyPartError(
            f"{source}: the weights belong to another architecture: {'; '.join(problems)}; "
            "choose the matching model or file"
        )


def _format_list(names: list[str], most: int = 12) -> str:
    """The count and the first `most` names of a list."""
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"({len(names)}): {shown}"


def _first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
