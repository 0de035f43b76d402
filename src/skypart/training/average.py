"""The exponential moving average (EMA) of the student, used as a second teacher."""

import copy

import torch
from torch import Tensor

from skypart.model.skypart import SkyPart


class MovingAverage:
    """A copy of the model in evaluation mode. Each step: average <- decay * average + (1 - decay) * model."""

    def __init__(self, model: SkyPart, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: SkyPart) -> None:
        """Move the average towards the student by one step. Skips frozen parameters and copies counters."""
        for parameter, average in zip(model.parameters(), self.model.parameters(), strict=True):
            if parameter.requires_grad:
                average.lerp_(parameter, 1 - self.decay)
        student_buffers = dict(model.named_buffers())
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point() and "running" in name:
                buffer.lerp_(student_buffers[name], 1 - self.decay)
            else:
                buffer.copy_(student_buffers[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The state dict of the average."""
        return self.model.state_dict()
