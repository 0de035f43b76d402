"""The CLS branch and the gate that fuses part, CLS and graph into one embedding."""

from typing import Literal, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.functional import normalize, relu

Readout: TypeAlias = Literal["full", "cls", "part", "no_graph"]
# Which of (part, CLS, graph) the embedding uses: the paper's ablations of the representation.
BRANCHES: dict[Readout, tuple[bool, bool, bool]] = {
    "full": (True, True, True),
    "cls": (False, True, False),
    "part": (True, False, False),
    "no_graph": (True, True, False),
}


class JointBatchNorm(nn.BatchNorm1d):
    """Batch norm over (batch, dim) with training statistics over all processes, on any device.

    torch's SyncBatchNorm runs only on GPUs; losses over the gathered batch need the same on CPUs.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(batch, dim) -> (batch, dim)."""
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        local = torch.cat([input.new_full((1,), len(input)), input.sum(0)])
        count, total = all_reduce(local).split([1, input.shape[1]])  # type: ignore[no-untyped-call]
        mean = total / count
        variance = all_reduce((input - mean).square().sum(0)) / count  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                factor = self.momentum or 0.1
                unbiased = variance * count / (count - 1).clamp_min(1.0)
                self.running_mean.lerp_(mean, factor)
                self.running_var.lerp_(unbiased, factor)
                self.num_batches_tracked += 1
        normalised: Tensor = (input - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return normalised


class ClsBranch(nn.Module):
    """ReLU(BN(W CLS))."""

    def __init__(self, dim: int, out: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, out, bias=False)
        self.norm = JointBatchNorm(out)

    def forward(self, cls: Tensor) -> Tensor:
        """(batch, dim) -> (batch, out)."""
        return relu(self.norm(self.project(cls)))


class FusionGate(nn.Module):
    """Predicts the weights of the part, CLS and graph branches: non-negative, with sum 1."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        last = nn.Linear(hidden, 3)
        nn.init.normal_(last.weight, std=1e-3)
        last.bias.data = torch.tensor([1.0, 0.0, 0.0])
        self.mlp = nn.Sequential(nn.Linear(3 * dim, hidden), nn.ReLU(), last)

    def forward(self, branches: Tensor, readout: Readout = "full") -> tuple[Tensor, Tensor]:
        """Fuse unit branches (batch, 3, dim): part, CLS, graph. Returns the embedding (batch, dim), unit rows, and the
        gate (batch, 3).

        A branch that `readout` leaves out gets weight 0 and is hidden from the gate.
        """
        kept = torch.tensor(BRANCHES[readout], device=branches.device)
        visible = branches.masked_fill(~kept[None, :, None], 0.0)
        logits = self.mlp(visible.flatten(1)).masked_fill(~kept, float("-inf"))
        gate = torch.softmax(logits, dim=-1)
        return normalize((gate[..., None] * visible).sum(dim=1), dim=-1), gate
