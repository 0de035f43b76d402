"""NetVLAD: residuals of patches to learned centres, summed by soft assignment (Arandjelovic et al., 2016)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.model.heads.interface import Head, HeadOutput, HeadSettings
from skypart.model.parameter_rules import ParameterRule, default_rules
from skypart.model.vit import Tokens


@dataclass(frozen=True)
class NetVladSettings(HeadSettings):
    """clusters: centres. channels: width of the tokens before aggregation. layer: the block read; 0: the last."""

    kind: ClassVar[str] = "netvlad"

    clusters: Annotated[int, Field(ge=1, le=4096)] = 64
    channels: Annotated[int, Field(ge=1, le=4096)] = 128
    layer: int = 0


class NetVladHead(Head):
    """Reduced tokens -> residual sums per cluster, each normalised -> one linear layer."""

    settings_class = NetVladSettings
    settings: NetVladSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        clusters, channels = self.settings.clusters, self.settings.channels
        self.reduce = nn.Linear(dim, channels)
        self.assign = nn.Linear(channels, clusters)
        self.centres = nn.Parameter(normalize(torch.randn(clusters, channels), dim=-1))
        self.project = nn.Linear(clusters * channels, settings.embedding_dim)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """Patches (b, n, dim) -> unit embeddings."""
        patches = normalize(self.reduce(tokens[0].patches), dim=-1)
        sums = residual_sums(patches, torch.softmax(self.assign(patches), dim=-1), self.centres)
        return HeadOutput(normalize(self.project(normalize(sums, dim=-1).flatten(1)), dim=-1))

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """No weight decay on the centres."""
        return default_rules(self, ("centres",))

    def extra_multiply_adds(self, patches: int) -> int:
        """The weighted sums."""
        return patches * self.settings.clusters * self.settings.channels


def residual_sums(patches: Tensor, assignment: Tensor, centres: Tensor) -> Tensor:
    """Sum over patches of a_ik (x_i - c_k): patches (b, n, c), assignment (b, n, k), centres (k, c) -> (b, k, c)."""
    return assignment.transpose(1, 2) @ patches - assignment.sum(dim=1)[..., None] * centres
