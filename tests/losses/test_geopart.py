"""GeoPartLoss: grouping, Kendall weights, ablation switches, absent terms."""

import math
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from skypart.errors import SkyPartError
from skypart.losses.circle import circle_loss
from skypart.losses.config import LossConfig
from skypart.losses.diversity import diversity_loss
from skypart.losses.geopart import TERMS, GeoPartLoss, LossInputs
from skypart.losses.info_nce import InfoNceLoss
from skypart.losses.masked_reconstruction import MaskedReconstructionLoss, random_mask
from skypart.losses.patch_nce import patch_nce_loss
from skypart.losses.proxy_anchor import ProxyAnchorLoss
from skypart.losses.self_distillation import self_distillation_loss
from skypart.losses.term import LossTerm
from skypart.losses.uapa import uapa_loss
from tests.losses.cases import IS_DRONE, LOCATION, LOCATIONS, PARTS, D, normal

B, N, P, T = len(LOCATION), 8, 6, 7
PARTLESS = ("tokens", "assignment", "masked", "masked_descriptors", "prototypes")
GROUPS = {
    "align": {"circle", "proxy_anchor", "info_nce", "patch_nce", "uapa"},
    "part": {"mar", "diversity"},
    "distill": {"teacher", "ema"},
    "alt": {"altitude"},
}


def floats(*shape: int, seed: int) -> Tensor:
    return normal(*shape, seed=seed, dtype=torch.float32).requires_grad_()


def full_batch(**changes: Tensor | None) -> LossInputs:
    """All inputs; `changes` replace some, None removes one."""
    local = {
        "tokens": floats(B - 2, N, P, seed=1),
        "assignment": normal(B - 2, N, PARTS, seed=2).float().softmax(-1),
        "masked": random_mask(B - 2, N, 0.3, torch.Generator().manual_seed(0)),
        "masked_descriptors": floats(B - 2, PARTS, P, seed=3),
        "prototypes": floats(PARTS, P, seed=5),
    }
    joined = {
        "embedding": floats(B, D, seed=0),
        "location": LOCATION,
        "is_drone": IS_DRONE,
        "patch_tokens": floats(B, 4, P, seed=4),
        "patch_prototype": torch.arange(B * 4).view(B, 4) % 3,
        "teacher": normal(B, T, seed=6).float(),
        "ema_embedding": normal(B, D, seed=7).float(),
        "altitude": torch.where(IS_DRONE, 200.0, math.nan),
        "part_pooled": floats(B, 9, seed=8),
    }
    for name, value in changes.items():
        part = local if name in local else joined
        part.pop(name, None)
        if value is not None:
            part[name] = value
    return LossInputs(joined, local)


def build(**config: Any) -> GeoPartLoss:
    torch.manual_seed(0)
    return GeoPartLoss(LossConfig(**config), LOCATIONS, {"embedding": D, "tokens": P, "teacher": T, "part_pooled": 9})


T_ = TypeVar("T_", bound=LossTerm)


def term(loss: GeoPartLoss, kind: type[T_]) -> T_:
    """The term of a class."""
    (found,) = [each for each in loss.terms if isinstance(each, kind)]
    return found


def test_a_term_needs_the_parameters_of_its_forward() -> None:
    assert ProxyAnchorLoss.needs == ("embedding", "location")
    assert MaskedReconstructionLoss.needs == ("tokens", "assignment", "masked", "masked_descriptors")
    needs = build(branches=True).needs
    assert needs.local == {"tokens", "assignment", "masked", "masked_descriptors", "prototypes"}
    assert needs.joined == {
        *("embedding", "location", "is_drone", "branches", "patch_tokens", "patch_prototype"),
        *("teacher", "ema_embedding", "altitude", "part_pooled"),
    }
    assert [each.name for each in build().terms] == [
        kind.name for kind in TERMS if getattr(LossConfig(), kind.name, True)
    ]


