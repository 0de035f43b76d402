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
    """What terms are built from. locations: number of training locations. widths: size of the last axis of inputs."""

    config: LossConfig
    locations: int
    widths: Mapping[str, int]


class LossTerm(nn.Module, ABC):
    """One term of the objective. The parameters of its `forward` name the inputs it needs; docs/losses.md lists them.

    name: its switch and, with `_weight`, its weight in LossConfig. group: which Kendall weight it shares.
    joined: whether its inputs are gathered from all processes, because it compares images with each other.
    needs: the names of its inputs, read off `forward`.
    """

    name: ClassVar[str]
    group: ClassVar[Group]
    joined: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Read the needs off the signature."""
        super().__init_subclass__(**kwargs)
        cls.needs = tuple(name for name in inspect.signature(cls.forward).parameters if name != "self")

    @classmethod
    @abstractmethod
    def build(cls, context: LossContext) -> Self:
        """The term for a training run."""

    def applies(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether these inputs, all that it needs, hold anything to learn from."""
        return True

    def provides(self) -> dict[str, Tensor]:
        """Inputs that this term computes for the terms after it."""
        return {}

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """How each parameter learns, by name."""
        return default_rules(self)
