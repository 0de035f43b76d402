"""SkyPart assembled: backbone tokens -> parts -> three branches -> one embedding."""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from skypart.errors import SkyPartError
from skypart.images.preprocess import Preprocessing
from skypart.model.backbone import Backbone, load_backbone
from skypart.model.film import AltitudeFiLM
from skypart.model.fusion import BRANCHES, ClsBranch, FusionGate, Readout
from skypart.model.graph import GraphReadout
from skypart.model.hub import HubMixin
from skypart.model.pooling import PartPooling
from skypart.model.prototypes import PartAggregation, PrototypeBank, patch_centres, weighted_mean
from skypart.model.salience import Salience, SalienceGate


@dataclass(frozen=True)
class HeadConfig:
    """The head, with the paper's values as defaults and its ablations as switches.

    altitude_bins: metres, one FiLM bin each; empty where altitudes are unknown.
    patch_layer, cls_layer: the block (1..depth) whose tokens the parts and the CLS branch read; 0: the last.
    readout: `full`, or only `cls`, `part`, or both without the graph (`no_graph`).
    salience_gate: False keeps all prototypes active with weight 1.
    noisy_ranking: whether training noise also decides which parts are pooled, as the gate's equation has it; False
        lets it only open and close them, so that two views of a place pool the same parts from the first step.
    """

    prototypes: int = 12
    part_dim: int = 256
    embedding_dim: int = 768
    assignment_temperature: float = 0.07
    refine_hidden: int = 512
    altitude_bins: tuple[float, ...] = (150.0, 200.0, 250.0, 300.0)
    salience_hidden: int = 64
    salience_bias: float = 2.0
    salience_temperature: float = 0.5
    min_active: int = 4
    noisy_ranking: bool = True
    pooled_parts: int = 3
    graph_layers: int = 2
    graph_heads: int = 4
    gate_hidden: int = 384
    patch_layer: int = 0
    cls_layer: int = 0
    readout: Readout = "full"
    salience_gate: bool = True


@dataclass(frozen=True)
class SkyPartOutput:
    """One forward pass: b images, n patches, k prototypes, d embedding and c part channels.

    embedding (b, d): unit length. part, cls, graph (b, d): the unit branches. gate (b, 3): their weights.
    tokens (b, n, c): projected, altitude-modulated patch tokens. assignment (b, n, k): sums to 1 over k.
    descriptors (b, k, c): refined parts. selected (b, 3c): the pooled part tokens before their MLP.
    salience (b, k): weight of each prototype, 0 if closed. active (b, k): bool. centroids (b, k, 2): (x, y) in [0, 1].
    grid: (rows, columns) of the patches.
    """

    embedding: Tensor
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


