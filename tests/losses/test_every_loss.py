"""Tests that apply to every loss: its formula, its gradient, empty batches, extreme values, half precision."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.losses.cases import CASES, Case

every_loss = pytest.mark.parametrize("name", CASES)


def leaves(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [x.detach().to(dtype).requires_grad_() for x in tensors]


def gradients(loss: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)  # raises if an input is not connected to the loss


@every_loss
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_value_and_gradient_equal_the_plain_loops(name: str, dtype: torch.dtype, tolerance: float) -> None:
    case = CASES[name]()
    inputs = leaves(case.data + case.parameters, dtype)
    expected_inputs = leaves(case.data + case.parameters, torch.float64)
    loss, expected = case.loss(*inputs), case.reference(*expected_inputs)
    assert loss.shape == () and loss.dtype == dtype
    assert abs(loss.item() - expected.item()) <= tolerance * max(abs(expected.item()), 1)
    for found, wanted in zip(gradients(loss, inputs), gradients(expected, expected_inputs), strict=True):
        scale = max(float(wanted.abs().max()), 1.0)
        assert float((found - wanted).abs().max()) <= 10 * tolerance * scale


@every_loss
def test_gradcheck(name: str) -> None:
    case = CASES[name]()
    inputs = leaves(case.data if case.frozen else case.data + case.parameters, torch.float64)
    assert torch.autograd.gradcheck(case.frozen or case.loss, inputs)


@pytest.mark.parametrize(("name", "situation"), [(n, s) for n, case in CASES.items() for s in case().empty])
def test_a_batch_without_pairs_gives_exactly_zero(name: str, situation: str) -> None:
    case = CASES[name]()
    loss, data = case.empty[situation]
    inputs = leaves(data + case.parameters, torch.float32)
    value = loss(*inputs)
    assert value.item() == 0.0
    with torch.autograd.set_detect_anomaly(True):  # no NaN in intermediate results
        assert all(bool((g == 0).all()) for g in gradients(value, inputs))


EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "long": lambda x: 1e4 * x,
    "short": lambda x: 1e-8 * x,
    "zero": lambda x: 0 * x,
    "equal": lambda x: torch.ones_like(x),
    "opposite": lambda x: (
        torch.where(torch.arange(len(x)) % 2 == 0, 1.0, -1.0).view(-1, *[1] * (x.ndim - 1)) * torch.ones_like(x)
    ),
    "one outlier": lambda x: torch.cat([1e4 * x[:1], 1e-8 * x[1:]]),
}


@every_loss
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_values_stay_finite(name: str, extreme: str, dtype: torch.dtype) -> None:
    case = CASES[name]()
    # proxies get extreme values too; weights of layers and the scale keep theirs
    owned = [EXTREMES[extreme](p) for p in case.parameters] if name in ("proxy_anchor", "uapa") else case.parameters
    inputs = leaves([EXTREMES[extreme](x) for x in case.data], dtype) + leaves(owned, torch.float32)
    loss = case.loss(*inputs)
    assert loss.dtype == torch.float32
    assert loss.isfinite() and all(bool(g.isfinite().all()) for g in gradients(loss, inputs))


def half(case: Case) -> tuple[list[Tensor], list[Tensor]]:
    """The same bfloat16 numbers as bfloat16 and as float32, with the parameters in float32."""
    data = [x.bfloat16() for x in case.data]
    parameters = [p.float() for p in case.parameters]
    return data + parameters, [x.float() for x in data] + parameters


@every_loss
def test_bfloat16_inputs_are_computed_in_float32(name: str) -> None:
    case = CASES[name]()
    low, full = half(case)
    assert case.loss(*low).item() == pytest.approx(case.loss(*full).item(), rel=1e-6)


@pytest.mark.parametrize("name", ["circle", "proxy_anchor", "info_nce", "patch_nce", "uapa", "diversity"])
def test_similarities_keep_full_precision_under_autocast(name: str) -> None:
    case = CASES[name]()
    inputs = [x.float() for x in case.data + case.parameters]
    expected = case.loss(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case.loss(*inputs)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
