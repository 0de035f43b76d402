"""The settings of the losses, and the table of their inputs in docs/losses.md."""

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from skypart.errors import SkyPartError
from skypart.losses.altitude import AltitudeLoss
from skypart.losses.circle import CircleLoss, circle_loss
from skypart.losses.config import LossConfig
from skypart.losses.geopart import TERMS, WIDTHS, GeoPartLoss, LossInputs, LossReport
from skypart.losses.info_nce import BranchLoss, InfoNceLoss, info_nce_loss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss
from skypart.losses.pairs import CrossViewPairs
from skypart.losses.patch_nce import PatchNceLoss, patch_nce_loss
from skypart.losses.proxy_anchor import ProxyAnchorLoss, proxy_anchor_loss
from skypart.losses.teacher_distillation import TeacherDistillationLoss
from skypart.losses.term import LossContext
from skypart.losses.uapa import UapaLoss, softened_divergence, uapa_loss, uapa_temperature
from skypart.model.heads.skypart.head import PartHead

ROOT = Path(__file__).resolve().parents[2]

SETTINGS: list[tuple[Callable[..., Any], dict[str, str]]] = [
    (AltitudeLoss, {"hidden": "altitude_hidden", "offset": "altitude_offset", "scale": "altitude_scale"}),
    (CircleLoss, {"margin": "circle_margin", "gamma": "circle_gamma"}),
    (circle_loss, {"margin": "circle_margin", "gamma": "circle_gamma"}),
    (ProxyAnchorLoss, {"delta": "proxy_delta", "alpha": "proxy_alpha"}),
    (proxy_anchor_loss, {"delta": "proxy_delta", "alpha": "proxy_alpha"}),
    (
        InfoNceLoss,
        {
            "temperature": "info_nce_temperature",
            "smoothing": "info_nce_smoothing",
            "max_scale": "info_nce_max_scale",
        },
    ),
    (info_nce_loss, {"smoothing": "info_nce_smoothing"}),
    (BranchLoss, {"smoothing": "info_nce_smoothing"}),
    (PatchNceLoss, {"temperature": "patch_nce_temperature"}),
    (patch_nce_loss, {"temperature": "patch_nce_temperature"}),
    (UapaLoss, {"alpha": "proxy_alpha", "base_temperature": "uapa_temperature", "direction": "uapa_direction"}),
    (uapa_loss, {"alpha": "proxy_alpha", "base_temperature": "uapa_temperature", "direction": "uapa_direction"}),
    (uapa_temperature, {"base_temperature": "uapa_temperature"}),
    (softened_divergence, {"direction": "uapa_direction"}),
    (MaskedReconstructionLoss, {"hidden": "mar_hidden"}),
]
LAYERS: list[tuple[Callable[..., Any], dict[str, str]]] = [
    (AltitudeLoss, {"input_dim": "part_pooled"}),
    (ProxyAnchorLoss, {"embedding_dim": "embedding"}),
    (MaskedReconstructionLoss, {"part_dim": "tokens"}),
    (TeacherDistillationLoss, {"embedding_dim": "embedding", "teacher_dim": "teacher"}),
]
# Every setting differs from its default and from the others.
CHANGED = LossConfig(
    circle_margin=0.31,
    circle_gamma=51.0,
    proxy_delta=0.17,
    proxy_alpha=23.0,
    info_nce_temperature=0.09,
    info_nce_smoothing=0.23,
    info_nce_max_scale=77.0,
    patch_nce_temperature=0.13,
    uapa_temperature=3.5,
    uapa_direction="forward",
    mar_hidden=19,
    altitude_hidden=11,
    altitude_offset=120.0,
    altitude_scale=60.0,
)


def test_defaults_are_those_of_the_default_recipe() -> None:
    recipe = tomllib.loads((ROOT / "recipes" / "default.toml").read_text(encoding="utf-8"))
    assert dataclasses.asdict(LossConfig()) == recipe["loss"]


@pytest.mark.parametrize(("function", "fields"), SETTINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_default_arguments_are_those_of_the_config(function: Callable[..., Any], fields: dict[str, str]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in fields} == {
        name: getattr(LossConfig(), field) for name, field in fields.items()
    }


@pytest.mark.parametrize(("function", "widths"), LAYERS, ids=lambda value: getattr(value, "__name__", ""))
def test_default_widths_are_those_of_the_papers_model(function: Callable[..., Any], widths: dict[str, str]) -> None:
    assert WIDTHS == {"embedding": 768, "tokens": 256, "teacher": 768, "part_pooled": 3 * 256}
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in widths} == {
        name: WIDTHS[source] for name, source in widths.items()
    }


def test_terms_are_built_with_the_settings_of_the_recipe() -> None:
    context = LossContext(CHANGED, 9, {"embedding": 5, "tokens": 6, "teacher": 7, "part_pooled": 8})
    circle, proxy, nce = CircleLoss.build(context), ProxyAnchorLoss.build(context), InfoNceLoss.build(context)
    assert (circle.margin, circle.gamma) == (0.31, 51.0)
    assert (proxy.delta, proxy.alpha, proxy.proxies.shape) == (0.17, 23.0, (9, 5))
    assert (nce.smoothing, nce.max_scale) == (0.23, 77.0)
    assert nce.log_scale.exp().item() == pytest.approx(1 / 0.09)
    assert BranchLoss.build(context).smoothing == 0.23
    assert PatchNceLoss.build(context).temperature == 0.13
    uapa = UapaLoss.build(context)
    assert (uapa.alpha, uapa.base_temperature, uapa.direction) == (23.0, 3.5, "forward")
    altitude = AltitudeLoss.build(context)
    assert (altitude.offset, altitude.scale) == (120.0, 60.0)
    assert [tuple(p.shape) for p in altitude.parameters()] == [(11, 8), (11,), (1, 11), (1,)]
    decoder = MaskedReconstructionLoss.build(context)
    assert [tuple(p.shape) for p in decoder.parameters()] == [(19, 6), (19,), (19,), (19,), (6, 19), (6,)]
    assert [tuple(p.shape) for p in TeacherDistillationLoss.build(context).parameters()] == [(7, 5), (7,), (7,)]


@pytest.mark.parametrize(
    "record",
    [
        LossConfig(),
        LossContext(LossConfig(), 2, {}),
        LossInputs({}),
        LossReport(torch.zeros(()), {}, {}, {}),
        CrossViewPairs(torch.zeros(1, 1), torch.zeros(1, 1)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_are_immutable(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, None)


@pytest.mark.parametrize(
    "field",
    [
        "mar_weight",
        "patch_nce_temperature",
        "altitude_scale",
        "info_nce_max_scale",
        "mar_hidden",
        "circle_gamma",
        "proxy_alpha",
    ],
)
def test_values_that_must_be_positive_may_be_small_but_not_zero(field: str) -> None:
    LossConfig(**{field: 1e-9})  # type: ignore[arg-type]
    with pytest.raises(SkyPartError, match=f"{field} is 0"):
        LossConfig(**{field: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("smoothing", [-0.01, 1.0, float("nan")])
def test_smoothing_outside_its_range_is_refused(smoothing: float) -> None:
    assert LossConfig(info_nce_smoothing=0.0).info_nce_smoothing == 0.0
    with pytest.raises(SkyPartError, match="info_nce_smoothing"):
        LossConfig(info_nce_smoothing=smoothing)


def test_a_term_that_uses_another_is_refused_without_it() -> None:
    with pytest.raises(SkyPartError, match="branches uses info_nce's temperature"):
        LossConfig(branches=True, info_nce=False)
    LossConfig(info_nce=False)
    with pytest.raises(SkyPartError, match="uapa uses the proxies of proxy_anchor"):
        LossConfig(proxy_anchor=False)
    for unused in ({"uapa": False}, {"align": False}):
        LossConfig(proxy_anchor=False, **unused)  # type: ignore[arg-type]


def test_the_loss_needs_at_least_one_location() -> None:
    assert len(list(GeoPartLoss(LossConfig(), 1).terms)) == sum(
        bool(getattr(LossConfig(), term.name, True)) for term in TERMS
    )  # branches is off by default
    with pytest.raises(SkyPartError, match="got 0 training locations"):
        GeoPartLoss(LossConfig(), 0)


def test_the_embedding_is_joined_even_if_no_term_needs_it() -> None:
    loss = GeoPartLoss(LossConfig(align=False, distill=False, alt=False, mar=False), 3)
    assert (set(loss.needs.joined), set(loss.needs.local)) == ({"embedding"}, {"prototypes"})


def documented_inputs() -> dict[str, tuple[str, str]]:
    """Input -> (joined or local, provider), from the table in docs/losses.md."""
    text = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (joined|local) \| ([^|]+) \|$", text, re.MULTILINE)
    return {name: (place, provider) for name, place, provider in rows}


def test_the_docs_list_every_input_of_every_term() -> None:
    found = documented_inputs()
    needs = {(name, term.joined) for term in TERMS for name in term.needs}
    assert {(name, place == "joined") for name, (place, _) in found.items()} == needs
    loss = GeoPartLoss(LossConfig(branches=True), 3)
    for term in loss.terms:
        for name in term.provides():
            assert found[name][1] == f"the term {term.name}"
    from_head = {name for name, (_, provider) in found.items() if provider == "head"}
    assert from_head == {"embedding", *PartHead.loss_inputs}


def test_every_term_provides_its_own_parameters_to_others() -> None:
    loss = GeoPartLoss(LossConfig(), 3, {**WIDTHS, "embedding": 4})
    provided = {name: tensor for term in loss.terms for name, tensor in term.provides().items()}
    parameters = dict(loss.named_parameters())
    assert set(provided) == {"proxies", "info_nce_log_scale"}
    assert provided["proxies"] is parameters["proxy_anchor.proxies"]
    assert provided["info_nce_log_scale"] is parameters["info_nce.log_scale"]


def test_proxies_start_with_an_expected_length_of_one() -> None:
    torch.manual_seed(0)
    for dim in (64, 768):
        assert ProxyAnchorLoss(500, dim).proxies.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.02)
