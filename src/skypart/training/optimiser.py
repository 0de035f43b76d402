"""AdamW's parameter groups and the learning rate of every step."""

import math

from torch import nn
from torch.optim import AdamW

from skypart.losses.geopart import GeoPartLoss
from skypart.model.skypart import SkyPart
from skypart.training.recipe import OptimiserRecipe

_UNDECAYED = ("film.", "bank.", "backbone.pos_embed", "backbone.cls_token", "backbone.register_tokens")


def build_optimiser(model: SkyPart, loss: GeoPartLoss, recipe: OptimiserRecipe) -> AdamW:
    """AdamW over what learns: backbone, head, proxies, each with and without weight decay.

    Norms, biases, FiLM, prototypes and s_g are not decayed. Each group carries its `peak` learning rate.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            speed = recipe.backbone_lr if name.startswith("backbone.") else recipe.head_lr
            decayed = parameter.ndim > 1 and not name.startswith(_UNDECAYED)
            groups.setdefault((speed, recipe.weight_decay if decayed else 0.0), []).append(parameter)
    roles = loss.parameter_roles()
    for name, parameter in loss.named_parameters():
        speed = recipe.head_lr * (recipe.proxy_factor if roles[name] == "proxies" else 1.0)
        groups.setdefault((speed, 0.0 if roles[name] == "no_decay" else recipe.weight_decay), []).append(parameter)
    return AdamW(
        [{"params": p, "lr": speed, "peak": speed, "weight_decay": decay} for (speed, decay), p in groups.items()]
    )


def learning_rate_factor(step: int, total: int, warmup: int, floor: float) -> float:
    """Share of the peak learning rate at `step` of `total`: linear warm-up, then a cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup - 1))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def set_learning_rate(optimiser: AdamW, factor: float) -> None:
    """Set every group to `factor` of its peak."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor
