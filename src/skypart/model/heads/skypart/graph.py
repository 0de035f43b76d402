"""The layout readout: graph attention over the active prototypes of one view."""

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu


class GraphAttention(nn.Module):
    """One layer of graph attention over a fully connected graph with self-loops, heads concatenated."""

    def __init__(self, dim: int, heads: int, width: int, slope: float = 0.2) -> None:
        super().__init__()
        self.heads, self.width, self.slope = heads, width, slope
        self.project = nn.Linear(dim, heads * width, bias=False)
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.zeros(heads * width))
        for parameter in (self.project.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter)

    def forward(self, nodes: Tensor, active: Tensor) -> Tensor:
        """Nodes (batch, n, dim) -> (batch, n, heads * width). Nodes attend only to `active` (batch, n) nodes."""
        batch, count, _ = nodes.shape
        values = self.project(nodes).reshape(batch, count, self.heads, self.width)
        source = (values * self.source).sum(-1)
        target = (values * self.target).sum(-1)
        scores = leaky_relu(target[:, :, None] + source[:, None], self.slope)
        scores = scores.masked_fill(~active[:, None, :, None], float("-inf"))
        mixed = torch.einsum("bijh,bjhw->bihw", torch.softmax(scores, dim=2), values)
        return mixed.flatten(2) + self.bias


class GraphReadout(nn.Module):
    """Graph attention layers over [descriptor; centroid] nodes, then a salience-weighted mean."""

    def __init__(self, dim: int, layers: int, heads: int, out: int) -> None:
        super().__init__()
        width = dim // heads
        sizes = [dim + 2, *[heads * width] * (layers - 1)]
        self.layers = nn.ModuleList(GraphAttention(size, heads, width) for size in sizes)
        self.project = nn.Linear(heads * width, out)
        self.norm = nn.LayerNorm(out)

    def forward(self, descriptors: Tensor, centroids: Tensor, weight: Tensor, active: Tensor) -> Tensor:
        """Read the layout of descriptors (batch, n, dim) at centroids (batch, n, 2): (batch, out).

        weight: (batch, n) salience. active: (batch, n) bool, the open prototypes.
        """
        nodes = torch.cat([descriptors, centroids], dim=-1)
        for index, layer in enumerate(self.layers):
            nodes = layer(elu(nodes) if index else nodes, active)
        share = weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-6)
        return self.norm(self.project((share[..., None] * nodes).sum(dim=1)))  # type: ignore[no-any-return]
