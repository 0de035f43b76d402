"""Each loss on a small batch, its plain-loop reference, and batches for which it is exactly 0."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skypart.losses.altitude import AltitudeLoss
from skypart.losses.circle import circle_from_pairs, circle_loss
from skypart.losses.config import Direction
from skypart.losses.diversity import diversity_loss
from skypart.losses.info_nce import info_nce_loss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss
from skypart.losses.pairs import cross_view_pairs
from skypart.losses.patch_nce import patch_nce_loss
from skypart.losses.proxy_anchor import proxy_anchor_loss
from skypart.losses.self_distillation import self_distillation_loss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.losses.uapa import softened_divergence, uapa_loss, uapa_temperature
from tests.losses import reference

D, LOCATIONS, PATCHES, PARTS = 5, 6, 3, 4
# Locations 0 to 2 have both views, one of them two satellites; 3 has only a drone image, 4 only a satellite image.
LOCATION = torch.tensor([2, 0, 0, 1, 4, 1, 0, 3, 2, 2, 1])
IS_DRONE = torch.tensor([1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0]).bool()
NO_PAIR = {
    "only drones": (LOCATION, torch.ones_like(IS_DRONE)),
    "only satellites": (LOCATION, torch.zeros_like(IS_DRONE)),
    "no shared location": (torch.arange(len(LOCATION)), IS_DRONE),
    "no image": (LOCATION[:0], IS_DRONE[:0]),
}
NO_NEGATIVE = {"one location": (torch.zeros_like(LOCATION), IS_DRONE)}

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """A loss as a function of differentiable tensors.

    data: inputs that come from the network; parameters: tensors the loss owns.
    frozen: the loss as gradcheck may see it, where the loss itself holds a factor constant.
    empty: situations in which the loss is exactly 0, with their data, by name.
    """

    loss: Loss
    reference: Loss
    data: list[Tensor]
    parameters: list[Tensor]
    frozen: Loss | None
    empty: dict[str, tuple[Loss, list[Tensor]]]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def constant(*shape: int, seed: int) -> Tensor:
    """Numbers that every float type holds exactly."""
    return normal(*shape, seed=seed).bfloat16().double()


def owned(module: nn.Module) -> tuple[Loss, list[Tensor]]:
    """The module as a function of (parameters, arguments), and its parameters, moved away from their initial values."""
    names = [name for name, _ in module.named_parameters()]
    values = [p.detach().double() + 0.1 * normal(*p.shape, seed=9) for p in module.parameters()]

    def call(parameters: list[Tensor], *arguments: Tensor) -> Tensor:
        result: Tensor = functional_call(module, dict(zip(names, parameters, strict=True)), arguments)
        return result

    return call, values


def circle() -> Case:
    def on(location: Tensor, is_drone: Tensor) -> Loss:
        return lambda x: circle_loss(x, location, is_drone)

    def frozen(x: Tensor) -> Tensor:
        pairs = cross_view_pairs(x, LOCATION, IS_DRONE)
        return circle_from_pairs(pairs, pace, 0.25, 64.0)

    x = normal(len(LOCATION), D)
    pace = cross_view_pairs(x, LOCATION, IS_DRONE).similarity
    empty = {name: (on(*views), [x[: len(views[0])]]) for name, views in (NO_PAIR | NO_NEGATIVE).items()}
    return Case(
        on(LOCATION, IS_DRONE), lambda x: reference.circle(x, LOCATION, IS_DRONE, 0.25, 64.0), [x], [], frozen, empty
    )


def proxy_anchor() -> Case:
    def on(location: Tensor) -> Loss:
        return lambda x, proxies: proxy_anchor_loss(x, location, proxies)

    x, proxies = normal(len(LOCATION), D), normal(LOCATIONS, D, seed=1)
    plain: Loss = lambda x, proxies: reference.proxy_anchor(x, proxies, LOCATION, 0.1, 32.0)  # noqa: E731
    return Case(on(LOCATION), plain, [x], [proxies], None, {"no image": (on(LOCATION[:0]), [x[:0]])})


def info_nce() -> Case:
    def on(location: Tensor, is_drone: Tensor) -> Loss:
        return lambda x, log_scale: info_nce_loss(x, location, is_drone, log_scale)

    x = normal(len(LOCATION), D)
    plain: Loss = lambda x, scale: reference.info_nce(x, scale, LOCATION, IS_DRONE, 0.1)  # noqa: E731
    empty = {name: (on(*views), [x[: len(views[0])]]) for name, views in (NO_PAIR | NO_NEGATIVE).items()}
    log_scale = torch.tensor(-math.log(0.07), dtype=torch.float64)
    return Case(on(LOCATION, IS_DRONE), plain, [x], [log_scale], None, empty)


def patch_nce() -> Case:
    prototype = torch.randint(2, (len(LOCATION), PATCHES), generator=torch.Generator().manual_seed(3))

    def on(location: Tensor, is_drone: Tensor, prototype: Tensor) -> Loss:
        return lambda x: patch_nce_loss(x, prototype, location, is_drone, anchors_at_once=10)

    x = normal(len(LOCATION), PATCHES, D)
    empty = {k: (on(*views, prototype[: len(views[0])]), [x[: len(views[0])]]) for k, views in NO_PAIR.items()}
    pair = (torch.zeros(2, dtype=torch.long), torch.tensor([True, False]))
    empty["no other patch"] = (on(*pair, torch.zeros(2, 1, dtype=torch.long)), [x[:2, :1]])
    empty["no shared prototype"] = (on(*pair, torch.tensor([[0, 0, 1], [2, 2, 3]])), [x[:2]])
    plain: Loss = lambda x: reference.patch_nce(x, prototype, LOCATION, IS_DRONE, 0.07)  # noqa: E731
    return Case(on(LOCATION, IS_DRONE, prototype), plain, [x], [], None, empty)


def uapa(direction: Direction) -> Case:
    def on(location: Tensor, is_drone: Tensor) -> Loss:
        return lambda x, proxies: uapa_loss(x, proxies, location, is_drone, direction=direction)

    def frozen(drone: Tensor) -> Tensor:
        return softened_divergence(drone, satellite, temperature, direction)

    x, proxies = normal(len(LOCATION), D), normal(LOCATIONS, D, seed=1)
    satellite = 3 * normal(len(LOCATION), D, seed=2)
    temperature = uapa_temperature(x, satellite)
    plain: Loss = lambda x, p: reference.uapa(x, p, LOCATION, IS_DRONE, 32.0, 4.0, direction)  # noqa: E731
    empty = {name: (on(*views), [x[: len(views[0])]]) for name, views in NO_PAIR.items()}
    return Case(on(LOCATION, IS_DRONE), plain, [x], [proxies], frozen, empty)


def masked_reconstruction() -> Case:
    call, parameters = owned(MaskedReconstructionLoss(D, 7))
    batch, tokens = 2, 6
    target, assignment = constant(batch, tokens, D, seed=4), constant(batch, tokens, PARTS, seed=5).abs()
    masked = torch.tensor([[1, 0, 0, 1, 0, 0], [0, 1, 1, 0, 0, 1]]).bool()

    def on(masked: Tensor) -> Loss:
        return lambda x, *ps: call(list(ps), target.to(x), assignment.to(x), masked, x)

    plain: Loss = lambda x, *ps: reference.masked_reconstruction(x, ps, target, assignment, masked)  # noqa: E731
    x = normal(batch, PARTS, D)
    empty = {"nothing masked": (on(torch.zeros_like(masked)), [x])}
    return Case(on(masked), plain, [x], parameters, None, empty)


def diversity() -> Case:
    x = normal(PARTS, D)
    return Case(diversity_loss, reference.diversity, [x], [], None, {"one prototype": (diversity_loss, [x[:1]])})


def teacher_distillation() -> Case:
    call, parameters = owned(TeacherDistillationLoss(D, 7))
    x, teacher = normal(3, D), constant(3, 7, seed=1)

    def on(teacher: Tensor) -> Loss:
        return lambda x, *ps: call(list(ps), x, teacher.to(x))

    plain: Loss = lambda x, *ps: reference.teacher_distillation(x, ps, teacher)  # noqa: E731
    return Case(on(teacher), plain, [x], parameters, None, {"no image": (on(teacher[:0]), [x[:0]])})


def self_distillation() -> Case:
    x, ema = normal(3, D), constant(3, D, seed=1)

    def on(ema: Tensor) -> Loss:
        return lambda x: self_distillation_loss(x, ema.to(x))

    plain: Loss = lambda x: reference.self_distillation(x, ema)  # noqa: E731
    return Case(on(ema), plain, [x], [], None, {"no image": (on(ema[:0]), [x[:0]])})


def altitude() -> Case:
    call, parameters = owned(AltitudeLoss(D, 7, offset=150, scale=150))
    metres = torch.tensor([150.0, 200, math.nan, 250, math.nan, math.nan, 300, math.nan, 150, 1500, math.nan])

    def on(metres: Tensor, is_drone: Tensor) -> Loss:
        return lambda x, *ps: call(list(ps), x, metres, is_drone)

    plain: Loss = lambda x, *ps: reference.altitude(x, ps, metres, IS_DRONE, 150, 150)  # noqa: E731
    x = normal(len(LOCATION), D)
    empty = {
        "no label": (on(metres * math.nan, IS_DRONE), [x]),
        "labels of satellites only": (on(metres, IS_DRONE & metres.isnan()), [x]),
    }
    return Case(on(metres, IS_DRONE), plain, [x], parameters, None, empty)


CASES: dict[str, Callable[[], Case]] = {
    "circle": circle,
    "proxy_anchor": proxy_anchor,
    "info_nce": info_nce,
    "patch_nce": patch_nce,
    "uapa": lambda: uapa("reverse"),
    "uapa_forward": lambda: uapa("forward"),
    "masked_reconstruction": masked_reconstruction,
    "diversity": diversity,
    "teacher_distillation": teacher_distillation,
    "self_distillation": self_distillation,
    "altitude": altitude,
}
