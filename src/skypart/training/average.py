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
        """Follow the student by one step; counters are copied, what is frozen is equal already."""
        for theirs, learned in zip(model.parameters(), self.model.parameters(), strict=True):
            if theirs.requires_grad:
                learned.lerp_(theirs, 1 - self.decay)
        others = dict(model.named_buffers())
        for name, mine in self.model.named_buffers():
            if mine.is_floating_point() and "running" in name:
                mine.lerp_(others[name], 1 - self.decay)
            else:
                mine.copy_(others[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The state dict of the average."""
        return self.model.state_dict()
