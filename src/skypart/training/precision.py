"""Mixed precision: the data type in which a run computes matrix products."""

from dataclasses import dataclass

import torch

from skypart.training.recipe import Recipe


@dataclass(frozen=True)
class Precision:
    """Data types of matrix products; None: float32.

    learning: with gradient. frozen: without gradient, in frozen blocks and the moving average.
    """

    learning: torch.dtype | None = None
    frozen: torch.dtype | None = None


def has_native_bfloat16() -> bool | None:
    """Whether this CPU has bfloat16 instructions, so that torch need not emulate them; None if torch cannot tell."""
    found: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older versions of torch
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")) if found else None


def choose_precision(recipe: Recipe, device: torch.device) -> Precision:
    """The precision of a recipe on a device.

    `auto` means bfloat16 on a GPU that supports it. On a CPU that supports it, only frozen layers use bfloat16; results
    then depend slightly on the CPU, but gradients stay in float32 and processes agree with each other.
    """
    requested = recipe.optimiser.precision
    gpu = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if requested == "bfloat16" or (requested == "auto" and gpu):
        return Precision(torch.bfloat16, torch.bfloat16)
    if requested == "auto" and device.type == "cpu" and has_native_bfloat16():
        return Precision(None, torch.bfloat16)
    return Precision()


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """A context in which matrix products are computed in `dtype`; None: in float32."""
    return torch.autocast(device.type, dtype, enabled=dtype is not None)
