"""FSRA: regions by heat. Patches are ranked by their mean activation and split into groups (Dai et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.model.heads.interface import HeadSettings
from skypart.model.heads.lpn import RegionHead, RegionOutput
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class FsraSettings(HeadSettings):
    """regions: groups of patches; with the CLS token they divide embedding_dim equally.

    layer: the block that is read; 0: the last.
    """

    kind: ClassVar[str] = "fsra"

    regions: Annotated[int, Field(ge=1, le=64)] = 3
    layer: int = 0

    def __post_init__(self) -> None:
        """Raise where regions and CLS token cannot share the embedding."""
        if self.embedding_dim % (self.regions + 1):
            raise SkyPartError(f"regions + 1 = {self.regions + 1} must divide embedding_dim = {self.embedding_dim}")


class FsraHead(RegionHead):
    """The CLS token, and the mean of each group of patches of similar heat."""

    settings_class = FsraSettings
    settings: FsraSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim, cast(FsraSettings, settings).regions + 1)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> RegionOutput:
        """CLS (b, dim) and patches (b, n, dim) -> unit embeddings."""
        cls, patches = tokens[0].cls, tokens[0].patches
        return self.describe(torch.cat([cls[:, None], pool_by_heat(patches, self.settings.regions)], dim=1))


def pool_by_heat(patches: Tensor, regions: int) -> Tensor:
    """Means (b, regions, dim) of patches (b, n, dim), split by rank of their mean activation, hottest first.

    The groups are of equal size; the last ones are one smaller where n is not divisible.
    """
    order = patches.mean(dim=-1).argsort(dim=1, descending=True, stable=True)
    ranked = patches.gather(1, order[..., None].expand_as(patches))
    return torch.stack([group.mean(dim=1) for group in ranked.tensor_split(regions, dim=1)], dim=1)
