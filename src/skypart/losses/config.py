"""Settings of GeoPartLoss: switch, weight and constants of every term."""

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from skypart.errors import SkyPartError

Direction: TypeAlias = Literal["reverse", "forward"]
"""Direction of UAPA's KL divergence."""


@dataclass(frozen=True)
class LossConfig:
    """The paper's objective; see docs/losses.md for the equations. A term is used if it and its group are on."""

    align: bool = True  # the group of circle, proxy_anchor, info_nce, branches, patch_nce, uapa
    part: bool = True  # the group of mar, diversity
    distill: bool = True  # the group of teacher, ema
    alt: bool = True  # the group of the altitude regression

    circle: bool = True
    circle_weight: float = 1.0  # within its group, like the weights of all terms
    circle_margin: float = 0.25
    circle_gamma: float = 64.0

    proxy_anchor: bool = True
    proxy_anchor_weight: float = 1.0
    proxy_delta: float = 0.1  # margin on the cosine
    proxy_alpha: float = 32.0  # scale of the cosine, in proxy anchor and in UAPA's logits

    info_nce: bool = True
    info_nce_weight: float = 1.0
    info_nce_temperature: float = 0.07  # initial value; learned
    info_nce_smoothing: float = 0.1  # label smoothing
    info_nce_max_scale: float = 100.0  # largest inverse temperature

    branches: bool = False  # InfoNCE on each branch of the embedding, not only on their sum
    branches_weight: float = 1.0

    patch_nce: bool = True
    patch_nce_weight: float = 1.0
    patch_nce_temperature: float = 0.07  # fixed

    uapa: bool = True
    uapa_weight: float = 1.0
    uapa_temperature: float = 4.0  # T0; the temperature of a pair is in [T0, 2 T0]
    uapa_direction: Direction = "reverse"  # KL(drone || satellite); "forward" for the paper's ablation

    triplet: bool = False  # batch-hard; the paper tried it and dropped it, as the next two and patch_mae
    triplet_weight: float = 1.0
    triplet_margin: float = 0.3  # on the cosine

    multi_similarity: bool = False
    multi_similarity_weight: float = 1.0

    part_transport: bool = False  # Sinkhorn matching of the parts of the two views
    part_transport_weight: float = 1.0

    mar: bool = True
    mar_weight: float = 1.0  # multiplied by the ramp, see distill.mar_ramp_epochs
    mar_hidden: int = 512  # width of the decoder

    diversity: bool = True
    diversity_weight: float = 1.0

    sparsity: bool = False  # a prior on the share of open prototypes; not in the paper
    sparsity_weight: float = 1.0
    sparsity_target: float = 0.83  # 10 of 12, as the paper reports

    patch_mae: bool = False  # masked autoencoding of patch tokens
    patch_mae_weight: float = 1.0

    teacher: bool = True
    teacher_weight: float = 1.0

    ema: bool = True
    ema_weight: float = 1.0

    altitude_hidden: int = 256  # width of the regression head
    altitude_offset: float = 150.0  # metres; the target is (altitude - offset) / scale
    altitude_scale: float = 150.0  # metres; both defaults are for SUES-200

    def __post_init__(self) -> None:
        """Raise for values that no training could use."""
        positive = ("_weight", "_temperature", "_scale", "_hidden", "_gamma", "_alpha")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(positive) and not value > 0:
                raise SkyPartError(f"{field.name} is {value}; choose a value above 0, or switch its term off")
        if not 0 <= self.info_nce_smoothing < 1:
            raise SkyPartError(f"info_nce_smoothing is {self.info_nce_smoothing}; choose a value in [0, 1)")
        if self.branches and not self.info_nce:
            raise SkyPartError("branches uses info_nce's temperature; set info_nce = true or branches = false")
        if self.uapa_direction not in get_args(Direction):
            raise SkyPartError(f"unknown uapa_direction {self.uapa_direction!r}; choose reverse or forward")
        if self.align and self.uapa and not self.proxy_anchor:
            raise SkyPartError("uapa uses the proxies of proxy_anchor; set uapa = false or proxy_anchor = true")
