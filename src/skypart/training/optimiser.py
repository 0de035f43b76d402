"""The parameter groups of AdamW and the learning rate schedule."""

import math

from torch import nn
from torch.optim import AdamW

from skypart.losses.geopart import GeoPartLoss
from skypart.model.skypart import SkyPart
from skypart.training.recipe import OptimiserRecipe


def build_optimiser(model: SkyPart, loss: GeoPartLoss, recipe: OptimiserRecipe) -> AdamW:
    """AdamW over all trainable parameters, grouped by the rules of backbone, head and losses.

    `peak` of each group is its highest learning rate.
    """
    rates = {
        "backbone": recipe.backbone_lr,
        "head": recipe.head_lr,
        "proxies": recipe.head_lr * recipe.proxy_factor,
    }
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for owner in (model, loss):
        rules = owner.parameter_rules()
        for name, parameter in owner.named_parameters():
            if parameter.requires_grad:
                rule = rules[name]
                decay = recipe.weight_decay if rule.decay else 0.0
                groups.setdefault((rates[rule.rate] * rule.factor, decay), []).append(parameter)
    return AdamW(
        [{"params": p, "lr": rate, "peak": rate, "weight_decay": decay} for (rate, decay), p in groups.items()]
    )


def learning_rate_factor(step: int, total: int, warmup: int, floor: float, cycles: int = 1) -> float:
    """Share of the peak learning rate at `step` of `total`: linear warm-up, then a cosine schedule to `floor`.

    cycles: above 1, the cosine starts again that many times (warm restarts).
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup - 1))
    if cycles > 1 and progress < 1.0:
        progress = progress * cycles % 1.0
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def set_learning_rate(optimiser: AdamW, factor: float) -> None:
    """Set every group to `factor` times its peak."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor
