"""Altitude regression from the pooled parts, for images with known altitude."""

from collections.abc import Mapping
from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from skypart.losses.cosine import at_least_float32
from skypart.losses.term import LossContext, LossTerm


class AltitudeLoss(LossTerm):
    """Owns the head input_dim -> hidden -> 1, which is not part of the deployed model.

    offset, scale: metres; the head predicts (altitude - offset) / scale.
    """

    name = "altitude"
    group = "alt"

    def __init__(self, input_dim: int = 768, hidden: int = 256, offset: float = 150.0, scale: float = 150.0) -> None:
        super().__init__()
        self.offset, self.scale = offset, scale
        self.head = nn.Sequential(nn.Linear(input_dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """The input of the head is as wide as the pooled parts."""
        c = context.config
        return cls(context.widths["part_pooled"], c.altitude_hidden, c.altitude_offset, c.altitude_scale)

    def applies(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether any drone image has an altitude."""
        return bool(has_altitude(inputs["altitude"], inputs["is_drone"]).any())

    def forward(self, part_pooled: Tensor, altitude: Tensor, is_drone: Tensor) -> Tensor:
        """Mean SmoothL1 over drone images with known altitude; scalar.

        part_pooled (B, input_dim); altitude (B,) in metres, NaN where unknown; is_drone (B,) bool.
        """
        labelled = has_altitude(altitude, is_drone)
        chosen = part_pooled[labelled].to(next(self.head.parameters()).dtype)
        predicted = at_least_float32(self.head(chosen)).squeeze(-1)
        target = (altitude[labelled].to(predicted.dtype) - self.offset) / self.scale
        return F.smooth_l1_loss(predicted, target, reduction="sum") / max(len(target), 1)


def has_altitude(altitude: Tensor, is_drone: Tensor) -> Tensor:
    """Bool (B,): True for drone images whose altitude (B,) is finite."""
    return is_drone & altitude.isfinite()
