"""Altitude regression from the pooled part tokens, where the altitude is known."""

from torch import Tensor, nn
from torch.nn import functional as F

from skypart.losses.cosine import at_least_float32


class AltitudeLoss(nn.Module):
    """Owns the head input_dim -> hidden -> 1, which is not part of the deployed model.

    offset, scale: metres; the head predicts (altitude - offset) / scale.
    """

    def __init__(self, input_dim: int = 768, hidden: int = 256, offset: float = 150.0, scale: float = 150.0) -> None:
        super().__init__()
        self.offset, self.scale = offset, scale
        self.head = nn.Sequential(nn.Linear(input_dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, part_pooled: Tensor, altitude: Tensor, is_drone: Tensor) -> Tensor:
        """Mean SmoothL1 over drone images with a label; scalar.

        part_pooled (B, input_dim); altitude (B,) in metres, NaN where unknown; is_drone (B,) bool.
        """
        labelled = has_altitude(altitude, is_drone)
        chosen = part_pooled[labelled].to(next(self.head.parameters()).dtype)
        predicted = at_least_float32(self.head(chosen)).squeeze(-1)
        target = (altitude[labelled].to(predicted.dtype) - self.offset) / self.scale
        return F.smooth_l1_loss(predicted, target, reduction="sum") / max(len(target), 1)


def has_altitude(altitude: Tensor, is_drone: Tensor) -> Tensor:
    """Bool (B,): drone images whose altitude (B,) is a number."""
    return is_drone & altitude.isfinite()
