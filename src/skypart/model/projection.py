"""A linear layer, with its GELU where one follows; on a CPU and without gradient by oneDNN, on packed weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu


def project(layer: nn.Linear, x: Tensor, activated: bool = False) -> Tensor:
    """`layer` over x (..., in), and an exact GELU over that if `activated`: (..., out).

    oneDNN takes less time than a matrix product and a GELU of their own, packing the weights included; its sums differ
    from theirs in the last bits. A row's result does not depend on the rows beside it.
    """
    if _can_use_onednn(layer, x):
        rows = x.numel() // layer.in_features
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight, rows)
        name, variant = ("gelu", "none") if activated else ("none", "")
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, name, [], variant)
        return found
    plain: Tensor = layer(x)
    return gelu(plain) if activated else plain


def _can_use_onednn(layer: nn.Linear, x: Tensor) -> bool:
    """Whether oneDNN can take a layer over: in single precision on a CPU, without gradient, and while nobody looks on,
    be it an export or a hook."""
    return (
        _ONEDNN
        and type(layer) is nn.Linear  # one that was replaced, as by a quantised or an adapted one, has its own way
        and x.device.type == "cpu"
        and x.dtype == layer.weight.dtype == torch.float32
        and x.numel() > 0
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch._C._get_tracing_state()
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


_ONEDNN = torch.backends.mkldnn.is_available() and all(  # type: ignore[no-untyped-call]
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)
