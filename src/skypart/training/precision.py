"""Mixed precision where the device has it: what a run's matrix products are computed in."""

from dataclasses import dataclass

import torch

from skypart.training.recipe import Recipe


@dataclass(frozen=True)
class Precision:
    """Data types of matrix products; None: float32.

    learning: where there is a gradient. frozen: where there is none, in frozen blocks and the moving average.
    """

    learning: torch.dtype | None = None
    frozen: torch.dtype | None = None


def has_native_bfloat16() -> bool | None:
    """Whether this processor multiplies in bfloat16 itself rather than emulating it; None where torch cannot tell."""
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # which older ones lack
    return any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")) if has else None


def choose_precision(recipe: Recipe, device: torch.device) -> Precision:
    """What the recipe asks for; `auto`: bfloat16 on a GPU that has it, and on a processor that has it for what is
    still. There a run's figures hang on the processor a little; gradients and how several processes agree do not."""
    asked = recipe.optimiser.precision
    gpu = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if asked == "bfloat16" or (asked == "auto" and gpu):
        return Precision(torch.bfloat16, torch.bfloat16)
    if asked == "auto" and device.type == "cpu" and has_native_bfloat16():
        return Precision(None, torch.bfloat16)
    return Precision()


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Matrix products in `dtype`; None: in single precision."""
    return torch.autocast(device.type, dtype, enabled=dtype is not None)
