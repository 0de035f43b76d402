"""The interface of a head: tokens in; embedding and the inputs of losses and explanations out."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from skypart.embedding.interface import Explanation
from skypart.errors import SkyPartError
from skypart.model.parameter_rules import ParameterRule, default_rules
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class HeadSettings:
    """Settings that every head has. Subclasses add fields with defaults; the section [head] of a recipe sets them.

    kind: the name of the head in HEADS. embedding_dim: length of the embedding.
    """

    kind: ClassVar[str]
    embedding_dim: int = 768

    def to_dict(self) -> dict[str, Any]:
        """The settings by name, without `kind`."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Draws:
    """The random numbers of one training step for b images, so that a step depends only on (seed, step).

    head: what `Head.draw_noise` drew, (b, ...) or None. masked: (b, patches) bool, the patches hidden from masked
    reconstruction. patches: (b, m) indices of the patches that patch NCE compares.
    """

    head: Tensor | None
    masked: Tensor
    patches: Tensor

    def rows(self, rows: slice, device: torch.device) -> Self:
        """The draws of one process, on its device."""
        head = None if self.head is None else self.head[rows].to(device)
        return dataclasses.replace(
            self, head=head, masked=self.masked[rows].to(device), patches=self.patches[rows].to(device)
        )


@dataclass(frozen=True)
class HeadOutput:
    """One forward pass over b images. embedding: (b, d), unit rows. Subclasses add what their losses need."""

    embedding: Tensor

    def detach(self) -> Self:
        """The output without its graph. DistributedDataParallel expects gradients for all outputs with a graph."""
        tensors: dict[str, Any] = {
            field.name: value.detach()
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return dataclasses.replace(self, **tensors)


class Readouts(NamedTuple):
    """Ablations that use the same weights differently. names: all of them, the default first."""

    names: tuple[str, ...]
    current: str


class Head(nn.Module, ABC):
    """A head of one kind. `head(tokens)` gives a `HeadOutput`; it runs in float32.

    settings_class: its settings. loss_inputs: names of the loss inputs that `loss_input`
    computes, beyond `embedding`, in the order in which they are computed.
    """

    settings_class: ClassVar[type[HeadSettings]]
    loss_inputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        """settings: an instance of `settings_class`. dim: width of the backbone's tokens."""
        super().__init__()
        self.settings = settings
        self.dim = dim

    @abstractmethod
    def taps(self, depth: int) -> tuple[int, ...]:
        """Which blocks (1..depth) of a backbone of `depth` blocks the head reads, in the order `forward` expects."""

    @abstractmethod
    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """Embed b images from their tokens at each tap.

        altitude: (b,) metres, NaN where unknown; for training only. noise: as `draw_noise` gives; drawn if None.
        """

    def draw_noise(self, images: int, generator: torch.Generator) -> Tensor | None:
        """The noise (images, ...) of a training step; None for a head without any."""
        return None

    def loss_input(self, name: str, output: HeadOutput, draws: Draws) -> Tensor:
        """The loss input called `name`, one of `loss_inputs`, for an output of this head."""
        raise KeyError(name)

    @property
    def widths(self) -> Mapping[str, int]:
        """Size of the last axis of the embedding and of the loss inputs for which losses build layers."""
        return {"embedding": self.settings.embedding_dim}

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """How each parameter learns, by name."""
        return default_rules(self)

    def freeze_unused(self) -> None:
        """Set requires_grad of all parameters: True for those used by the current readout."""
        self.requires_grad_(True)

    @property
    def readouts(self) -> Readouts:
        """The readouts that `set_readout` accepts."""
        return Readouts(("full",), "full")

    def set_readout(self, readout: str) -> None:
        """Switch to another readout; the weights are unchanged."""
        if readout not in self.readouts.names:
            raise SkyPartError(f"unknown readout {readout!r}; choose one of {', '.join(self.readouts.names)}")

    def adopt(self, settings: HeadSettings) -> None:
        """When training starts from a saved model: adopt the recipe's settings that do not need new weights."""

    def explain(self, output: HeadOutput, image: int) -> Explanation | None:
        """The parts of one image of an output; None for a head without parts."""
        return None

    def health(self, output: HeadOutput) -> dict[str, float]:
        """Scalars for the training log that show whether the head works as intended."""
        return {}

    def collapse_warning(self, output: HeadOutput) -> str:
        """A warning with its remedy if the head has degenerated; empty otherwise."""
        return ""

    def extra_multiply_adds(self, patches: int) -> int:
        """Multiply-adds per image outside linear layers and convolutions."""
        return 0


def select_inputs(head: Head, names: Collection[str], output: HeadOutput, draws: Draws) -> dict[str, Tensor]:
    """The loss inputs among `names` that `head` computes, by name."""
    return {name: head.loss_input(name, output, draws) for name in head.loss_inputs if name in names}
