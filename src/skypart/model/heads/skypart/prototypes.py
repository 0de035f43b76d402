"""Prototypes compete for patch tokens; each aggregates its tokens into a part."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class PrototypeBank(nn.Module):
    """Learnable prototypes. Each patch is assigned by a softmax over prototypes, not over patches."""

    def __init__(self, count: int, dim: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.prototypes = nn.Parameter(torch.empty(count, dim))
        nn.init.orthogonal_(self.prototypes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Assign tokens (batch, patches, dim): (batch, patches, prototypes), summing to 1 over prototypes."""
        cosine = normalize(tokens, dim=-1) @ normalize(self.prototypes, dim=-1).T
        return torch.softmax(cosine / self.temperature, dim=-1)


class PartAggregation(nn.Module):
    """The assignment-weighted mean of each prototype's tokens, refined by a residual MLP."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.refine = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, tokens: Tensor, assignment: Tensor, visible: Tensor | None = None) -> Tensor:
        """Descriptors (batch, prototypes, dim) of tokens (batch, patches, dim), assigned (batch, patches, prototypes).

        visible: (batch, patches) bool; hidden tokens do not affect the result.
        """
        parts = weighted_mean(tokens, assignment, visible)
        return parts + self.refine(parts)  # type: ignore[no-any-return]


def weighted_mean(values: Tensor, assignment: Tensor, visible: Tensor | None = None) -> Tensor:
    """Mean (batch, prototypes, dim) of values (batch or 1, patches, dim), weighted by assignment (batch, patches,
    prototypes)."""
    if visible is not None:
        assignment = assignment * visible[..., None]
        values = values.masked_fill(~visible[..., None], 0.0)
    share = assignment / assignment.sum(dim=1, keepdim=True).clamp_min(1e-6)
    return share.transpose(1, 2) @ values


def patch_centres(grid: tuple[int, int], like: Tensor) -> Tensor:
    """Centres (1, rows * columns, 2) of the patches as (x, y) in [0, 1], with the device and dtype of `like`."""
    rows, columns = grid
    y = (torch.arange(rows, device=like.device, dtype=like.dtype) + 0.5) / rows
    x = (torch.arange(columns, device=like.device, dtype=like.dtype) + 0.5) / columns
    return torch.stack([x.repeat(rows), y.repeat_interleave(columns)], dim=-1)[None]
