"""CLS only: the backbone's CLS token is the embedding, as in Sample4Geo's objective with a single global feature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.model.heads.interface import Head, HeadOutput, HeadSettings
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class ClsSettings(HeadSettings):
    """embedding_dim: 0 uses the CLS token itself, without a parameter; any other number projects it linearly.

    layer: the block (1..depth) that is read; 0: the last.
    """

    kind: ClassVar[str] = "cls"

    embedding_dim: int = 0
    layer: int = 0


class ClsHead(Head):
    """The normalised CLS token."""

    settings_class = ClsSettings
    settings: ClsSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        self.project = nn.Linear(dim, settings.embedding_dim) if settings.embedding_dim else nn.Identity()

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """CLS tokens (b, dim) -> unit embeddings."""
        return HeadOutput(normalize(self.project(tokens[0].cls), dim=-1))

    @property
    def widths(self) -> Mapping[str, int]:
        """Width of the embedding."""
        return {"embedding": self.settings.embedding_dim or self.dim}
