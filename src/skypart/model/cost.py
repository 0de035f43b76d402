"""Parameters and multiply-adds of a model, in every convention of the literature, for comparison."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skypart.model.skypart import SkyPart


@dataclass(frozen=True)
class Cost:
    """Multiply-adds of one image at `size` pixels, and parameters by top-level module.

    linear: in convolutions and linear layers. attention: in the products QK' and AV of the backbone.
    parts: in the head, outside linear layers.
    """

    size: int
    parameters: dict[str, int]
    linear: int
    attention: int
    parts: int

    @property
    def total_parameters(self) -> int:
        """All parameters of the deployed model."""
        return sum(self.parameters.values())

    @property
    def giga_macs(self) -> float:
        """Multiply-adds of one image in billions, attention products included: the convention of our tables."""
        return (self.linear + self.parts + self.attention) / 1e9

    def conventions(self) -> dict[str, float]:
        """Giga-operations under each convention used in papers, by name."""
        plain, full = self.linear + self.parts, self.linear + self.parts + self.attention
        return {
            "GMACs, 1 image, without attention products (the paper's figure)": plain / 1e9,
            "GMACs, 1 image, with attention products": full / 1e9,
            "GMACs, 2 images, without attention products (MEAN, DenseUAV)": 2 * plain / 1e9,
            "GMACs, 2 images, with attention products": 2 * full / 1e9,
            "GFLOPs (2 per MAC), 1 image, with attention products": 2 * full / 1e9,
        }


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def parameters_by_module(module: nn.Module) -> dict[str, int]:
    """Number of parameters of each direct child that has any, and of each parameter of `module` itself."""
    found = {name: count_parameters(child) for name, child in module.named_children()}
    own = {name: parameter.numel() for name, parameter in module.named_parameters(recurse=False)}
    return {name: count for name, count in (found | own).items() if count}


def measure_cost(model: SkyPart, size: int | None = None) -> Cost:
    """Count the multiply-adds of one image by a forward pass with hooks on all linear layers and convolutions."""
    size = size or model.preprocessing.size
    linear = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal linear
        if isinstance(module, nn.Linear):
            linear += output.numel() * module.in_features
        elif isinstance(module, nn.Conv2d):
            linear += output.numel() * module.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    was_training = model.training
    try:
        with torch.inference_mode():
            model.eval()(torch.zeros(1, 3, size, size))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    patches = (size // model.backbone_interface.patch) ** 2
    tokens = patches + 1 + getattr(getattr(model.backbone, "config", None), "registers", 0)
    return Cost(
        size=size,
        parameters={"backbone": count_parameters(model.backbone)} | parameters_by_module(model.head),
        linear=linear,
        attention=2 * tokens * tokens * model.backbone_interface.dim * max(model.taps),
        parts=model.head.extra_multiply_adds(patches),
    )
