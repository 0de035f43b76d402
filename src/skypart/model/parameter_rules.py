"""How parameters learn. Backbone, head and losses each give rules for their parameters; the optimiser applies them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from torch import nn

Rate: TypeAlias = Literal["backbone", "head", "proxies"]
"""The learning rates of a recipe."""


class ParameterRule(NamedTuple):
    """`factor` times the learning rate called `rate`, with or without weight decay."""

    rate: Rate = "head"
    factor: float = 1.0
    decay: bool = True


def default_rules(
    module: nn.Module, no_weight_decay: Sequence[str] = (), rate: Rate = "head"
) -> dict[str, ParameterRule]:
    """A rule for every parameter, by name. Norms and biases get no weight decay.

    no_weight_decay: prefixes of the names of further parameters without weight decay.
    """
    return {
        name: ParameterRule(rate, decay=parameter.ndim > 1 and not name.startswith(tuple(no_weight_decay)))
        for name, parameter in module.named_parameters()
    }
