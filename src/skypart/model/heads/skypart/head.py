"""The paper's head: patch tokens -> parts -> part, CLS and graph branches -> one embedding."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import normalize

from skypart.embedding.interface import Explanation
from skypart.errors import SkyPartError
from skypart.model.heads.interface import Draws, Head, HeadOutput, HeadSettings, Readouts
from skypart.model.heads.skypart.film import AltitudeFiLM
from skypart.model.heads.skypart.fusion import BRANCHES, ClsBranch, FusionGate, Readout
from skypart.model.heads.skypart.graph import GraphReadout
from skypart.model.heads.skypart.pooling import PartPooling
from skypart.model.heads.skypart.prototypes import PartAggregation, PrototypeBank, patch_centres, weighted_mean
from skypart.model.heads.skypart.salience import Salience, SalienceGate, gumbel_noise
from skypart.model.parameter_rules import ParameterRule, default_rules
from skypart.model.vit import Tokens

Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=1e-6)]


@dataclass(frozen=True)
class HeadConfig(HeadSettings):
    """Settings of the paper's head. Defaults are the paper's values; ablations are switches.

    altitude_bins: metres, one FiLM bin each; empty if altitudes are unknown.
    patch_layer, cls_layer: the block (1..depth) whose tokens the parts and the CLS branch read; 0: the last.
    readout: which branches the embedding uses: all (`full`), one (`cls`, `part`), or both of them (`no_graph`).
    salience_gate: False keeps all prototypes active with weight 1.
    noisy_ranking: whether training noise also affects which parts are pooled, as in the paper's equation. If False,
        noise only opens and closes parts, so that two views of a place pool the same parts from the first step.
    """

    kind: ClassVar[str] = "skypart"

    prototypes: Count = 12
    part_dim: Count = 256
    embedding_dim: Count = 768
    assignment_temperature: Temperature = 0.07
    refine_hidden: Count = 512
    altitude_bins: tuple[float, ...] = (150.0, 200.0, 250.0, 300.0)
    salience_hidden: Count = 64
    salience_bias: float = 2.0
    salience_temperature: Temperature = 0.5
    min_active: int = 4
    noisy_ranking: bool = True
    pooled_parts: int = 3
    graph_layers: Count = 2
    graph_heads: Count = 4
    gate_hidden: Count = 384
    patch_layer: int = 0
    cls_layer: int = 0
    readout: Readout = "full"
    salience_gate: bool = True

    def __post_init__(self) -> None:
        """Raise for values that do not work together."""
        if self.readout not in BRANCHES:
            raise SkyPartError(f"unknown readout {self.readout!r}; choose one of {', '.join(BRANCHES)}")
        if not 1 <= self.pooled_parts <= self.prototypes:
            raise SkyPartError(
                f"pooled_parts={self.pooled_parts} is out of range; choose from 1 to prototypes={self.prototypes}"
            )
        if self.min_active < 1:
            raise SkyPartError(f"min_active={self.min_active} would let all prototypes close; use 1 or more")
        if self.graph_heads >= 1 and self.part_dim % self.graph_heads:
            raise SkyPartError(
                f"graph_heads={self.graph_heads} must divide part_dim={self.part_dim}; change one of them"
            )
        bins = self.altitude_bins
        if not all(map(math.isfinite, bins)) or any(low >= high for low, high in pairwise(bins)):
            raise SkyPartError(f"altitude_bins = {list(bins)} must be increasing altitudes in metres; sort them")


@dataclass(frozen=True)
class SkyPartOutput(HeadOutput):
    """One forward pass over b images with n patches, k prototypes, d embedding channels and c part channels.

    embedding (b, d): unit length. part, cls, graph (b, d): the unit branches. gate (b, 3): their weights.
    tokens (b, n, c): projected patch tokens after FiLM. assignment (b, n, k): sums to 1 over k.
    descriptors (b, k, c): refined parts. selected (b, parts * c): the pooled parts before their MLP.
    salience (b, k): weight of each prototype, 0 if closed. active (b, k): bool. centroids (b, k, 2): (x, y) in [0, 1].
    grid: (rows, columns) of the patches.
    """

    part: Tensor
    cls: Tensor
    graph: Tensor
    gate: Tensor
    tokens: Tensor
    assignment: Tensor
    descriptors: Tensor
    selected: Tensor
    salience: Tensor
    active: Tensor
    centroids: Tensor
    grid: tuple[int, int]


class PartHead(Head):
    """The paper's head. Reads two taps: the CLS token of one block and the patches of another."""

    settings_class = HeadConfig
    settings: HeadConfig
    loss_inputs = (
        "tokens",
        "assignment",
        "masked",
        "masked_descriptors",
        "branches",
        "patch_tokens",
        "patch_prototype",
        "prototypes",
        "part_pooled",
        "descriptors",
        "salience",
    )

    def __init__(self, settings: HeadSettings, dim: int) -> None:
        config = cast(HeadConfig, settings)
        super().__init__(config, dim)
        part, out = config.part_dim, config.embedding_dim
        self.project = Linear(dim, part)
        self.film = AltitudeFiLM(part, config.altitude_bins)
        self.bank = PrototypeBank(config.prototypes, part, config.assignment_temperature)
        self.aggregation = PartAggregation(part, config.refine_hidden)
        self.salience = SalienceGate(
            part,
            config.salience_hidden,
            config.salience_bias,
            config.salience_temperature,
            config.min_active,
            config.noisy_ranking,
        )
        self.part_branch = PartPooling(part, config.pooled_parts, out)
        self.graph_branch = GraphReadout(part, config.graph_layers, config.graph_heads, out)
        self.cls_branch = ClsBranch(dim, out)
        self.gate = FusionGate(out, config.gate_hidden)

    def taps(self, depth: int) -> tuple[int, int]:
        """The blocks of the CLS branch and of the parts."""
        return self.settings.cls_layer or depth, self.settings.patch_layer or depth

    def forward(
        self, tokens: Sequence[Tokens], altitude: Tensor | None = None, noise: Tensor | None = None
    ) -> SkyPartOutput:
        """Embed b images. tokens: at the two taps, cls (b, dim) and patches (b, n, dim). noise: (b, k) Gumbel."""
        cls, patches, grid = tokens[0].cls, tokens[1].patches, tokens[1].grid
        modulated = self.film(self.project(patches), altitude)
        assignment = self.bank(modulated)
        descriptors = self.aggregation(modulated, assignment)
        centroids = weighted_mean(patch_centres(grid, modulated), assignment)
        salience = self._gate_parts(descriptors, assignment, noise)
        selected = self.part_branch.select(descriptors, salience.weight, salience.order)
        branches = normalize(
            torch.stack(
                [
                    self.part_branch(selected),
                    self.cls_branch(cls),
                    self.graph_branch(descriptors, centroids, salience.weight, salience.active),
                ],
                dim=1,
            ),
            dim=-1,
        )
        embedding, gate = self.gate(branches, self.settings.readout)
        part, cls_branch, graph = branches.unbind(dim=1)
        return SkyPartOutput(
            embedding=embedding,
            part=part,
            cls=cls_branch,
            graph=graph,
            gate=gate,
            tokens=modulated,
            assignment=assignment,
            descriptors=descriptors,
            selected=selected,
            salience=salience.weight,
            active=salience.active,
            centroids=centroids,
            grid=grid,
        )

    def _gate_parts(self, descriptors: Tensor, assignment: Tensor, noise: Tensor | None) -> Salience:
        """Salience of descriptors (b, k, c). Without the gate, all are active and ranked by their share of patches."""
        if self.settings.salience_gate:
            return cast(Salience, self.salience(descriptors, noise))
        ones = torch.ones(descriptors.shape[:2], device=descriptors.device)
        return Salience(ones, ones.bool(), assignment.sum(dim=1))

    def draw_noise(self, images: int, generator: torch.Generator) -> Tensor:
        """Gumbel noise (images, k) of the salience gate."""
        return gumbel_noise(torch.empty(images, self.settings.prototypes), generator)

    def loss_input(self, name: str, output: HeadOutput, draws: Draws) -> Tensor:
        """See docs/losses.md for the shapes."""
        seen = cast(SkyPartOutput, output)
        match name:
            case "branches":  # (b, branches, d): those that the readout uses
                every = (seen.part, seen.cls, seen.graph)
                used = BRANCHES[self.settings.readout]
                return torch.stack([branch for branch, kept in zip(every, used, strict=True) if kept], dim=1)
            case "masked":  # (b, n) bool
                return draws.masked
            case "masked_descriptors":  # (b, k, c): aggregated from the visible patches only
                return cast(Tensor, self.aggregation(seen.tokens, seen.assignment, ~draws.masked))
            case "patch_prototype":  # (b, m): the prototype of each drawn patch
                return seen.assignment.argmax(-1).gather(1, draws.patches)
            case "patch_tokens":  # (b, m, c)
                return seen.tokens.gather(1, draws.patches[..., None].expand(-1, -1, seen.tokens.shape[-1]))
            case "prototypes":  # (k, c)
                return self.bank.prototypes
            case "part_pooled":  # (b, parts * c)
                return seen.selected
            case "descriptors":  # (b, k, c)
                return seen.descriptors
            case "salience":  # (b, k)
                return seen.salience
            case "tokens":  # (b, n, c)
                return seen.tokens
            case "assignment":  # (b, n, k)
                return seen.assignment
        raise KeyError(name)

    @property
    def widths(self) -> Mapping[str, int]:
        """Channels of the embedding, of a patch token and of the pooled parts."""
        s = self.settings
        return {"embedding": s.embedding_dim, "tokens": s.part_dim, "part_pooled": s.pooled_parts * s.part_dim}

    def parameter_rules(self) -> dict[str, ParameterRule]:
        """No weight decay on norms, biases, FiLM and prototypes."""
        return default_rules(self, ("film.", "bank."))

    def freeze_unused(self) -> None:
        """Train only what the readout uses."""
        part, cls, graph = BRANCHES[self.settings.readout]
        self.part_branch.requires_grad_(part)
        self.graph_branch.requires_grad_(graph)
        self.cls_branch.requires_grad_(cls)
        self.gate.requires_grad_(self.settings.readout in ("full", "no_graph"))
        self.salience.requires_grad_(self.settings.salience_gate and (part or graph))

    @property
    def readouts(self) -> Readouts:
        """The paper's ablations of the representation, and the current one."""
        return Readouts(tuple(BRANCHES), self.settings.readout)

    def set_readout(self, readout: str) -> None:
        """Switch to another readout; the weights are unchanged."""
        super().set_readout(readout)
        self.settings = replace(self.settings, readout=cast(Readout, readout))

    def adopt(self, settings: HeadSettings) -> None:
        """Adopt the readout and the switch of the salience gate."""
        if isinstance(settings, HeadConfig):
            self.set_readout(settings.readout)
            self.settings = replace(self.settings, salience_gate=settings.salience_gate)

    def explain(self, output: HeadOutput, image: int) -> Explanation:
        """Parts, salience, layout and fusion gate of one image."""
        seen = cast(SkyPartOutput, output)
        rows, columns = seen.grid
        return Explanation(
            assignment=seen.assignment[image].reshape(rows, columns, -1).cpu().numpy(),
            salience=seen.salience[image].cpu().numpy(),
            active=seen.active[image].cpu().numpy(),
            centroids=seen.centroids[image].cpu().numpy(),
            gate=seen.gate[image].cpu().numpy(),
            embedding=seen.embedding[image].cpu().numpy(),
        )

    def health(self, output: HeadOutput) -> dict[str, float]:
        """Usage and entropy of the prototypes, active parts per image and the gate, as means over a batch."""
        return measure_health(cast(SkyPartOutput, output)).scalars()

    def collapse_warning(self, output: HeadOutput) -> str:
        """A warning if one prototype holds almost all patches."""
        health = measure_health(cast(SkyPartOutput, output))
        if not health.collapsed:
            return ""
        return (
            f"prototypes are collapsing: the largest holds {100 * health.largest:.0f} % of all patches; "
            "raise loss.diversity_weight or lower optimiser.head_lr"
        )

    def extra_multiply_adds(self, patches: int) -> int:
        """Assignment, aggregation, centroids and graph mixing."""
        s = self.settings
        return s.prototypes * patches * (2 * s.part_dim + 2) + s.graph_layers * s.prototypes**2 * s.part_dim


@dataclass(frozen=True)
class Health:
    """Health of the prototypes, as means over a batch.

    usage_entropy: entropy of the prototypes' shares, divided by log k; 1: equal shares, 0: one has all patches.
    patch_entropy: mean entropy of a patch's assignment, divided by log k; 0: each patch belongs to one prototype.
    largest: the share of the most used prototype. active: open prototypes per image. gate: part, CLS, graph.
    """

    usage_entropy: float
    patch_entropy: float
    largest: float
    active: float
    gate: tuple[float, float, float]

    @property
    def collapsed(self) -> bool:
        """Whether one prototype holds almost all patches."""
        return self.largest > 0.8 or self.usage_entropy < 0.25

    def scalars(self) -> dict[str, float]:
        """The values by name, for the log."""
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
