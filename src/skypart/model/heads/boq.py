"""BoQ: learned queries look for what matters in the tokens of several encoder layers (Ali-bey et al., 2024)."""

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
class BoqSettings(HeadSettings):
    """channels: width inside the head, divisible by heads. queries: per layer. layers: encoder layers.

    rows: how many mixtures of all answers make up the embedding, rows * channels = embedding_dim.
    layer: the block of the backbone that is read; 0: the last.
    """

    kind: ClassVar[str] = "boq"

    channels: Count = 192
    heads: Count = 6
    queries: Count = 32
    layers: Count = 2
    rows: Count = 4
    layer: int = 0

    def __post_init__(self) -> None:
        """Raise for widths that do not fit each other."""
        if self.channels % self.heads:
            raise SkyPartError(f"heads = {self.heads} must divide channels = {self.channels}")
        if self.rows * self.channels != self.embedding_dim:
            raise SkyPartError(
                f"rows * channels = {self.rows * self.channels} must equal embedding_dim = {self.embedding_dim}"
            )


class BagOfQueries(nn.Module):
    """One layer: the tokens are encoded, the learned queries attend to each other, then to the tokens."""

    def __init__(self, channels: int, heads: int, queries: int) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(channels, heads, 4 * channels, dropout=0.0, batch_first=True)
        self.queries = nn.Parameter(torch.randn(1, queries, channels))
        self.among = nn.MultiheadAttention(channels, heads, batch_first=True)
        self.norm_among = nn.LayerNorm(channels)
        self.across = nn.MultiheadAttention(channels, heads, batch_first=True)
        self.norm_across = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (b, n, c) -> encoded tokens (b, n, c) and answers (b, queries, c)."""
        tokens = self.encoder(tokens)
        queries = self.queries.expand(len(tokens), -1, -1)
        queries = self.norm_among(queries + self.among(queries, queries, queries, need_weights=False)[0])
        answers = self.norm_across(self.across(queries, tokens, tokens, need_weights=False)[0])
        return tokens, answers


class BoqHead(Head):
    """Answers of all layers, mixed along the query axis into a few rows."""

    settings_class = BoqSettings
    settings: BoqSettings

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        super().__init__(settings, dim)
        s = self.settings
        self.reduce = nn.Linear(dim, s.channels)
        self.norm = nn.LayerNorm(s.channels)
        self.bags = nn.ModuleList(BagOfQueries(s.channels, s.heads, s.queries) for _ in range(s.layers))
        self.mix = nn.Linear(s.layers * s.queries, s.rows)

    def taps(self, depth: int) -> tuple[int, ...]:
        """One block."""
        return (self.settings.layer or depth,)

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> HeadOutput:
        """Patches (b, n, dim) -> unit embeddings."""
        encoded = self.norm(self.reduce(tokens[0].patches))
        answers = []
        for bag in self.bags:
            encoded, found = bag(encoded)
            answers.append(found)
        mixed = self.mix(torch.cat(answers, dim=1).transpose(1, 2))
        return HeadOutput(normalize(mixed.flatten(1), dim=-1))

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """No weight decay on the queries."""
        rules = default_rules(self)
        return {name: rule._replace(decay=False) if name.endswith(".queries") else rule for name, rule in rules.items()}
