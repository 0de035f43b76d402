"""One training step: the frozen trunk once, student and moving average on it, all losses over the joined batch."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skypart.losses.geopart import GeoPartLoss, LossBatch, LossReport
from skypart.losses.masked_reconstruction import random_mask
from skypart.model.fusion import BRANCHES
from skypart.model.salience import gumbel_noise
from skypart.model.skypart import SkyPart, SkyPartOutput
from skypart.model.vit import VisionTransformer
from skypart.training.data import Batch
from skypart.training.distributed import gather
from skypart.training.precision import Precision, autocast
from skypart.training.recipe import DistillRecipe


@dataclass(frozen=True)
class Chance:
    """The random numbers of one step for b images: a function of (seed, step) and the place in the joined batch.

    noise: (b, k) Gumbel. masked: (b, n) bool, for MAR. patches: (b, m) indices of patches, for patch NCE.
    """

    noise: Tensor
    masked: Tensor
    patches: Tensor

    @classmethod
    def draw(cls, seed: int, step: int, images: int, prototypes: int, patches: int, recipe: DistillRecipe) -> "Chance":
        """Draw for the joined batch of all processes."""
        state = int(np.random.SeedSequence([seed, step, 0xC4]).generate_state(1, np.uint64)[0] >> 1)
        generator = torch.Generator().manual_seed(state)
        count = min(recipe.patches, patches)
        return cls(
            noise=gumbel_noise(torch.empty(images, prototypes), generator),
            masked=random_mask(images, patches, recipe.mar_ratio, generator),
            patches=torch.rand(images, patches, generator=generator).argsort(dim=1)[:, :count],
        )

    def part(self, rows: slice, device: torch.device) -> "Chance":
        """The rows of one process, on its device."""
        return Chance(self.noise[rows].to(device), self.masked[rows].to(device), self.patches[rows].to(device))


class TrainingStep(nn.Module):
    """Student and losses as one module, so that distributed data parallel sees every parameter."""

    def __init__(self, student: SkyPart, loss: GeoPartLoss, precision: Precision) -> None:
        super().__init__()
        self.student = student
        self.loss = loss
        self.precision = precision

    def forward(
        self, batch: Batch, chance: Chance, average: SkyPart | None, teacher: Tensor | None, mar_weight: float
    ) -> tuple[LossReport, SkyPartOutput]:
        """Losses of this rank's batch, joined with all others', and the student's output on it.

        average: the moving average, or None. teacher: (b, teacher dim) features, or None.
        """
        images, learning, still = batch.images, self.precision.learning, self.precision.still
        backbone = self.student.tokens_from
        # where all blocks learn, so do the embeddings, and the average has its own
        own = isinstance(backbone, VisionTransformer) and backbone.frozen_blocks == 0
        with autocast(images.device, learning if own else still):
            trunk = self.student.trunk(images)
        with autocast(images.device, learning):
            output = self.student.finish(trunk, batch.altitude, chance.noise)
        followed = None
        if average is not None:
            with torch.no_grad(), autocast(images.device, still):
                followed = average.finish(average.trunk(images) if own else trunk).embedding
        return self.loss(self._loss_batch(batch, chance, output, followed, teacher, mar_weight)), _detached(output)

    def _loss_batch(
        self,
        batch: Batch,
        chance: Chance,
        output: SkyPartOutput,
        followed: Tensor | None,
        teacher: Tensor | None,
        mar_weight: float,
    ) -> LossBatch:
        """Join what the losses compare across images; MAR and diversity stay with each process."""
        config = self.loss.config
        patches = config.align and config.patch_nce
        mar = config.part and config.mar
        altitude = config.alt
        visible = ~chance.masked
        return LossBatch(
            embedding=gather(output.embedding),
            location=gather(batch.location),
            is_drone=gather(batch.is_drone),
            tokens=output.tokens if mar else None,
            assignment=output.assignment if mar else None,
            masked=chance.masked if mar else None,
            masked_descriptors=self.student.aggregation(output.tokens, output.assignment, visible) if mar else None,
            branches=gather(self._branches(output)) if config.align and config.branches else None,
            patch_tokens=gather(_pick(output.tokens, chance.patches)) if patches else None,
            patch_prototype=(gather(output.assignment.argmax(-1).gather(1, chance.patches)) if patches else None),
            prototypes=self.student.bank.prototypes if config.part and config.diversity else None,
            teacher=gather(teacher) if teacher is not None else None,
            ema_embedding=gather(followed) if followed is not None else None,
            altitude=gather(batch.altitude) if altitude else None,
            part_pooled=gather(output.selected) if altitude else None,
            mar_weight=mar_weight,
        )

    def _branches(self, output: SkyPartOutput) -> Tensor:
        """The branches that enter the embedding, (b, branches, d)."""
        every = (output.part, output.cls, output.graph)
        kept = BRANCHES[self.student.config.readout]
        return torch.stack([branch for branch, used in zip(every, kept, strict=True) if used], dim=1)


def _detached(output: SkyPartOutput) -> SkyPartOutput:
    """The output as plain numbers: distributed data parallel awaits gradients through all that hangs on a graph."""
    tensors: dict[str, Any] = {k: value.detach() for k, value in vars(output).items() if isinstance(value, Tensor)}
    return replace(output, **tensors)


def _pick(tokens: Tensor, patches: Tensor) -> Tensor:
    """Tokens (b, n, c) at patches (b, m): (b, m, c)."""
    return tokens.gather(1, patches[..., None].expand(-1, -1, tokens.shape[-1]))
