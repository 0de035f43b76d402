"""Are the prototypes alive? Usage, entropy and active count of a batch, and a warning when they collapse."""

import math
from dataclasses import dataclass

import torch

from skypart.model.skypart import SkyPartOutput


@dataclass(frozen=True)
class Health:
    """Means over a batch.

    usage_entropy: entropy of the prototypes' shares over log k; 1: all equally used, 0: one takes all.
    patch_entropy: mean entropy of a patch's assignment over log k; 0: every patch commits to one prototype.
    largest: the share of the most used prototype. active: open prototypes an image. gate: part, CLS, graph.
    """

    usage_entropy: float
    patch_entropy: float
    largest: float
    active: float
    gate: tuple[float, float, float]

    @property
    def collapsed(self) -> bool:
        """Whether one prototype holds almost everything."""
        return self.largest > 0.8 or self.usage_entropy < 0.25

    def scalars(self) -> dict[str, float]:
        """By name, for the log."""
        part, cls, graph = self.gate
        return {
            "usage_entropy": self.usage_entropy,
            "patch_entropy": self.patch_entropy,
            "largest_share": self.largest,
            "active": self.active,
            "gate_part": part,
            "gate_cls": cls,
            "gate_graph": graph,
        }


@torch.no_grad()
def measure_health(output: SkyPartOutput) -> Health:
    """Health of the prototypes in one forward pass."""
    assignment = output.assignment.float()
    scale = math.log(max(2, assignment.shape[-1]))
    usage = assignment.mean(dim=(0, 1))
    part, cls, graph = output.gate.mean(dim=0).tolist()
    return Health(
        usage_entropy=float(torch.special.entr(usage).sum()) / scale,
        patch_entropy=float(torch.special.entr(assignment).sum(-1).mean()) / scale,
        largest=float(usage.max()),
        active=float(output.active.float().sum(1).mean()),
        gate=(part, cls, graph),
    )