class SkyPart(nn.Module, HubMixin):
    """The deployed model: a backbone and the head. `model(images)` gives a `SkyPartOutput`.

    preprocessing: how photos become its input. recipe, provenance: how it was made; kept in the model file.
    """

    def __init__(self, backbone: nn.Module, config: HeadConfig | None = None) -> None:
        super().__init__()
        config = config or HeadConfig()
        if config.readout not in BRANCHES:
            raise SkyPartError(f"unknown readout {config.readout!r}; choose one of {', '.join(BRANCHES)}")
        if not 1 <= config.pooled_parts <= config.prototypes:
            raise SkyPartError(
                f"pooled_parts={config.pooled_parts} must lie between 1 and prototypes={config.prototypes}"
            )
        if config.min_active < 1:
            raise SkyPartError(f"min_active={config.min_active} would let all prototypes close; use 1 or more")
        self.config = config
        self.preprocessing = Preprocessing()
        self.recipe: dict[str, Any] = {}
        self.provenance: dict[str, Any] = {}
        self.backbone = backbone
        dim, part, out = self.tokens_from.dim, config.part_dim, config.embedding_dim
        self.project = nn.Linear(dim, part)
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

    @classmethod
    def from_backbone(cls, name: str, config: HeadConfig | None = None, seed: int = 0) -> "SkyPart":
        """A new head, initialised from `seed`, on the pretrained backbone `name` (see `load_backbone`)."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(load_backbone(name), config)

    @property
    def tokens_from(self) -> Backbone:
        """The backbone under its interface."""
        return cast(Backbone, self.backbone)

    def with_readout(self, readout: str) -> "SkyPart":
        """Switch this model to another readout, in place; weights are unchanged."""
        if readout not in BRANCHES:
            raise SkyPartError(f"unknown readout {readout!r}; choose one of {', '.join(BRANCHES)}")
        self.config = replace(self.config, readout=readout)
        return self

    def freeze(self, trainable_blocks: int) -> None:
        """Decide what learns: the last blocks of the backbone, and of the head what this readout uses."""
        self.tokens_from.freeze(trainable_blocks, max(self.taps))
        part, _, graph = BRANCHES[self.config.readout]
        self.part_branch.requires_grad_(part)
        self.graph_branch.requires_grad_(graph)
        self.cls_branch.requires_grad_(BRANCHES[self.config.readout][1])
        self.gate.requires_grad_(self.config.readout in ("full", "no_graph"))
        self.salience.requires_grad_(self.config.salience_gate and (part or graph))

    def forward(self, images: Tensor, altitude: Tensor | None = None, noise: Tensor | None = None) -> SkyPartOutput:
        """Embed images (b, 3, height, width), normalised as `skypart.images.preprocess` does.

        altitude: (b,) metres, NaN where unknown; used in training only. noise: (b, k) Gumbel noise of the
        salience gate in training; drawn where not given. The head runs in float32 under any autocast.
        """
        return self.finish(self.trunk(images), altitude, noise)

    @property
    def taps(self) -> tuple[int, int]:
        """The blocks whose tokens the CLS branch and the parts read."""
        depth = self.tokens_from.depth
        return self.config.cls_layer or depth, self.config.patch_layer or depth

    def trunk(self, images: Tensor) -> Any:
        """The frozen part of the backbone on images (b, 3, height, width); shared by student and moving average."""
        return self.tokens_from.trunk(images, self.taps)

    def finish(self, trunk: Any, altitude: Tensor | None = None, noise: Tensor | None = None) -> SkyPartOutput:
        """The rest of the forward pass; see `forward`."""
        cls_tokens, patches = self.tokens_from.finish(trunk, self.taps)
        with torch.autocast(cls_tokens.cls.device.type, enabled=False):
            return self.head(cls_tokens.cls.float(), patches.patches.float(), patches.grid, altitude, noise)

    def head(
        self,
        cls: Tensor,
        patches: Tensor,
        grid: tuple[int, int],
        altitude: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> SkyPartOutput:
        """From backbone tokens, cls (b, dim) and patches (b, n, dim), to the embedding."""
        tokens = self.film(self.project(patches), altitude)
        assignment = self.bank(tokens)
        descriptors = self.aggregation(tokens, assignment)
        centroids = weighted_mean(patch_centres(grid, tokens), assignment)
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
        embedding, gate = self.gate(branches, self.config.readout)
        part, cls_branch, graph = branches.unbind(dim=1)
        return SkyPartOutput(
            embedding=embedding,
            part=part,
            cls=cls_branch,
            graph=graph,
            gate=gate,
            tokens=tokens,
            assignment=assignment,
            descriptors=descriptors,
            selected=selected,
            salience=salience.weight,
            active=salience.active,
            centroids=centroids,
            grid=grid,
        )

    def _gate_parts(self, descriptors: Tensor, assignment: Tensor, noise: Tensor | None) -> Salience:
        """Salience of descriptors (b, k, c); with the gate switched off all are active, ranked by their patches."""
        if self.config.salience_gate:
            return cast(Salience, self.salience(descriptors, noise))
        open_everywhere = torch.ones(descriptors.shape[:2], device=descriptors.device)
        return Salience(open_everywhere, open_everywhere.bool(), assignment.sum(dim=1))