def test_terms_without_available_inputs_are_not_built() -> None:
    available = {"embedding", "location", "is_drone", "altitude"}
    loss = GeoPartLoss(LossConfig(), LOCATIONS, {"embedding": D}, available)
    assert [each.name for each in loss.terms] == ["circle", "proxy_anchor", "info_nce", "uapa"]
    assert loss.left_out["mar"] == ["tokens", "assignment", "masked", "masked_descriptors"]
    assert set(loss.left_out) == {"patch_nce", "mar", "diversity", "teacher", "ema", "altitude"}
    report = loss(LossInputs({"embedding": floats(B, D, seed=0), "location": LOCATION, "is_drone": IS_DRONE}))
    assert set(report.groups) == {"align"}


def expected_total(loss: GeoPartLoss, groups: dict[str, Tensor]) -> float:
    s = {name: value.item() for name, value in loss.log_variance.items()}
    return float(sum(math.exp(-s[name]) * value.item() + s[name] for name, value in groups.items()))


def test_the_whole_objective_is_the_kendall_sum_of_its_terms() -> None:
    loss, batch = build(), full_batch()
    for s, value in zip(loss.log_variance.values(), (0.3, -0.2, 0.1, -0.4), strict=True):
        s.data.fill_(value)
    report = loss(batch, {"mar": 0.4})
    assert set(report.groups) == set(GROUPS) and set(report.terms) == set().union(*GROUPS.values())
    for group, names in GROUPS.items():
        weighted = sum(report.terms[name].item() * (0.4 if name == "mar" else 1) for name in names)
        assert report.groups[group].item() == pytest.approx(weighted, rel=1e-6)
    assert report.total.item() == pytest.approx(expected_total(loss, report.groups), rel=1e-6)
    assert report.weights["align"].item() == pytest.approx(math.exp(-0.3))
    given, views = {**batch.joined, **batch.local}, (LOCATION, IS_DRONE)
    e = given["embedding"]
    apart = {
        "circle": circle_loss(e, *views),
        "patch_nce": patch_nce_loss(given["patch_tokens"], given["patch_prototype"], *views),
        "uapa": uapa_loss(e, term(loss, ProxyAnchorLoss).proxies, *views),
        "diversity": diversity_loss(given["prototypes"]),
        "ema": self_distillation_loss(e, given["ema_embedding"]),
    }
    for name, alone in apart.items():
        assert report.terms[name].item() == pytest.approx(alone.item(), rel=1e-6)


def test_gradients_reach_every_parameter_and_s_g() -> None:
    loss = build()
    report = loss(full_batch())
    gradients = torch.autograd.grad(report.total, list(loss.parameters()))
    by_name = dict(zip((name for name, _ in loss.named_parameters()), gradients, strict=True))
    assert all(bool((g != 0).any()) and bool(g.isfinite().all()) for g in gradients)
    for group, value in report.groups.items():
        assert by_name[f"log_variance.{group}"].item() == pytest.approx(1 - value.item(), rel=1e-5)


