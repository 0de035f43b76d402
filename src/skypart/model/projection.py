"""A linear layer with an optional GELU. On a CPU without gradients, oneDNN computes it on packed weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu


def project(layer: nn.Linear, x: Tensor, activated: bool = False) -> Tensor:
    """Apply `layer` to x (..., in), then an exact GELU if `activated`. Returns (..., out).

    oneDNN is faster than a separate matrix product and GELU, even with the time to pack the weights. Its results differ
    from theirs in the last bits. The result of a row does not depend on the other rows.
    """
    if _can_use_onednn(layer, x):
        rows = x.numel() // layer.in_features
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight, rows)
        name, variant = ("gelu", "none") if activated else ("none", "")
        fused: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, name, [], variant)
        return fused
    plain: Tensor = layer(x)
    return gelu(plain) if activated else plain


def _can_use_onednn(layer: nn.Linear, x: Tensor) -> bool:
    """Whether oneDNN can compute a layer: in float32 on a CPU, without gradient, export or hooks."""
    return (
        _ONEDNN
        and type(layer) is nn.Linear  # a replacement, such as a quantised layer or an adapter, has its own forward
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
