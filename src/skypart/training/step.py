"""One training step: the frozen trunk once, student and moving average on top, all losses over the joined batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skypart.losses.geopart import GeoPartLoss, LossInputs, LossReport
from skypart.losses.masked_reconstruction import random_mask
from skypart.model.heads import Draws, Head, HeadOutput
from skypart.model.heads.interface import select_inputs
from skypart.model.shared_trunk import SharedTrunk, TrunkTokens
from skypart.model.skypart import SkyPart
from skypart.model.vit import VisionTransformer
from skypart.training.data import Batch
from skypart.training.distributed import gather
from skypart.training.precision import Precision, autocast
from skypart.training.recipe import DistillRecipe


def draw_step(head: Head, seed: int, step: int, images: int, patches: int, recipe: DistillRecipe) -> Draws:
    """The random numbers of one step for the joined batch of all processes. They depend only on (seed, step)."""
    state = int(np.random.SeedSequence([seed, step, 0xC4]).generate_state(1, np.uint64)[0] >> 1)
    generator = torch.Generator().manual_seed(state)
    return Draws(
        head=head.draw_noise(images, generator),
        masked=random_mask(images, patches, recipe.mar_ratio, generator),
        patches=torch.rand(images, patches, generator=generator).argsort(dim=1)[:, : min(recipe.patches, patches)],
    )


class TrainingStep(nn.Module):
    """Student and losses as one module, so that DistributedDataParallel sees every parameter."""

    def __init__(self, student: SkyPart, loss: GeoPartLoss, precision: Precision) -> None:
        super().__init__()
        self.student = student
        self.loss = loss
        self.precision = precision
        self.run_trunk: Callable[[Tensor], Any] = student.trunk

    def share_trunk(self, tokens: TrunkTokens) -> None:
        """Take the tokens of the frozen blocks from `tokens` where another run has put them."""
        self.run_trunk = SharedTrunk(self.student, tokens)

    def forward(
        self, batch: Batch, draws: Draws, average: SkyPart | None, teacher: Tensor | None, mar_ramp: float
    ) -> tuple[LossReport, HeadOutput]:
        """The losses over the batches of all ranks, and the student's output on this rank's batch.

        average: the moving average, or None. teacher: (b, teacher dim) features, or None.
        """
        images, learning, frozen = batch.images, self.precision.learning, self.precision.frozen
        backbone = self.student.backbone_interface
        # if all blocks learn, the patch embedding learns too, and the moving average has a trunk of its own
        separate = isinstance(backbone, VisionTransformer) and backbone.frozen_blocks == 0
        with autocast(images.device, learning if separate else frozen):
            trunk = self.run_trunk(images)
        with autocast(images.device, learning):
            output = self.student.finish(trunk, batch.altitude, draws.head)
        given = {
            "embedding": output.embedding,
            "location": batch.location,
            "is_drone": batch.is_drone,
            "altitude": batch.altitude,
        }
        if average is not None:
            with torch.no_grad(), autocast(images.device, frozen):
                given["ema_embedding"] = average.finish(average.trunk(images) if separate else trunk).embedding
        if teacher is not None:
            given["teacher"] = teacher
        return self.loss(self._loss_inputs(given, output, draws), {"mar": mar_ramp}), output.detach()

    def _loss_inputs(self, given: dict[str, Tensor], output: HeadOutput, draws: Draws) -> LossInputs:
        """The inputs that the losses need. Those of terms that compare images are gathered from all processes."""
        needs = self.loss.needs
        given = given | select_inputs(self.student.head, needs.joined | needs.local, output, draws)
        return LossInputs(
            joined={name: gather(tensor) for name, tensor in given.items() if name in needs.joined},
            local={name: tensor for name, tensor in given.items() if name in needs.local},
        )
