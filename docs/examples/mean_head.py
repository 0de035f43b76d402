"""A head in one file: the mean of the patch tokens, projected to the embedding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.model.heads.interface import Draws, Head, HeadOutput, HeadSettings
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class MeanHeadSettings(HeadSettings):
    """layer: the block (1..depth) whose patches are averaged; 0: the last."""

    kind: ClassVar[str] = "mean"
    layer: int = 0


@dataclass(frozen=True)
class MeanHeadOutput(HeadOutput):
    """pooled (b, dim): the mean patch token before its projection."""

    pooled: Tensor


class MeanHead(Head):
    """The mean patch token through one linear layer, normalised."""

    settings_class = MeanHeadSettings
    loss_inputs = ("part_pooled",)

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        self.project = nn.Linear(dim, settings.embedding_dim)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (cast(MeanHeadSettings, self.settings).layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> MeanHeadOutput:
        """Embed b images from their patches (b, n, dim)."""
        pooled = tokens[0].patches.mean(dim=1)
        return MeanHeadOutput(normalize(self.project(pooled), dim=-1), pooled)

    @property
    def widths(self) -> dict[str, int]:
        """Channels of the embedding and of the altitude loss's input."""
        return {"embedding": self.settings.embedding_dim, "part_pooled": self.dim}

    def loss_input(self, name: str, output: HeadOutput, draws: Draws) -> Tensor:
        """The altitude is regressed from the pooled token."""
        return cast(MeanHeadOutput, output).pooled
