"""The exponential moving average of the student, which it is distilled from."""

import copy

import torch
from torch import Tensor

from skypart.model.skypart import SkyPart


class MovingAverage:
    """A copy of the model that follows it: average <- decay * average + (1 - decay) * model, in evaluation mode."""

    def __init__(self, model: SkyPart, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: SkyPart) -> None:
        """Follow the student by one step; counters and what is frozen are copied."""
        theirs = dict(model.named_parameters()) | dict(model.named_buffers())
        for name, mine in (*self.model.named_parameters(), *self.model.named_buffers()):
            other = theirs[name]
            if other.is_floating_point() and (other.requires_grad or "running" in name):
                mine.lerp_(other, 1 - self.decay)
            else:
                mine.copy_(other)

    def moving(self) -> dict[str, Tensor]:
        """The state dict of the average."""
        return self.model.state_dict()
