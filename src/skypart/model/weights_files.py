"""Read weight files without ever unpickling objects, and check their keys strictly."""

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
# Full training checkpoints nest the weights; the EMA teacher is what DINO and iBOT publish and evaluate.
_NESTED = ("teacher", "state_dict", "model", "student")


def read_state(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a `.safetensors` file or, with `weights_only`, of a torch file, on the CPU."""
    if not path.is_file():
        raise SkyPartError(f"{path}: no such weights file; check the path, or see `skypart doctor`")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
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
            f"{path}: holds pickled objects besides tensors and is not opened, since they could run code; "
            "save its state_dict alone, best as .safetensors"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise SkyPartError(f"{path}: not a readable torch file ({_first_line(error)}); download it again") from error
    return _tensors(content, path)


def _tensors(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict inside a torch file, unwrapped from a training checkpoint where needed."""
    while isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        if tensors:
            return tensors
        nested = next((content[key] for key in _NESTED if isinstance(content.get(key), Mapping)), None)
        if nested is None:
            break
        content = nested
    raise SkyPartError(f"{path}: holds no state dict; save the model's state_dict() instead")


def load_strictly(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load `state` into `module`, or list every key that is missing, unexpected or of the wrong shape."""
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
            f"{source}: the weights are of another architecture: {'; '.join(problems)}; "
            "choose the matching model or file"
        )
    module.load_state_dict(dict(state))


def _format_list(names: list[str], most: int = 12) -> str:
    """A readable list with its count, cut after `most`."""
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"({len(names)}): {shown}"


def _first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0]
