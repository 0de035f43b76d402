"""GeoPartLoss: all terms in four groups under Kendall's uncertainty weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.losses.altitude import AltitudeLoss, has_altitude
from skypart.losses.circle import circle_loss
from skypart.losses.config import LossConfig
from skypart.losses.diversity import diversity_loss
from skypart.losses.info_nce import InfoNceLoss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss
from skypart.losses.patch_nce import patch_nce_loss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from skypart.losses.self_distillation import self_distillation_loss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.losses.uapa import uapa_loss


@dataclass(frozen=True)
class LossBatch:
    """One joined batch of B images; a term whose tensors are None is left out.

    The four tensors of MAR may hold the b <= B images of one process only.
    """

    embedding: Tensor  # (B, D)
    location: Tensor  # (B,) int64 in [0, locations)
    is_drone: Tensor  # (B,) bool
    tokens: Tensor | None = None  # (b, N, C) modulated tokens, MAR's target
    assignment: Tensor | None = None  # (b, N, K)
    masked: Tensor | None = None  # (b, N) bool
    masked_descriptors: Tensor | None = None  # (b, K, C) aggregated from the visible tokens only
    branches: Tensor | None = None  # (B, branches, D) unit rows
    patch_tokens: Tensor | None = None  # (B, n, C) patches drawn for patch NCE
    patch_prototype: Tensor | None = None  # (B, n) int64
    prototypes: Tensor | None = None  # (K, C)
    teacher: Tensor | None = None  # (B, T)
    ema_embedding: Tensor | None = None  # (B, D)
    altitude: Tensor | None = None  # (B,) metres, NaN where unknown
    part_pooled: Tensor | None = None  # (B, part_pooled_dim)
    mar_weight: float = 1.0  # ramp 0..1


@dataclass(frozen=True)
class LossReport:
    """What one batch gave; only `total` is in the graph.

    total: sum over groups of exp(-s_g) L_g + s_g, scalar.
    groups: L_g of the groups present. terms: every term present, before any weight. weights: exp(-s_g).
    """

    total: Tensor
    groups: dict[str, Tensor]
    terms: dict[str, Tensor]
    weights: dict[str, Tensor]


class GeoPartLoss(nn.Module):
    """The training objective for a number of training locations.

    Its parameters, all at the head's learning rate but the proxies (see `parameter_roles`):
    log_variance.{align,part,distill,alt} (s_g), info_nce.log_scale, proxy_anchor.proxies, mar.decoder.*,
    teacher.project.weight, teacher.norm.*, altitude.head.*. What is switched off has no parameters.
    """

    def __init__(
        self,
        config: LossConfig,
        locations: int,
        embedding_dim: int = 768,
        part_dim: int = 256,
        teacher_dim: int = 768,
        part_pooled_dim: int = 768,
    ) -> None:
        super().__init__()
        self.config = c = config
        if locations < 1:
            raise SkyPartError(f"GeoPartLoss was given {locations} training locations; it needs at least 1")
        on = [group for group in ("align", "part", "distill", "alt") if getattr(c, group)]
        if not on:
            raise SkyPartError("all loss groups are off; switch on at least one of align, part, distill, alt")
        self.log_variance = nn.ParameterDict({group: nn.Parameter(torch.zeros(())) for group in on})
        if c.align and c.proxy_anchor:
            self.proxy_anchor = ProxyAnchorLoss(locations, embedding_dim, c.proxy_delta, c.proxy_alpha)
        if c.align and c.info_nce:
            self.info_nce = InfoNceLoss(c.info_nce_temperature, c.info_nce_smoothing, c.info_nce_max_scale)
        if c.part and c.mar:
            self.mar = MaskedReconstructionLoss(part_dim, c.mar_hidden)
        if c.distill and c.teacher:
            self.teacher = TeacherDistillationLoss(embedding_dim, teacher_dim)
        if c.alt:
            self.altitude = AltitudeLoss(part_pooled_dim, c.altitude_hidden, c.altitude_offset, c.altitude_scale)

    def forward(self, batch: LossBatch) -> LossReport:
        """Weigh the terms the batch has tensors for; a group without any adds neither loss nor s_g."""
        groups: dict[str, Tensor] = {}
        terms: dict[str, Tensor] = {}
        total = batch.embedding.new_zeros((), dtype=torch.promote_types(batch.embedding.dtype, torch.float32))
        for group, log_variance in self.log_variance.items():
            found = self._group_terms(group)(batch)
            if not found:
                continue
            terms |= found
            groups[group] = torch.stack([self._weight(term, batch) * loss for term, loss in found.items()]).sum()
            total = total + torch.exp(-log_variance) * groups[group] + log_variance
        return LossReport(
            total,
            {group: loss.detach() for group, loss in groups.items()},
            {term: loss.detach() for term, loss in terms.items()},
            {group: torch.exp(-s.detach()) for group, s in self.log_variance.items()},
        )

    def parameter_roles(self) -> dict[str, str]:
        """Role of every parameter by name, for the optimiser.

        "proxies": 10 x the head's learning rate; "no_decay": s_g, scale, norms, biases; "decay": the rest.
        """
        return {name: _role(name, parameter) for name, parameter in self.named_parameters()}

    def _weight(self, term: str, batch: LossBatch) -> float:
        ramp = batch.mar_weight if term == "mar" else 1.0
        return ramp * float(getattr(self.config, f"{term}_weight", 1.0))  # altitude is alone in its group

    def _group_terms(self, group: str) -> Callable[[LossBatch], dict[str, Tensor]]:
        return {"align": self._align, "part": self._part, "distill": self._distill, "alt": self._alt}[group]

    def _align(self, batch: LossBatch) -> dict[str, Tensor]:
        c, found = self.config, dict[str, Tensor]()
        if c.circle:
            found["circle"] = circle_loss(
                batch.embedding, batch.location, batch.is_drone, c.circle_margin, c.circle_gamma
            )
        if c.proxy_anchor:
            found["proxy_anchor"] = self.proxy_anchor(batch.embedding, batch.location)
        if c.info_nce:
            found["info_nce"] = self.info_nce(batch.embedding, batch.location, batch.is_drone)
        if c.branches and batch.branches is not None:
            each = [self.info_nce(branch, batch.location, batch.is_drone) for branch in batch.branches.unbind(1)]
            found["branches"] = torch.stack(each).mean()
        if c.patch_nce and batch.patch_tokens is not None:
            prototype = _needed(batch.patch_prototype, "patch_prototype", "patch_tokens")
            found["patch_nce"] = patch_nce_loss(
                batch.patch_tokens, prototype, batch.location, batch.is_drone, c.patch_nce_temperature
            )
        if c.uapa:
            found["uapa"] = uapa_loss(
                batch.embedding,
                self.proxy_anchor.proxies,
                batch.location,
                batch.is_drone,
                c.proxy_alpha,
                c.uapa_temperature,
                c.uapa_direction,
            )
        return found

    def _part(self, batch: LossBatch) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.config.mar and batch.masked is not None:
            tokens = _needed(batch.tokens, "tokens", "masked")
            assignment = _needed(batch.assignment, "assignment", "masked")
            descriptors = _needed(batch.masked_descriptors, "masked_descriptors", "masked")
            found["mar"] = self.mar(tokens, assignment, batch.masked, descriptors)
        if self.config.diversity and batch.prototypes is not None:
            found["diversity"] = diversity_loss(batch.prototypes)
        return found

    def _distill(self, batch: LossBatch) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.config.teacher and batch.teacher is not None:
            found["teacher"] = self.teacher(batch.embedding, batch.teacher)
        if self.config.ema and batch.ema_embedding is not None:
            found["ema"] = self_distillation_loss(batch.embedding, batch.ema_embedding)
        return found

    def _alt(self, batch: LossBatch) -> dict[str, Tensor]:
        if batch.altitude is None or not bool(has_altitude(batch.altitude, batch.is_drone).any()):
            return {}
        part_pooled = _needed(batch.part_pooled, "part_pooled", "altitude")
        return {"altitude": self.altitude(part_pooled, batch.altitude, batch.is_drone)}


def _needed(value: Tensor | None, name: str, companion: str) -> Tensor:
    if value is None:
        raise SkyPartError(f"the batch of losses has {companion} but not {name}; pass both or neither")
    return value


def _role(name: str, parameter: Tensor) -> str:
    if name == "proxy_anchor.proxies":
        return "proxies"
    return "decay" if parameter.ndim > 1 else "no_decay"
