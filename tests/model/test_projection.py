"""Linear layers computed by oneDNN give the same results, and the plain layer is used where needed."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

from skypart.model import projection
from skypart.model.projection import project

LAYER = nn.Linear(24, 40)


@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (5, 24), (3, 7, 24), (2, 3, 5, 24)])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_layer(shape: tuple[int, ...], activated: bool, bias: bool) -> None:
    layer, x = nn.Linear(24, 40, bias=bias), torch.randn(shape)
    with torch.no_grad():
        wanted = gelu(layer(x)) if activated else layer(x)
        found = project(layer, x, activated)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_equals_the_layer_on_strided_input() -> None:
    x = torch.randn(3, 24, 7).transpose(1, 2)
    with torch.no_grad():
        torch.testing.assert_close(project(LAYER, x), LAYER(x), rtol=1e-5, atol=1e-6)


def test_a_replaced_layer_uses_its_own_forward() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    layer, x = Doubled(24, 40), torch.randn(5, 24)
    with torch.no_grad():
        assert torch.equal(project(layer, x, activated=True), gelu(layer(x)))


def test_a_row_does_not_depend_on_other_rows() -> None:
    layer, x = nn.Linear(384, 1536), torch.randn(6 * 257, 384)
    with torch.no_grad():
        together = project(layer, x, activated=True)
        for images in (1, 2, 5):
            assert torch.equal(project(layer, x[: 257 * images], activated=True), together[: 257 * images])


def test_weights_that_change_are_packed_again() -> None:
    layer, x = nn.Linear(24, 40), torch.randn(5, 24)
    with torch.no_grad():
        project(layer, x)
        layer.weight.mul_(2)
        torch.testing.assert_close(project(layer, x), layer(x), rtol=1e-5, atol=1e-6)


def test_gradients_flow_when_enabled() -> None:
    x = torch.randn(5, 24, requires_grad=True)
    project(LAYER, x, activated=True).sum().backward()  # type: ignore[no-untyped-call]
    wanted = torch.autograd.grad(gelu(LAYER(x)).sum(), x)[0]
    assert x.grad is not None and torch.equal(x.grad, wanted)


@pytest.mark.skipif(not projection._ONEDNN, reason="this build of torch has no oneDNN")
def test_other_precisions_hooks_and_export_use_the_plain_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.dtype] = []
    real = torch.ops.mkldnn._linear_pointwise

    def counted(x: torch.Tensor, *rest: object) -> torch.Tensor:
        taken.append(x.dtype)
        found: torch.Tensor = real(x, *rest)
        return found

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counted)
    layer, x = nn.Linear(24, 40), torch.randn(5, 24)
    with torch.no_grad():
        project(layer, x)
        assert taken == [torch.float32]
        assert project(layer.double(), x.double()).dtype == torch.float64
        layer.float()
        with torch.autocast("cpu", torch.bfloat16):
            assert project(layer, x).dtype == torch.bfloat16
        assert project(layer, x[:0]).shape == (0, 40)
        seen = []
        handle = layer.register_forward_hook(lambda *_: seen.append(1))
        project(layer, x)
        handle.remove()
    project(layer, x)
    assert taken == [torch.float32] and seen == [1]
