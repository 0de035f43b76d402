"""GeoPartLoss: all terms, in four groups with Kendall's uncertainty weights."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from skypart.errors import SkyPartError
from skypart.losses.altitude import AltitudeLoss
from skypart.losses.circle import CircleLoss
from skypart.losses.config import LossConfig
from skypart.losses.diversity import DiversityLoss
from skypart.losses.info_nce import BranchLoss, InfoNceLoss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss
from skypart.losses.multi_similarity import MultiSimilarityLoss
from skypart.losses.part_transport import PartTransportLoss
from skypart.losses.patch_mae import PatchMaeLoss
from skypart.losses.patch_nce import PatchNceLoss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from skypart.losses.self_distillation import SelfDistillationLoss
from skypart.losses.sparsity import SparsityLoss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.losses.term import Group, LossContext, LossTerm
from skypart.losses.triplet import TripletLoss
from skypart.losses.uapa import UapaLoss
from skypart.model.parameter_rules import ParameterRule

TERMS: tuple[type[LossTerm], ...] = (
    CircleLoss,
    ProxyAnchorLoss,
    InfoNceLoss,
    BranchLoss,
    PatchNceLoss,
    UapaLoss,
    TripletLoss,
    MultiSimilarityLoss,
    PartTransportLoss,
    MaskedReconstructionLoss,
    DiversityLoss,
    SparsityLoss,
    PatchMaeLoss,
    TeacherDistillationLoss,
    SelfDistillationLoss,
    AltitudeLoss,
)
"""All terms, in the order in which they are built and computed. A term may use inputs that an earlier one provides."""
WIDTHS = {"embedding": 768, "tokens": 256, "teacher": 768, "part_pooled": 768}
"""Size of the last axis of inputs in the paper's model."""


class Needs(NamedTuple):
    """Names of the inputs that the terms need. joined: gathered from all processes. local: of this process only."""

    joined: frozenset[str]
    local: frozenset[str]


@dataclass(frozen=True)
class LossInputs:
    """The inputs of one batch by name, listed in docs/losses.md. Terms without their inputs are left out.

    joined: for the B images of all processes. local: for the b <= B images of this process.
    """

    joined: Mapping[str, Tensor]
    local: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class LossReport:
    """The losses of one batch. Only `total` has a graph.

    total: sum over groups of exp(-s_g) L_g + s_g, scalar.
    groups: L_g of the groups that were computed. terms: every computed term, unweighted. weights: exp(-s_g).
    """

    total: Tensor
    groups: dict[str, Tensor]
    terms: dict[str, Tensor]
    weights: dict[str, Tensor]


class GeoPartLoss(nn.Module):
    """The training objective for a number of training locations.

    widths: size of the last axis of the inputs for which terms build layers. available: names of the inputs that
    batches will have (default: all). Terms that need other inputs are not built; `left_out` maps them to those inputs.
    Each term is a submodule under its name; log_variance.{align,part,distill,alt} are the s_g. Terms and groups that
    are off have no parameters.
    """

    def __init__(
        self,
        config: LossConfig,
        locations: int,
        widths: Mapping[str, int] = WIDTHS,
        available: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if locations < 1:
            raise SkyPartError(f"GeoPartLoss got {locations} training locations; it needs at least 1")
        on = [group for group in get_args(Group) if getattr(config, group)]
        if not on:
            raise SkyPartError("all loss groups are off; switch on at least one of align, part, distill, alt")
        self.log_variance = nn.ParameterDict({group: nn.Parameter(torch.zeros(())) for group in on})
        self.left_out: dict[str, list[str]] = {}
        self._names: list[str] = []
        provided: set[str] = set()
        for term in TERMS:
            if term.group not in on or not getattr(config, term.name, True):  # altitude is alone in its group
                continue
            missing = [] if available is None else [n for n in term.needs if n not in {*available, *provided}]
            if missing:
                self.left_out[term.name] = missing
                continue
            built = term.build(LossContext(config, locations, widths))
            self.add_module(term.name, built)
            self._names.append(term.name)
            provided |= set(built.provides())

    @property
    def terms(self) -> list[LossTerm]:
        """The terms that were built, in order."""
        return [cast(LossTerm, getattr(self, name)) for name in self._names]

    @property
    def needs(self) -> Needs:
        """The inputs that the terms need."""
        terms = self.terms
        provided = {name for term in terms for name in term.provides()}
        names = [{n for term in terms if term.joined == joined for n in term.needs} for joined in (True, False)]
        return Needs(frozenset(names[0] - provided | {"embedding"}), frozenset(names[1] - provided))

    def forward(self, inputs: LossInputs, ramps: Mapping[str, float] | None = None) -> LossReport:
        """Compute and weight all terms that have their inputs. A group without such a term adds no loss and no s_g.

        ramps: extra factors of terms by name, such as the ramp of masked reconstruction at the start of training.
        """
        found: dict[str, dict[str, Tensor]] = {group: {} for group in self.log_variance}
        provided: dict[str, Tensor] = {}
        for term in self.terms:
            given = {**(inputs.joined if term.joined else inputs.local), **provided}
            if _has_all_inputs(term, given, _COMMON | provided.keys()) and term.applies(given):
                found[term.group][term.name] = term(**{name: given[name] for name in term.needs})
            provided |= term.provides()
        groups: dict[str, Tensor] = {}
        embedding = inputs.joined["embedding"]
        total = embedding.new_zeros((), dtype=torch.promote_types(embedding.dtype, torch.float32))
        for group, log_variance in self.log_variance.items():
            if found[group]:
                weighted = [self._weight(name, ramps or {}) * loss for name, loss in found[group].items()]
                groups[group] = torch.stack(weighted).sum()
                total = total + torch.exp(-log_variance) * groups[group] + log_variance
        return LossReport(
            total,
            {group: loss.detach() for group, loss in groups.items()},
            {name: loss.detach() for terms in found.values() for name, loss in terms.items()},
            {group: torch.exp(-s.detach()) for group, s in self.log_variance.items()},
        )

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """How each parameter learns, by name, from the rules of its term; s_g without weight decay."""
        rules = {f"log_variance.{group}": ParameterRule(decay=False) for group in self.log_variance}
        for term in self.terms:
            rules |= {f"{term.name}.{name}": rule for name, rule in term.parameter_rules().items()}
        return rules

    def _weight(self, term: str, ramps: Mapping[str, float]) -> float:
        return ramps.get(term, 1.0) * float(getattr(self.config, f"{term}_weight", 1.0))


_COMMON = frozenset({"embedding", "location", "is_drone"})
"""The inputs that every batch has."""


def _has_all_inputs(term: LossTerm, given: Mapping[str, Tensor], common: Collection[str]) -> bool:
    """Whether a term has all its inputs. Raises if it has only some of those that are not `common`."""
    missing = [name for name in term.needs if name not in given]
    present = [name for name in term.needs if name in given and name not in common]
    if missing and present:
        raise SkyPartError(
            f"the loss {term.name} got {', '.join(present)} but not {', '.join(missing)}; pass all or none of them"
        )
    return not missing
