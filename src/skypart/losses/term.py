"""The interface of a loss term. A new term is one file with a subclass, one line in TERMS and its LossConfig fields."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from torch import Tensor, nn

from skypart.losses.config import LossConfig
from skypart.model.parameter_rules import ParameterRule, default_rules

Group: TypeAlias = Literal["align", "part", "distill", "alt"]


@dataclass(frozen=True)
class LossContext:
    """What `LossTerm.build` gets. locations: number of training locations. widths: size of the last axis of inputs."""

    config: LossConfig
    locations: int
    widths: Mapping[str, int]


class LossTerm(nn.Module, ABC):
    """One term of the objective. The parameters of its `forward` name the inputs it needs; docs/losses.md lists them.

    name: its switch in LossConfig and, with the suffix `_weight`, its weight. group: the Kendall weight it shares.
    joined: whether its inputs are gathered from all processes, because it compares images with each other.
    needs: the names of its inputs, from the signature of `forward`.
    """

    name: ClassVar[str]
    group: ClassVar[Group]
    joined: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set `needs` from the signature of `forward`."""
        super().__init_subclass__(**kwargs)
        cls.needs = tuple(name for name in inspect.signature(cls.forward).parameters if name != "self")

    @classmethod
    @abstractmethod
    def build(cls, context: LossContext) -> Self:
        """The term for a training run."""

    def applies(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether there is anything to learn from these inputs, which include all that the term needs."""
        return True

    def provides(self) -> dict[str, Tensor]:
        """Inputs that this term provides for later terms."""
        return {}

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """How each parameter learns, by name."""
        return default_rules(self)