ABSENT: dict[str, tuple[dict[str, Any], set[str]]] = {
    "no altitude": ({"altitude": None, "part_pooled": None}, {"alt"}),
    "no altitude label": ({"altitude": torch.full((B,), math.nan)}, {"alt"}),
    "labels of satellites": ({"altitude": torch.where(IS_DRONE, math.nan, 200.0)}, {"alt"}),
    "no teacher and no ema": ({"teacher": None, "ema_embedding": None}, {"distill"}),
    "no parts": (dict.fromkeys(PARTLESS), {"part"}),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_group_without_a_term_adds_neither_loss_nor_s(name: str) -> None:
    changes, missing = ABSENT[name]
    loss = build()
    for s in loss.log_variance.values():
        s.data.fill_(0.5)
    report = loss(full_batch(**changes))
    assert set(report.groups) == set(GROUPS) - missing
    assert report.total.item() == pytest.approx(expected_total(loss, report.groups), rel=1e-6)
    silent = [loss.log_variance[group] for group in missing]
    assert torch.autograd.grad(report.total, silent, allow_unused=True) == (None,) * len(silent)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_switched_off_has_no_terms_and_no_parameters(group: str) -> None:
    loss = build(**{group: False})
    report = loss(full_batch())
    assert set(report.groups) == set(report.weights) == set(GROUPS) - {group}
    assert not GROUPS[group] & set(report.terms)
    assert not any(name.split(".")[0] in GROUPS[group] for name, _ in loss.named_parameters())
    assert f"log_variance.{group}" not in dict(loss.named_parameters())


@pytest.mark.parametrize("term", ["circle", "info_nce", "patch_nce", "uapa", "mar", "diversity", "teacher", "ema"])
def test_a_term_can_be_switched_off_or_weighted(term: str) -> None:
    (group,) = [g for g, names in GROUPS.items() if term in names]
    batch = full_batch()
    whole, without, doubled = (build(**change)(batch) for change in ({}, {term: False}, {f"{term}_weight": 2.0}))
    assert set(whole.terms) - set(without.terms) == {term}
    assert doubled.groups[group].item() == pytest.approx(
        whole.groups[group].item() + whole.terms[term].item(), rel=1e-6
    )


def test_each_term_decides_how_its_parameters_learn() -> None:
    loss = build()
    rules = loss.parameter_rules()
    assert set(rules) == {name for name, _ in loss.named_parameters()}
    assert {name: rule.rate for name, rule in rules.items() if rule.rate != "head"} == {
        "proxy_anchor.proxies": "proxies"
    }
    assert all(rule.factor == 1.0 for rule in rules.values())
    no_decay = {name for name, rule in rules.items() if not rule.decay}
    assert no_decay == {
        *(f"log_variance.{group}" for group in GROUPS),
        "info_nce.log_scale",
        *("mar.decoder.0.bias", "mar.decoder.2.weight", "mar.decoder.2.bias", "mar.decoder.3.bias"),
        *("teacher.norm.weight", "teacher.norm.bias", "altitude.head.0.bias", "altitude.head.2.bias"),
    }


def test_bfloat16_network_outputs_give_a_float32_total() -> None:
    batch = full_batch()
    low = [
        {name: value.bfloat16() if value.is_floating_point() else value for name, value in part.items()}
        for part in (batch.joined, batch.local)
    ]
    total = build()(LossInputs(*low)).total
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(build()(batch).total.item(), rel=0.05)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"circle_weight": 0.0}, "circle_weight"),
        ({"uapa_temperature": -1.0}, "uapa_temperature"),
        ({"altitude_scale": math.nan}, "altitude_scale"),
        ({"info_nce_smoothing": 1.0}, "info_nce_smoothing"),
        ({"uapa_direction": "sideways"}, "uapa_direction"),
        ({"proxy_anchor": False}, "uapa uses the proxies"),
        (dict.fromkeys(GROUPS, False), "all loss groups are off"),
    ],
)
def test_unusable_configurations_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SkyPartError, match=message):
        build(**config)


@pytest.mark.parametrize("missing", ["tokens", "assignment", "masked_descriptors", "patch_prototype", "part_pooled"])
def test_incomplete_inputs_of_a_term_are_an_error(missing: str) -> None:
    with pytest.raises(SkyPartError, match=missing):
        build()(full_batch(**{missing: None}))


def test_branches_are_the_mean_of_info_nce_on_each() -> None:
    loss, branches = build(branches=True), floats(B, 3, D, seed=11)
    report = loss(full_batch(branches=branches))
    each = [float(term(loss, InfoNceLoss)(branches[:, i].detach(), LOCATION, IS_DRONE).detach()) for i in range(3)]
    assert float(report.terms["branches"]) == pytest.approx(sum(each) / 3, rel=1e-5) and len(set(each)) == 3
    report.total.backward()
    assert branches.grad is not None and all(branches.grad[:, i].abs().sum() > 0 for i in range(3))
    without = loss(full_batch())
    assert "branches" not in without.terms and float(without.groups["align"]) < float(report.groups["align"])
    lonely = full_batch(branches=branches.detach(), is_drone=torch.ones(B, dtype=torch.bool))
    assert float(loss(lonely).terms["branches"]) == 0.0


def test_a_batch_without_any_term_gives_zero_in_float32() -> None:
    loss = build(align=False, part=False, distill=False)
    batch = full_batch(embedding=torch.ones(B, D).bfloat16(), altitude=torch.full((B,), math.nan))
    report = loss(batch)
    assert (report.total.item(), report.total.dtype, report.groups) == (0.0, torch.float32, {})


def test_only_the_total_of_a_report_has_a_graph() -> None:
    report = build()(full_batch())
    assert report.total.requires_grad
    for values in (report.groups, report.terms, report.weights):
        assert values and not any(value.requires_grad for value in values.values())
