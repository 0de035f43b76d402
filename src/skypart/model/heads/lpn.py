"""LPN: the mean of the patches in each of several square rings, a descriptor for each (Wang et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.errors import SkyPartError
from skypart.model.heads.interface import Draws, Head, HeadOutput, HeadSettings
from skypart.model.heads.skypart.fusion import JointBatchNorm
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class LpnSettings(HeadSettings):
    """rings: how many; they divide embedding_dim equally. layer: the block that is read; 0: the last."""

    kind: ClassVar[str] = "lpn"

    rings: Annotated[int, Field(ge=1, le=64)] = 4
    layer: int = 0

    def __post_init__(self) -> None:
        """Raise where the rings cannot share the embedding."""
        if self.embedding_dim % self.rings:
            raise SkyPartError(f"rings = {self.rings} must divide embedding_dim = {self.embedding_dim}")


@dataclass(frozen=True)
class RegionOutput(HeadOutput):
    """branches (b, regions, d / regions): the unit descriptor of each region, in the order of the embedding."""

    branches: Tensor


class RegionHead(Head):
    """Descriptors of several regions side by side. Each learns by itself, too, through the loss on branches."""

    loss_inputs = ("branches",)

    def __init__(self, settings: HeadSettings, dim: int, regions: int) -> None:
        super().__init__(settings, dim)
        width = settings.embedding_dim // regions
        self.project = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, width, bias=False), JointBatchNorm(width)) for _ in range(regions)
        )

    def describe(self, pooled: Tensor) -> RegionOutput:
        """From the pooled tokens of the regions (b, regions, dim) to the output."""
        each = [layer(region) for layer, region in zip(self.project, pooled.unbind(1), strict=True)]
        branches = normalize(torch.stack(each, dim=1), dim=-1)
        return RegionOutput(normalize(branches.flatten(1), dim=-1), branches)

    def loss_input(self, name: str, output: HeadOutput, draws: Draws) -> Tensor:
        """The descriptors of the regions."""
        return cast(RegionOutput, output).branches


class LpnHead(RegionHead):
    """Square rings around the centre of the image."""

    settings_class = LpnSettings
    settings: LpnSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim, cast(LpnSettings, settings).rings)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> RegionOutput:
        """Patches (b, n, dim) -> unit embeddings."""
        patches, grid = tokens[0].patches, tokens[0].grid
        member = ring_of_patch(grid, self.settings.rings).to(patches.device)
        share = torch.nn.functional.one_hot(member, self.settings.rings).to(patches)
        share = share / share.sum(dim=0).clamp_min(1.0)
        return self.describe(share.T @ patches)


def ring_of_patch(grid: tuple[int, int], rings: int) -> Tensor:
    """(rows * columns,) which ring each patch lies in: 0 around the centre, rings - 1 along the border."""
    rows, columns = grid
    y = (torch.arange(rows) + 0.5) / rows * 2 - 1
    x = (torch.arange(columns) + 0.5) / columns * 2 - 1
    distance = torch.maximum(y.abs()[:, None], x.abs()[None, :]).flatten()
    return (distance * rings).long().clamp(max=rings - 1)
