"""SALAD: patches are transported to clusters and a dustbin by Sinkhorn's algorithm (Izquierdo and Civera, 2024)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.errors import SkyPartError
from skypart.model.heads.interface import Head, HeadOutput, HeadSettings
from skypart.model.parameter_rules import ParameterRule, default_rules
from skypart.model.vit import Tokens

Count = Annotated[int, Field(ge=1, le=4096)]


@dataclass(frozen=True)
class SaladSettings(HeadSettings):
    """clusters, channels: their product and scene_channels, from the CLS token, make up embedding_dim.

    hidden: width of the three MLPs. iterations: of Sinkhorn. layer: the block that is read; 0: the last.
    """

    kind: ClassVar[str] = "salad"

    clusters: Count = 16
    channels: Count = 32
    scene_channels: Count = 256
    hidden: Count = 512
    iterations: Count = 3
    layer: int = 0

    def __post_init__(self) -> None:
        """Raise where the parts do not add up to the embedding."""
        total = self.clusters * self.channels + self.scene_channels
        if total != self.embedding_dim:
            raise SkyPartError(
                f"clusters * channels + scene_channels = {total} must equal embedding_dim = {self.embedding_dim}"
            )


class SaladHead(Head):
    """Cluster descriptors by optimal transport, and a descriptor of the scene from the CLS token."""

    settings_class = SaladSettings
    settings: SaladSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        s = self.settings
        self.scene = _mlp(dim, s.hidden, s.scene_channels)
        self.features = _mlp(dim, s.hidden, s.channels)
        self.scores = _mlp(dim, s.hidden, s.clusters)
        self.dustbin = nn.Parameter(torch.tensor(1.0))

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """CLS (b, dim) and patches (b, n, dim) -> unit embeddings."""
        cls, patches = tokens[0].cls, tokens[0].patches
        plan = transport_plan(self.scores(patches), self.dustbin, self.settings.iterations)
        clusters = normalize(plan.transpose(1, 2) @ self.features(patches), dim=-1)
        scene = normalize(self.scene(cls), dim=-1)
        return HeadOutput(normalize(torch.cat([scene, clusters.flatten(1)], dim=-1), dim=-1))

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """As usual; the dustbin's score is a scalar and not decayed."""
        return default_rules(self)

    def extra_multiply_adds(self, patches: int) -> int:
        """The weighted sums."""
        return patches * self.settings.clusters * self.settings.channels


def _mlp(dim: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, out))


def transport_plan(scores: Tensor, dustbin: Tensor, iterations: int) -> Tensor:
    """Share (b, n, m) of each of n patches that goes to each of m clusters, from scores (b, n, m).

    A dustbin of a fixed score takes what belongs nowhere: every patch has mass 1, every cluster may hold 1 and the
    dustbin n - m (at least 1), up to a common scale. The dustbin's column is dropped from the result.
    """
    batch, patches, clusters = scores.shape
    scores = torch.cat([scores, dustbin.to(scores).expand(batch, patches, 1)], dim=-1)
    spare = max(patches - clusters, 1)
    scale = -math.log(patches)
    log_rows = scores.new_full((patches,), scale)
    log_columns = scores.new_full((clusters + 1,), -math.log(clusters + spare))
    log_columns[-1] += math.log(spare)
    u, v = scores.new_zeros(batch, patches), scores.new_zeros(batch, clusters + 1)
    for _ in range(iterations):
        u = log_rows - torch.logsumexp(scores + v[:, None], dim=2)
        v = log_columns - torch.logsumexp(scores + u[..., None], dim=1)
    plan = torch.exp(scores + u[..., None] + v[:, None] - scale)
    return plan[..., :-1]
